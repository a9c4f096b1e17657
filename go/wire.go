//go:build linux

package bellwire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// What follows is docs/wire.md in constants; the numbers of its sections are the names of its headings.

const (
	protocol = 1 // the only version of the protocol

	pageSize    = 4096 // of a page and a board; a unit of the protocol, not of the processor
	headerSize  = 16   // of a record
	reserveSize = 32   // what stays free after every record: a switch and a close fit at any time
	minLane     = 4096
	maxLane     = 1 << 30
	never       = ^uint64(0) // an event index that no move crosses

	maxEpochs      = 4  // outstanding in a lane
	maxAttachments = 64 // the same
	maxWaiting     = 65536

	statsVersion = ^uint32(0) // asks for the server's counters in place of the service
)

// recordKind says what a record is.
type recordKind uint8

const (
	kindRequest recordKind = iota + 1
	kindResponse
	kindPad
	kindSwitch
	kindAttach
	kindCancel
	kindClose
	kindTrim
)

const (
	flagMore  = 0x02
	flagBatch = 0x04
)

// Status says how a request ended.
type Status uint16

// The statuses of an answer.
const (
	StatusOK        Status = iota // the handler ran, and this is its answer
	StatusFailed                  // the handler ran, and failed
	StatusMalformed               // the request could not be decoded; no handler ran
	StatusBusy                    // the server has too much to do; no handler ran
	StatusStopping                // the server stops; no handler ran
	StatusCancelled               // the client gave the request up; no handler ran
	StatusTooLarge                // the handler ran, and its answer is above a limit
	StatusPanicked                // the handler ran in part
	StatusNotYet                  // nothing is published; no handler ran
	StatusShort                   // the handler ran, and the server lacked memory or descriptors for its answer
)

var statusNames = [...]string{
	"ok", "failed", "malformed", "busy", "stopping", "cancelled", "too large", "panicked", "not yet", "short",
}

func (s Status) known() bool { return int(s) < len(statusNames) }

// String returns the name of the status.
func (s Status) String() string {
	if s.known() {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint16(s))
}

// closeReason says why an end sends nothing more.
type closeReason uint16

const (
	closeNormal closeReason = iota + 1
	closePoisoned
	closeStopping
	closeStalled
)

func (r closeReason) isKnown() bool { return r >= closeNormal && r <= closeStalled }

func (r closeReason) String() string {
	switch r {
	case closeNormal:
		return "it is done"
	case closePoisoned:
		return "it found a protocol violation"
	case closeStopping:
		return "it stops"
	case closeStalled:
		return "its messages were not read"
	}
	return "reason unknown"
}

// header is that of a record.
type header struct {
	len    uint32
	kind   recordKind
	flags  uint8
	status uint16
	id     uint64
}

// words returns the header as the two words in which it is written and read.
func (h header) words() (uint64, uint64) {
	return uint64(h.len) | uint64(h.kind)<<32 | uint64(h.flags)<<40 | uint64(h.status)<<48, h.id
}

func headerFrom(first, id uint64) header {
	return header{
		len: uint32(first), kind: recordKind(first >> 32), flags: uint8(first >> 40), status: uint16(first >> 48), id: id,
	}
}

// size is what the record takes in a lane, padding included.
func (h header) size() uint64 { return recordSize(uint64(h.len)) }

func recordSize(payload uint64) uint64 { return headerSize + (payload+15)&^15 }

// maxPayload is that of a record in a lane of this size.
func maxPayload(lane uint64) uint64 { return lane/2 - 48 }

// laneFor is the least lane that holds a record with this payload.
func laneFor(payload uint64) uint64 {
	size := uint64(minLane)
	for maxPayload(size) < payload {
		size *= 2
	}
	return size
}

func isLaneSize(size uint64) bool {
	return size >= minLane && size <= maxLane && size&(size-1) == 0
}

// validName reports whether a service may have this name.
func validName(name string) bool {
	if len(name) < 1 || len(name) > 63 || name[0] == '-' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// nameFrom takes a name out of its 64 bytes.
func nameFrom(field []byte) (string, bool) {
	name := string(bytes.TrimRight(field, "\x00"))
	return name, validName(name)
}

// isText reports whether bytes are UTF-8 without control characters.
func isText(text []byte) bool {
	return utf8.Valid(text) && !bytes.ContainsFunc(text, unicode.IsControl)
}

var le = binary.LittleEndian
