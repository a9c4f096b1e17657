//go:build linux

package bellwire

// receiver reads records out of the peer's lane, none of which it trusts. It does no I/O.
type receiver struct {
	mem     []byte // of the epoch that is read; only copied out of
	epoch   epoch
	base    uint64
	head    uint64
	tail    uint64 // as it was last seen
	checked uint64 // the head when WantSpace was last checked
	high    uint64 // the most bytes that were there at once

	toServer   bool
	least      uint64 // size of an epoch
	largest    uint64
	maxMessage uint64

	lastID  uint64            // of a request, in a server
	waits   func(uint64) bool // whether a request is in flight, in a client
	message header            // of the message in parts that has begun, whose len is what there is of it
	inParts bool
}

// checkTail takes the peer's Tail.
func (r *receiver) checkTail(tail uint64) error {
	allowed := uint64(r.epoch.size)
	if r.least != r.largest {
		allowed += 4 * r.largest
	}
	switch {
	case tail < r.tail:
		return faultTailWentBack
	case tail-r.head > allowed:
		return faultTailTooFar
	case tail%headerSize != 0:
		return faultMisaligned
	}
	r.tail, r.high = tail, max(r.high, tail-r.head)
	return nil
}

// peek checks a copy of the next record's header; pads are skipped. There is none if ok is false.
func (r *receiver) peek() (h header, ok bool, err error) {
	for r.head < r.tail {
		at := r.offset()
		lane := words(r.mem)
		h = headerFrom(lane.load(at), lane.load(at+8))
		if err := r.check(h); err != nil {
			return h, false, err
		}
		if h.kind != kindPad {
			return h, true, nil
		}
		r.head += h.size()
	}
	return h, false, nil
}

func (r *receiver) offset() int { return int((r.head - r.base) % uint64(r.epoch.size)) }

// payload is the peer's memory, to be copied once.
func (r *receiver) payload(h header) []byte {
	at := r.offset() + headerSize
	return r.mem[at : at+int(h.len)]
}

// check is steps 3 to 5 of the rules of a reader.
func (r *receiver) check(h header) error {
	size := uint64(r.epoch.size)
	rest := size - uint64(r.offset())
	if h.size() > r.tail-r.head || h.size() > rest {
		return faultRecordTooLong
	}
	if h.kind < kindRequest || h.kind > kindTrim {
		return faultUnknownKind
	}
	if err := h.checkFlags(); err != nil {
		return err
	}
	switch h.kind {
	case kindPad:
		if h.size() != rest || rest >= size/2 {
			return faultUnexpected
		}
		return nil
	case kindRequest, kindResponse:
		if h.flags&flagMore != 0 && h.len == 0 {
			return faultUnexpected
		}
	default:
		if h.len != 0 {
			return faultUnexpected
		}
	}
	if !r.allows(h) {
		return faultUnexpected
	}
	return r.checkID(h)
}

func (h header) checkFlags() error {
	allowed := uint8(0)
	switch h.kind {
	case kindRequest:
		allowed = flagMore | flagBatch
	case kindResponse:
		allowed = flagMore
	}
	if h.flags&^allowed != 0 {
		return faultUnknownFlags
	}
	return nil
}

// allows is step 4: the kind is one for this end, and may stand where it stands.
func (r *receiver) allows(h header) bool {
	switch h.kind {
	case kindSwitch:
		return true
	case kindClose:
		return closeReason(h.status).isKnown()
	case kindCancel:
		return r.toServer
	case kindAttach, kindTrim:
		if r.inParts {
			return false
		}
	case kindRequest:
		if !r.toServer {
			return false
		}
	case kindResponse:
		if r.toServer {
			return false
		}
	}
	if h.kind == kindRequest || h.kind == kindResponse {
		m := r.message
		if r.inParts && (h.kind != m.kind || h.id != m.id || (h.flags^m.flags)&flagBatch != 0) {
			return false
		}
		if r.inParts && h.kind == kindResponse && h.status != m.status {
			return false
		}
	}
	return r.toServer || h.kind == kindTrim || Status(h.status).known()
}

// checkID is step 5 and the length of a message.
func (r *receiver) checkID(h header) error {
	switch h.kind {
	case kindSwitch:
		next := epochFrom(h.id)
		size := uint64(next.size)
		if next.number != r.epoch.number+1 || !isLaneSize(size) || size < r.least || size > r.largest {
			return faultSwitch
		}
	case kindCancel:
		if h.id > r.lastID || h.id == 0 && (!r.inParts || r.message.id != 0) {
			return faultUnknownID
		}
	case kindRequest, kindResponse, kindAttach:
		length := uint64(h.len)
		switch {
		case r.inParts:
			length += uint64(r.message.len)
		case r.toServer:
			if h.id != 0 && h.id <= r.lastID {
				return faultReusedID
			}
		case !r.waits(h.id):
			return faultUnknownID
		}
		if length > r.maxMessage {
			return faultMessageTooLong
		}
	}
	return nil
}

// advance passes the record that was peeked, and reports whether a message in parts is whole with it.
func (r *receiver) advance(h header) (whole bool) {
	r.head += h.size()
	switch h.kind {
	case kindRequest, kindResponse:
		if !r.inParts {
			r.message = h
		} else {
			r.message.len += h.len
		}
		r.inParts = h.flags&flagMore != 0
		whole = !r.inParts
	case kindAttach:
		whole = true
	case kindCancel:
		if r.inParts && h.id == r.message.id {
			r.inParts = false
		}
	}
	if r.toServer && h.id > r.lastID && (h.kind == kindRequest || h.kind == kindAttach) {
		r.lastID = h.id
	}
	return whole
}

// follow goes on in the next epoch, after the switch record; it returns the memory that was left.
func (r *receiver) follow(next epoch, mem []byte) []byte {
	old := r.mem
	r.head += headerSize
	r.mem, r.epoch, r.base = mem, next, r.head
	return old
}
