//go:build linux

package bellwire

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// watchSocket takes control messages as they come, and sees the peer hang up.
func (e *end) watchSocket() {
	_ = e.sock.raw.Read(func(fd uintptr) bool {
		for {
			// One at a time: a peer that sends without end must not keep mu. When it is over, nobody closes what would come.
			e.mu.Lock()
			isOver := e.over() != nil
			var err error
			if !isOver {
				err = e.takeControl(int(fd))
			}
			e.mu.Unlock()
			if isOver || err != nil {
				return isOver || err != errWouldBlock && !isShortage(err)
			}
		}
	})
}

// takeControl takes one message off the socket.
func (e *end) takeControl(fd int) error {
	// A receiver that lacks room for descriptors leaves the message where it is.
	b, fds, err := e.sock.receiveFrom(fd, unix.MSG_PEEK)
	if err == nil {
		takeOff(fd)
		err = e.sawControl(b, fds)
	}
	var wrong controlFault
	switch {
	case err == nil || err == errWouldBlock || isShortage(err):
	case errors.As(err, &wrong):
		e.poison(faultControl)
	default:
		e.peerIsGone(err)
	}
	return err
}

func (e *end) sawControl(b []byte, fds []int) error {
	kind, err := parsePrefix(b, len(fds))
	if err == nil {
		switch kind {
		case controlRing:
			if _, rung := e.bell.(socketBell); rung {
				e.bell.kick()
			}
			return nil
		case controlLane:
			err = e.box.addLane(e.sock.user, epochFrom(le.Uint64(b[8:])), fds[0], e.limits)
		case controlAttachment:
			err = e.box.addAttachment(e.sock.user, parsePassed(b), fds[0], e.limits)
		default:
			err = controlFault("kind")
		}
	}
	if err != nil {
		e.sock.reap(fds...)
	}
	return err
}

// peerIsGone notes that nobody will publish any more. What was published is read all the same.
func (e *end) peerIsGone(err error) {
	if e.gone != nil || e.closed {
		return
	}
	e.ended.Store(true)
	if reason, isClosed := e.peerClosed(); isClosed {
		e.gone = &closedByPeer{reason}
	} else if err == nil || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		e.gone = ErrPeerGone
	} else {
		e.gone = fmt.Errorf("%w: %w", ErrPeerGone, err)
	}
	e.wakeAll()
}

// peerClosed returns the reason of a Close record that the peer has published, read or not: State follows it.
func (e *end) peerClosed() (closeReason, bool) {
	state := e.peer.load(wordState)
	reason := closeReason(state >> 32)
	return reason, uint32(state) == 3 && state>>32 == uint64(reason) && reason.isKnown()
}

// hasEnded reports whether the process of a pidfd has ended.
func hasEnded(pidfd uintptr) bool { return polled(pidfd, unix.POLLIN) }

// watchProcess sees the peer die, also while a child of it holds its socket.
func (e *end) watchProcess() {
	raw, err := e.pidfd.SyscallConn()
	if err != nil {
		return
	}
	if raw.Read(hasEnded) == nil {
		e.peerDied()
	}
}

// peerDied notes that the peer's process has ended.
func (e *end) peerDied() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peerIsGone(nil)
}
