//go:build linux

package bellwire

// mailbox has what came on the control socket and no record has asked for yet.
type mailbox struct {
	lanes       []offered
	attachments []received
	waiting     uint64 // bytes of both
}

type offered struct {
	epoch epoch
	fd    int
}

type received struct {
	passed
	fd int
}

// appendTo checks an attachment, appends its bytes, and closes its descriptor.
func (r received) appendTo(dst []byte) ([]byte, error) {
	defer closeStrange(r.fd)
	mem, err := mapPeers(r.fd, roundedUp(r.len), true)
	if err != nil {
		return dst, err
	}
	defer unmap(mem)
	return append(dst, mem[:r.len]...), nil
}

func (m *mailbox) addLane(e epoch, fd int, own limits) error {
	size := uint64(e.size)
	if !isLaneSize(size) || e.size > own.maxLane || len(m.lanes) == maxEpochs || m.waiting+size > own.maxShared {
		return controlFault("lane")
	}
	m.lanes = append(m.lanes, offered{e, fd})
	m.waiting += size
	return nil
}

func (m *mailbox) addAttachment(p passed, fd int, own limits) error {
	if p.len > own.maxMessage || len(m.attachments) == maxAttachments || m.waiting+roundedUp(p.len) > own.maxShared {
		return controlFault("attachment")
	}
	m.attachments = append(m.attachments, received{p, fd})
	m.waiting += roundedUp(p.len)
	return nil
}

// takeLane returns the memory that a switch asks for, from the socket if necessary.
func (m *mailbox) takeLane(e *end, next epoch) (int, error) {
	if err := e.fetch(func() bool { return len(m.lanes) > 0 }); err != nil {
		return -1, err
	}
	if len(m.lanes) == 0 || m.lanes[0].epoch != next {
		return -1, faultMemory
	}
	fd := m.lanes[0].fd
	m.lanes = m.lanes[1:]
	m.waiting -= uint64(next.size)
	return fd, nil
}

// putBack undoes takeLane.
func (m *mailbox) putBack(next epoch, fd int) {
	m.lanes = append([]offered{{next, fd}}, m.lanes...)
	m.waiting += uint64(next.size)
}

// takeAttachment returns the memory that an attach record asks for.
func (m *mailbox) takeAttachment(e *end, id uint64) (received, error) {
	if err := e.fetch(func() bool { return len(m.attachments) > 0 }); err != nil {
		return received{}, err
	}
	if len(m.attachments) == 0 || m.attachments[0].id != id {
		return received{}, faultMemory
	}
	first := m.attachments[0]
	m.attachments = m.attachments[1:]
	m.waiting -= roundedUp(first.len)
	return first, nil
}

func (m *mailbox) close() {
	for _, l := range m.lanes {
		closeStrange(l.fd)
	}
	for _, a := range m.attachments {
		closeStrange(a.fd)
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
