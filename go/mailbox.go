//go:build linux

package bellwire

// mailbox has what came on the control socket and no record has asked for yet.
type mailbox struct {
	lanes, attachments []received
	waiting            uint64 // bytes of memory of both
}

// received is memory from the peer: an attachment, or a lane, whose id is that of its epoch.
type received struct {
	passed
	memory uint64
	fd     int
	user   uint32 // who sent it
}

func (r received) close() { reap(r.user, r.fd) }

// appendTo checks an attachment, appends its bytes, and closes its descriptor.
func (r received) appendTo(dst []byte) ([]byte, error) {
	mem, err := mapPeers(r.fd, roundedUp(r.len), true)
	if err != nil {
		r.close()
		return dst, err
	}
	closeOwn(r.fd)
	defer unmap(mem)
	return append(dst, mem[:r.len]...), nil
}

func (m *mailbox) addLane(user uint32, e epoch, fd int, own limits) error {
	size := uint64(e.size)
	if !isLaneSize(size) || e.size > own.maxLane || !m.add(&m.lanes, maxEpochs, received{passed{id: e.id()}, size, fd, user}, own) {
		return controlFault("lane")
	}
	return nil
}

func (m *mailbox) addAttachment(user uint32, p passed, fd int, own limits) error {
	if p.len > own.maxMessage || !m.add(&m.attachments, maxAttachments, received{p, roundedUp(p.len), fd, user}, own) {
		return controlFault("attachment")
	}
	return nil
}

func (m *mailbox) add(to *[]received, most int, r received, own limits) bool {
	if len(*to) == most || m.waiting+r.memory > own.maxShared {
		return false
	}
	*to = append(*to, r)
	m.waiting += r.memory
	return true
}

// take returns the memory that a record asks for by its id, from the socket if necessary.
func (m *mailbox) take(e *end, from *[]received, id uint64) (received, error) {
	if err := e.fetch(func() bool { return len(*from) > 0 }); err != nil {
		return received{}, err
	}
	if len(*from) == 0 || (*from)[0].id != id {
		return received{}, faultMemory
	}
	first := (*from)[0]
	*from = (*from)[1:]
	m.waiting -= first.memory
	return first, nil
}

// putBack undoes take.
func (m *mailbox) putBack(lane received) {
	m.lanes = append([]received{lane}, m.lanes...)
	m.waiting += lane.memory
}

func (m *mailbox) close() {
	for _, r := range append(m.lanes, m.attachments...) {
		r.close()
	}
	*m = mailbox{}
}

// fetch reads the socket until there is what a record asks for, or nothing more on it.
func (e *end) fetch(there func() bool) error {
	if there() {
		return nil
	}
	var err error
	control := e.sock.raw.Control(func(fd uintptr) {
		for err == nil && !there() {
			err = e.takeControl(int(fd))
		}
	})
	if err == nil {
		err = control
	}
	if isShortage(err) {
		return err
	}
	return nil
}
