//go:build linux

package bellwire

import "fmt"

const (
	controlMagic = 0x31435742 // the bytes BWC1
	maxControl   = 512
	maxFDs       = 16 // in one control message
)

// controlKind says what a control message is.
type controlKind uint16

const (
	controlHello controlKind = iota + 1
	controlWelcome
	controlRefuse
	controlAttach
	controlReady
	controlAttachment
	controlRing
	controlLane
)

var controlSizes = [...]int{0, 148, 72, 272, 16, 16, 32, 8, 16}

// Doorbell says how an end is woken.
type Doorbell uint32

// The doorbells of the protocol. An end of this package is rung by an eventfd or by its socket, and rings by all three.
const (
	DoorbellFutex Doorbell = iota + 1
	DoorbellEventfd
	DoorbellSocket
)

// limits are those that an end declares when a session opens.
type limits struct {
	leastLane, maxLane    uint32
	maxMessage, maxShared uint64
}

// check reports the first field that is wrong beside a lane of this size.
func (l limits) check(lane uint32) error {
	switch {
	case !isLaneSize(uint64(lane)):
		return controlFault("lane size")
	case !isLaneSize(uint64(l.leastLane)) || l.leastLane > lane:
		return controlFault("least lane size")
	case !isLaneSize(uint64(l.maxLane)):
		return controlFault("lane limit")
	case l.maxShared < 2*pageSize:
		return controlFault("shared memory limit")
	case uint64(lane) > l.maxShared-pageSize:
		return controlFault("lane size beside the shared memory limit")
	}
	return nil
}

// agree returns what holds for both ends: the smaller of each limit, but the least lane, which is each end's own.
func (l limits) agree(other limits) limits {
	return limits{
		leastLane: l.leastLane, maxLane: min(l.maxLane, other.maxLane),
		maxMessage: min(l.maxMessage, other.maxMessage), maxShared: min(l.maxShared, other.maxShared),
	}
}

func (l limits) write(b []byte) {
	le.PutUint32(b, l.leastLane)
	le.PutUint32(b[4:], l.maxLane)
	le.PutUint64(b[8:], l.maxMessage)
	le.PutUint64(b[16:], l.maxShared)
}

func limitsFrom(b []byte) limits {
	return limits{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:])}
}

type hello struct {
	min, max       uint16
	serviceVersion uint32
	features       uint64
	service        string
	token          [16]byte
	lane           uint32
	doorbell       Doorbell
	ringsEventfd   bool
	limits         limits
	schema         uint64
}

type welcome struct {
	version  uint16
	lane     uint32
	features uint64
	session  uint64
	doorbell Doorbell
	maxBatch uint32
	limits   limits
	schema   uint64
}

type refuse struct {
	code     RefuseCode
	min, max uint16
	reason   string
}

// controlFault is a control message that breaks a rule; it names the rule.
type controlFault string

func (f controlFault) Error() string { return "control message: wrong " + string(f) }

// incompatible is a HELLO whose versions this program does not speak.
type incompatible struct{ min, max uint16 }

func (i incompatible) Error() string {
	return fmt.Sprintf("the peer speaks the versions %d to %d of the protocol, and this program %d", i.min, i.max, protocol)
}

func prefix(kind controlKind, fds int) []byte {
	b := make([]byte, controlSizes[kind])
	le.PutUint32(b, controlMagic)
	le.PutUint16(b[4:], uint16(kind))
	le.PutUint16(b[6:], uint16(fds))
	return b
}

// parsePrefix checks magic, fds, kind and size, in this order. fds is how many descriptors came.
func parsePrefix(b []byte, fds int) (controlKind, error) {
	if len(b) < 8 {
		return 0, controlFault("length")
	}
	if le.Uint32(b) != controlMagic {
		return 0, controlFault("magic")
	}
	if int(le.Uint16(b[6:])) != fds {
		return 0, controlFault("descriptors")
	}
	kind := controlKind(le.Uint16(b[4:]))
	if kind == 0 || int(kind) >= len(controlSizes) {
		return 0, controlFault("kind")
	}
	if !kind.takes(fds) {
		return 0, controlFault("descriptor count")
	}
	if kind == controlHello && len(b) >= 12 {
		// Before the size: a HELLO of another version may have another one.
		low, high := le.Uint16(b[8:]), le.Uint16(b[10:])
		if low > high {
			return 0, controlFault("version range")
		}
		if low > protocol || high < protocol {
			return 0, incompatible{low, high}
		}
	}
	if len(b) != controlSizes[kind] {
		return 0, controlFault("length")
	}
	return kind, nil
}

// takes reports whether a message of this kind may have so many descriptors.
func (k controlKind) takes(fds int) bool {
	switch k {
	case controlWelcome:
		return fds == 3 || fds == 4
	case controlAttach:
		return fds == 2 || fds == 3
	case controlAttachment, controlLane:
		return fds == 1
	}
	return fds == 0
}

func (h hello) encode() []byte {
	b := prefix(controlHello, 0)
	le.PutUint16(b[0x08:], h.min)
	le.PutUint16(b[0x0a:], h.max)
	le.PutUint32(b[0x0c:], h.serviceVersion)
	le.PutUint64(b[0x10:], h.features)
	copy(b[0x18:0x58], h.service)
	copy(b[0x58:], h.token[:])
	le.PutUint32(b[0x68:], h.lane)
	le.PutUint32(b[0x6c:], uint32(h.doorbell))
	if h.ringsEventfd {
		le.PutUint32(b[0x70:], 1)
	}
	h.limits.write(b[0x74:])
	le.PutUint64(b[0x8c:], h.schema)
	return b
}

