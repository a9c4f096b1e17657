//go:build linux

package bellwire

// sender writes records into an end's own lane. It does no I/O: its end publishes, rings and passes memfds.
type sender struct {
	mem     []byte // of the epoch that is written
	epoch   epoch
	base    uint64 // the first position of the epoch
	written uint64 // up to which records were written
	head    uint64 // the peer's, checked
	high    uint64 // the most bytes that were there at once
	checked uint64 // up to which the peer's event index was compared

	left     []leftEpoch // by a switch above the peer's Head
	attached []attached  // whose records are above it
	fulls    int         // records that met the full lane, since it has this size
}

type leftEpoch struct {
	end  uint64 // the position after the switch
	size uint64
}

type attached struct {
	end   uint64 // of its record
	bytes uint64 // of memory
}

// checkHead takes the peer's Head.
func (s *sender) checkHead(head, published uint64) error {
	switch {
	case head < s.head:
		return faultHeadWentBack
	case head > published:
		return faultHeadTooFar
	case head%headerSize != 0:
		return faultMisaligned
	}
	s.head = head
	for len(s.left) > 0 && s.left[0].end <= head {
		s.left = s.left[1:]
	}
	for len(s.attached) > 0 && s.attached[0].end <= head {
		s.attached = s.attached[1:]
	}
	return nil
}

// pad is what a record of this size has to skip before the lane's end.
func (s *sender) pad(record uint64) uint64 {
	size := uint64(s.epoch.size)
	if rest := size - (s.written-s.base)%size; rest < record {
		return rest
	}
	return 0
}

// needs returns the Head at which a record with this payload fits, which may have come long ago.
func (s *sender) needs(payload uint64) (head uint64, fits bool) {
	record, size := recordSize(payload), uint64(s.epoch.size)
	end := s.written + s.pad(record) + record + reserveSize
	if end-max(s.head, s.base) <= size {
		return 0, true
	}
	return end - size, false
}

// put writes a record that fits.
func (s *sender) put(h header, payload []byte) {
	h.len = uint32(len(payload))
	if pad := s.pad(h.size()); pad > 0 {
		s.putHeader(header{len: uint32(pad - headerSize), kind: kindPad})
		s.written += pad
	}
	at := s.putHeader(h)
	copy(s.mem[at+headerSize:], payload)
	s.written += h.size()
}

func (s *sender) putHeader(h header) uint64 {
	at := (s.written - s.base) % uint64(s.epoch.size)
	first, id := h.words()
	le.PutUint64(s.mem[at:], first)
	le.PutUint64(s.mem[at+8:], id)
	return at
}

// inUse is the memory that counts against max_shared.
func (s *sender) inUse() uint64 {
	sum := uint64(pageSize) + uint64(s.epoch.size)
	for _, left := range s.left {
		sum += left.size
	}
	for _, attached := range s.attached {
		sum += attached.bytes
	}
	return sum
}

// next is the epoch after this one.
func (s *sender) next(size uint64) epoch { return epoch{s.epoch.number + 1, uint32(size)} }

// switchTo goes on in the next epoch, whose LANE was sent; it returns the memory that was left.
func (s *sender) switchTo(next epoch, mem []byte) []byte {
	s.put(header{kind: kindSwitch, id: next.id()}, nil)
	s.left = append(s.left, leftEpoch{s.written, uint64(s.epoch.size)})
	old := s.mem
	s.mem, s.epoch, s.base, s.fulls = mem, next, s.written, 0
	return old
}
