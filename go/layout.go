//go:build linux

package bellwire

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Offsets in a page.
const (
	wordTail      = 0x080
	wordHead      = 0x100
	wordWantData  = 0x180
	wordWantSpace = 0x200
	wordState     = 0x280
	wordDoorbell  = 0x288
	wordRungAt    = 0x300
	wordRings     = 0x308
	wordParks     = 0x310
	countersAt    = 0x400
	latencyAt     = 0x500
	latencyCount  = 96
)

// Offsets in a board.
const (
	wordGeneration = 0x080
	wordServing    = 0x100
	wordRing       = 0x180
)

// Offsets in a broadcast ring.
const (
	wordOldest     = 0x080
	wordIntent     = 0x088
	wordLatest     = 0x090
	wordPublished  = 0x098
	broadcastStart = 0x1000
)

const (
	roleClient = 1
	roleServer = 2
)

const (
	pageMagic      = "BWPAGE\r\n"
	boardMagic     = "BWBOARD\n"
	broadcastMagic = "BWCAST\r\n"
)

// words is shared memory whose 64-bit words one process writes and others load, each in one piece.
type words []byte

func (w words) at(offset int) *uint64 {
	_ = w[offset+7]
	return (*uint64)(unsafe.Pointer(&w[offset]))
}

func (w words) load(offset int) uint64         { return atomic.LoadUint64(w.at(offset)) }
func (w words) store(offset int, value uint64) { atomic.StoreUint64(w.at(offset), value) }

// pageHeader is the constant part of a page.
type pageHeader struct {
	role     uint32
	session  uint64
	pid      uint32
	laneSize uint32
	created  uint64
	name     string
}

// memoryHeaderSize is enough for the constant start of a page, a board and a broadcast ring.
const memoryHeaderSize = 0x80

// startHeader writes the magic, the layout and, at an offset, the service's name, with which each kind of memory starts.
func startHeader(memory words, magic string, nameAt int, name string) {
	copy(memory, magic)
	le.PutUint32(memory[0x08:], 1)
	copy(memory[nameAt:nameAt+64], name)
}

// checkHeader checks them in a copy of a peer's header, of which it is one.
func checkHeader(bytes []byte, magic string, nameAt int, service, of string) error {
	name, ok := nameFrom(bytes[nameAt : nameAt+64])
	switch {
	case string(bytes[:8]) != magic:
		return memoryFault("magic of the " + of)
	case le.Uint32(bytes[0x08:]) != 1:
		return memoryFault("layout of the " + of)
	case !ok || name != service:
		return memoryFault("service name of the " + of)
	}
	return nil
}

// write fills a fresh page: its header, and the first values of its words.
func (h pageHeader) write(page words) {
	startHeader(page, pageMagic, 0x28, h.name)
	le.PutUint32(page[0x0c:], h.role)
	le.PutUint64(page[0x10:], h.session)
	le.PutUint32(page[0x18:], h.pid)
	le.PutUint32(page[0x1c:], h.laneSize)
	le.PutUint64(page[0x20:], h.created)
	page.store(wordWantData, never)
	page.store(wordWantSpace, never)
	page.store(wordState, 1)
}

// memoryFault is a header of memory that is not what the handshake said.
type memoryFault string

func (f memoryFault) Error() string { return "shared memory: wrong " + string(f) }

// check compares a copy of a peer's header with what it has to be; pid and created are for display only.
func (h pageHeader) check(bytes []byte) error {
	if err := checkHeader(bytes, pageMagic, 0x28, h.name, "page"); err != nil {
		return err
	}
	switch {
	case le.Uint32(bytes[0x0c:]) != h.role:
		return memoryFault("role")
	case le.Uint64(bytes[0x10:]) != h.session:
		return memoryFault("session")
	case le.Uint32(bytes[0x1c:]) != h.laneSize:
		return memoryFault("lane size")
	}
	return nil
}

func writeBoard(board words, pid uint32, created uint64, name string) {
	startHeader(board, boardMagic, 0x18, name)
	le.PutUint32(board[0x0c:], pid)
	le.PutUint64(board[0x10:], created)
	board.store(wordServing, 1)
}

func checkBoard(bytes []byte, service string) error {
	return checkHeader(bytes, boardMagic, 0x18, service, "board")
}

// ringHeader is what stands in a broadcast ring once.
type ringHeader struct {
	size, number uint32
	first        uint64
	name         string
}

func (h ringHeader) write(ring words) {
	startHeader(ring, broadcastMagic, 0x20, h.name)
	le.PutUint32(ring[0x0c:], h.size)
	le.PutUint32(ring[0x10:], h.number)
	le.PutUint64(ring[0x18:], h.first)
	ring.store(wordLatest, never)
}

func parseRing(bytes []byte, service string) (ringHeader, error) {
	h := ringHeader{
		size: le.Uint32(bytes[0x0c:]), number: le.Uint32(bytes[0x10:]), first: le.Uint64(bytes[0x18:]), name: service,
	}
	err := checkHeader(bytes, broadcastMagic, 0x20, service, "broadcast ring")
	if err == nil && !isLaneSize(uint64(h.size)) {
		err = memoryFault("size of the broadcast ring")
	}
	return h, err
}

// fault is a rule of docs/wire.md that a peer broke; the numbers are those of the vectors.
type fault int

const (
	faultTailWentBack fault = iota + 1
	faultTailTooFar
	faultHeadWentBack
	faultHeadTooFar
	faultMisaligned
	faultRecordTooLong
	faultUnknownKind
	faultUnexpected
	faultUnknownFlags
	faultUnknownID
	faultReusedID
	faultMessageTooLong
	faultSwitch
	faultMemory
	faultControl
)

var faultNames = [...]string{
	"", "its Tail went back", "its Tail is too far ahead", "its Head went back", "its Head is above what was published",
	"a position is no multiple of 16", "a record is longer than what was published", "a record's kind is unknown",
	"a record is not allowed there", "a record's flags are unknown", "an id is not in flight", "an id came before",
	"a message is above the limit", "a switch names no lane that may come next", "memory is missing or is not as promised",
	"a control message breaks the rules",
}

func (f fault) Error() string {
	if f > 0 && int(f) < len(faultNames) {
		return faultNames[f]
	}
	return fmt.Sprintf("fault %d", int(f))
}