func parseHello(b []byte) (hello, error) {
	name, ok := nameFrom(b[0x18:0x58])
	if !ok {
		return hello{}, controlFault("service name")
	}
	h := hello{
		min: le.Uint16(b[0x08:]), max: le.Uint16(b[0x0a:]), serviceVersion: le.Uint32(b[0x0c:]), features: le.Uint64(b[0x10:]),
		service: name, token: [16]byte(b[0x58:0x68]), lane: le.Uint32(b[0x68:]), doorbell: Doorbell(le.Uint32(b[0x6c:])),
		limits: limitsFrom(b[0x74:]), schema: le.Uint64(b[0x8c:]),
	}
	if h.doorbell < DoorbellFutex || h.doorbell > DoorbellSocket {
		return hello{}, controlFault("doorbell")
	}
	rings := le.Uint32(b[0x70:])
	if rings > 1 {
		return hello{}, controlFault("eventfd flag")
	}
	h.ringsEventfd = rings == 1
	return h, h.limits.check(h.lane)
}

func (w welcome) encode(fds int) []byte {
	b := prefix(controlWelcome, fds)
	le.PutUint16(b[0x08:], w.version)
	le.PutUint32(b[0x0c:], w.lane)
	le.PutUint64(b[0x10:], w.features)
	le.PutUint64(b[0x18:], w.session)
	le.PutUint32(b[0x20:], uint32(w.doorbell))
	le.PutUint32(b[0x24:], w.maxBatch)
	w.limits.write(b[0x28:])
	le.PutUint64(b[0x40:], w.schema)
	return b
}

func parseWelcome(b []byte, fds int) (welcome, error) {
	w := welcome{
		version: le.Uint16(b[0x08:]), lane: le.Uint32(b[0x0c:]), features: le.Uint64(b[0x10:]),
		session: le.Uint64(b[0x18:]), doorbell: Doorbell(le.Uint32(b[0x20:])), maxBatch: le.Uint32(b[0x24:]),
		limits: limitsFrom(b[0x28:]), schema: le.Uint64(b[0x40:]),
	}
	if le.Uint16(b[0x0a:]) != 0 {
		return welcome{}, controlFault("reserved field")
	}
	if w.doorbell < DoorbellFutex || w.doorbell > DoorbellSocket {
		return welcome{}, controlFault("doorbell")
	}
	if (w.doorbell == DoorbellEventfd) != (fds == 4) {
		return welcome{}, controlFault("descriptors")
	}
	return w, w.limits.check(w.lane)
}

// answers checks what the server agreed to against what this client offered.
func (w welcome) answers(h hello) error {
	switch {
	case w.version < h.min || w.version > h.max:
		return controlFault("version")
	case w.features&^h.features != 0:
		return controlFault("features")
	case w.lane > h.limits.maxLane || uint64(w.lane) > h.limits.maxShared-pageSize:
		return controlFault("lane size: above this client's limit")
	case w.limits.maxLane < h.lane || uint64(h.lane) > w.limits.maxShared-pageSize:
		return controlFault("lane limit: below this client's lane")
	case w.doorbell == DoorbellEventfd && !h.ringsEventfd:
		return controlFault("doorbell: this client rings no eventfd")
	case h.serviceVersion != statsVersion && w.schema != 0 && h.schema != 0 && w.schema != h.schema:
		return schemaFault{}
	}
	return nil
}

type schemaFault struct{}

func (schemaFault) Error() string { return "the provider has other types than this client" }

func (r refuse) encode() []byte {
	b := prefix(controlRefuse, 0)
	le.PutUint16(b[0x08:], uint16(r.code))
	le.PutUint16(b[0x0a:], r.min)
	le.PutUint16(b[0x0c:], r.max)
	n := copy(b[0x10:0x10+255], r.reason)
	le.PutUint16(b[0x0e:], uint16(n))
	return b
}

func parseRefuse(b []byte) (refuse, error) {
	r := refuse{code: RefuseCode(le.Uint16(b[0x08:])), min: le.Uint16(b[0x0a:]), max: le.Uint16(b[0x0c:])}
	n := int(le.Uint16(b[0x0e:]))
	if r.code < RefusedIncompatible || r.code > RefusedSchema {
		return refuse{}, controlFault("code")
	}
	if n > 256 || !isText(b[0x10:0x10+n]) {
		return refuse{}, controlFault("reason")
	}
	r.reason = string(b[0x10 : 0x10+n])
	return r, nil
}

// numbered is a message whose only field is a number: JOIN and READY, of the session, and LANE, of the epoch.
func numbered(kind controlKind, fds int, number uint64) []byte {
	b := prefix(kind, fds)
	le.PutUint64(b[8:], number)
	return b
}

// passed is ATTACHMENT.
type passed struct{ id, generation, len uint64 }

func (p passed) encode() []byte {
	b := numbered(controlAttachment, 1, p.id)
	le.PutUint64(b[0x10:], p.generation)
	le.PutUint64(b[0x18:], p.len)
	return b
}

func parsePassed(b []byte) passed {
	return passed{le.Uint64(b[0x08:]), le.Uint64(b[0x10:]), le.Uint64(b[0x18:])}
}

// epoch is one memfd of a lane.
type epoch struct{ number, size uint32 }

func (e epoch) id() uint64 { return uint64(e.number) | uint64(e.size)<<32 }

func epochFrom(id uint64) epoch { return epoch{uint32(id), uint32(id >> 32)} }
