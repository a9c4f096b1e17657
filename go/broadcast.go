//go:build linux

package bellwire

// record is one that a reader has taken from a broadcast ring, or a note that some were missed.
type ringRecord struct {
	sequence uint64
	missed   uint64 // records between the one before and this
	bytes    []byte
	next     uint32 // the number of the ring that follows, if not 0; nothing else then
}

const (
	ringData = 1
	ringPad  = 2
	ringNext = 3
)

// ringReader reads a publisher's broadcast ring, without trusting it.
type ringReader struct {
	mem      words
	size     uint64
	number   uint32
	at       uint64
	tail     uint64
	expected uint64 // the sequence of the next record, if every record counts; else the least
	gaps     bool   // only the newest counts, and numbers may be left out: snapshots
}

func newRingReader(ring words, h ringHeader) *ringReader {
	return &ringReader{mem: ring, size: uint64(h.size), number: h.number, expected: h.first}
}

// checkTail checks whether there is something new, and goes on at the oldest record if the reader was overrun.
func (c *ringReader) checkTail() (bool, error) {
	tail := c.mem.load(wordPublished)
	switch {
	case tail < c.tail:
		return false, faultTailWentBack
	case tail%headerSize != 0:
		return false, faultMisaligned
	}
	c.tail = tail
	if tail-c.at > c.size {
		c.overrun()
	}
	return c.at < tail, nil
}

// overrun goes on at Oldest, or at Latest: a reader of the newest only meets no deltas, which Latest never names.
func (c *ringReader) overrun() {
	oldest := c.mem.load(wordOldest)
	if c.gaps || oldest <= c.at || oldest >= c.tail || oldest%headerSize != 0 || c.tail-oldest > c.size {
		oldest = c.mem.load(wordLatest)
	}
	if oldest > c.at && oldest < c.tail && oldest%headerSize == 0 {
		c.at = oldest
		return
	}
	c.at = c.tail
}

// toNewest passes all records but the newest, and reports whether that was not taken yet.
func (c *ringReader) toNewest() (bool, error) {
	latest := c.mem.load(wordLatest)
	if tail := c.mem.load(wordPublished); tail >= c.tail {
		c.tail = tail
	}
	switch {
	case latest == never || latest < c.at:
		return false, nil
	case latest%headerSize != 0:
		return false, faultMisaligned
	case latest >= c.tail:
		return false, faultTailTooFar
	}
	c.at = latest
	return true, nil
}

// next takes a record, whose bytes it appends to dst. There is none if ok is false.
func (c *ringReader) next(dst []byte) (r ringRecord, ok bool, err error) {
	for {
		more, err := c.checkTail()
		if err != nil || !more {
			return r, false, err
		}
		offset := int(c.at % c.size)
		at := broadcastStart + offset
		first, sequence := c.mem.load(at), c.mem.load(at+8)
		length, kind := uint64(uint32(first)), uint32(first>>32)
		size, rest := recordSize(length), c.size-uint64(offset)
		dst = dst[:0]
		if whole := size <= rest; whole && kind == ringData && size <= c.size/4 {
			dst = append(dst, c.mem[at+headerSize:at+headerSize+int(length)]...)
		}
		// Pairs with the publisher's barrier: whoever copied a byte of a record sees the Intent that was stored before it.
		barrier()
		if intent := c.mem.load(wordIntent); intent > c.at && intent-c.at > c.size {
			c.overrun()
			continue
		}
		if size > rest || size > c.tail-c.at {
			return r, false, faultRecordTooLong
		}
		switch kind {
		case ringPad:
			if size != rest || sequence != 0 {
				return r, false, faultUnexpected
			}
			c.at += size
			continue
		case ringNext:
			if length != 0 || uint32(sequence) != c.number+1 || sequence>>32 != 0 {
				return r, false, faultUnexpected
			}
			c.at += size
			return ringRecord{next: uint32(sequence)}, true, nil
		case ringData:
		default:
			return r, false, faultUnknownKind
		}
		if size > c.size/4 {
			return r, false, faultMessageTooLong
		}
		if sequence < c.expected {
			return r, false, faultReusedID
		}
		r = ringRecord{sequence: sequence, bytes: dst}
		if !c.gaps {
			r.missed = sequence - c.expected
		}
		c.expected = sequence + 1
		c.at += size
		return r, true, nil
	}
}

// ringWriter writes a broadcast ring.
type ringWriter struct {
	mem    words
	size   uint64
	number uint32
	tail   uint64
	starts []uint64 // of the records from oldest on, pads with the record behind them
}

// fits reports whether a record with this payload may be written.
func (c *ringWriter) fits(payload int) bool { return recordSize(uint64(payload)) <= c.size/4 }

// put writes one record.
func (c *ringWriter) put(kind uint32, sequence uint64, payload []byte) {
	size := recordSize(uint64(len(payload)))
	start := c.tail
	if rest := c.size - c.tail%c.size; rest < size {
		start += rest
	}
	end := start + size
	// The oldest that is still whole: records go one by one.
	first := 0
	for first < len(c.starts) && c.starts[first]+c.size < end {
		first++
	}
	c.starts = append(c.starts[:0], c.starts[first:]...)
	c.starts = append(c.starts, start)
	c.mem.store(wordOldest, c.starts[0])
	c.mem.store(wordIntent, end)
	// Pairs with a reader's barrier.
	barrier()
	if start > c.tail {
		c.putHeader(c.tail, start-c.tail-headerSize, ringPad, 0)
	}
	c.putHeader(start, uint64(len(payload)), kind, sequence)
	copy(c.mem[broadcastStart+start%c.size+headerSize:], payload)
	c.tail = end
	c.mem.store(wordPublished, end)
	c.mem.store(wordLatest, start)
}

func (c *ringWriter) putHeader(at, length uint64, kind uint32, sequence uint64) {
	to := c.mem[broadcastStart+at%c.size:]
	le.PutUint64(to, length|uint64(kind)<<32)
	le.PutUint64(to[8:], sequence)
}
