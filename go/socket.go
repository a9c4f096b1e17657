//go:build linux

package bellwire

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is the control socket of a session.
type socket struct {
	conn *net.UnixConn
	raw  syscall.RawConn
	peer *unix.Ucred
	user uint32 // with whose closes the peer's wait
}

func newSocket(conn *net.UnixConn) (*socket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(controlErr, err); err != nil {
		return nil, err
	}
	return &socket{conn, raw, peer, peer.Uid}, nil
}

// soPassRights is SO_PASSRIGHTS of Linux 6.16: whether others can send descriptors to a socket, or to what is accepted from it.
// Where they cannot, their sendmsg fails with EPERM; with an older kernel they always can.
const soPassRights = 83

// acceptDescriptors lets the peer send descriptors.
func (s *socket) acceptDescriptors() {
	_ = s.raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, soPassRights, 1) })
}

// close closes it, and with it the descriptors that the peer left there.
func (s *socket) close() { reapConn(s.user, s.conn) }

// reap closes descriptors that the peer sent.
func (s *socket) reap(fds ...int) { reap(s.user, fds...) }

// errWouldBlock is what a socket without a message, or without room, returns.
var errWouldBlock error = unix.EAGAIN

// send sends one message with descriptors. It waits for room, until the connection's deadline, only if told so.
func (s *socket) send(b []byte, waits bool, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	var result error
	err := s.raw.Write(func(fd uintptr) bool {
		for {
			result = unix.Sendmsg(int(fd), b, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if result != unix.EINTR {
				return result != unix.EAGAIN || !waits
			}
		}
	})
	if err != nil {
		return err
	}
	return result
}

// handshakeSpin is about what a server takes for its part of a handshake, with its wake-up.
const handshakeSpin = 3 * spinFor

// spin polls for a message before receive sleeps: a server that is awake answers sooner than a sleeping thread wakes up.
func (s *socket) spin() {
	_ = s.raw.Control(func(fd uintptr) {
		new(spinner).spin(handshakeSpin, 1, func() bool {
			if polled(fd, unix.POLLIN) {
				return true
			}
			// Another process may wait for this processor: the peer itself, for instance.
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			return false
		})
	})
}

// receive waits, until the connection's deadline, for one message of the handshake.
func (s *socket) receive() (b []byte, fds []int, err error) {
	readErr := s.raw.Read(func(fd uintptr) bool {
		b, fds, err = s.receiveFrom(int(fd), 0)
		return err != errWouldBlock
	})
	if readErr != nil {
		return nil, nil, readErr
	}
	return b, fds, err
}

// receiveFrom takes one message, or peeks at it. io.EOF means that the peer has closed.
func (s *socket) receiveFrom(fd, flags int) ([]byte, []int, error) {
	b := make([]byte, maxControl+1)
	oob := make([]byte, unix.CmsgSpace(4*(maxFDs+1)))
	n, oobn, got, _, err := unix.Recvmsg(fd, b, oob, flags|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, oobn, got, _, err = unix.Recvmsg(fd, b, oob, flags|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return nil, nil, err
	}
	fds := rightsIn(oob[:oobn])
	if got&unix.MSG_CTRUNC != 0 {
		s.reap(fds...)
		if len(fds) < maxFDs && lacksDescriptors() {
			return nil, nil, shortage{unix.EMFILE}
		}
		return nil, nil, controlFault("descriptors")
	}
	if got&unix.MSG_TRUNC != 0 || len(fds) > maxFDs {
		s.reap(fds...)
		return nil, nil, controlFault("length")
	}
	if n == 0 && len(fds) == 0 {
		if polled(uintptr(fd), unix.POLLRDHUP) {
			return nil, nil, io.EOF
		}
		return nil, nil, controlFault("length")
	}
	return b[:n], fds, nil
}

// takeOff takes a message off that was peeked at. Its descriptors are there already: none that this drops is the last one.
func takeOff(fd int) {
	for wasReset := false; ; {
		switch _, _, err := unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT); {
		case err == unix.EINTR:
		case err == unix.ECONNRESET && !wasReset:
			// The socket reports once that the peer is gone, before the message.
			wasReset = true
		default:
			return
		}
	}
}

// rightsIn reads the descriptors out of control data, without trusting its shape.
func rightsIn(oob []byte) []int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var fds []int
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_RIGHTS {
			for d := m.Data; len(d) >= 4; d = d[4:] {
				fds = append(fds, int(int32(binary.NativeEndian.Uint32(d))))
			}
		}
	}
	return fds
}

func lacksDescriptors() bool {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err != nil
}

// polled reports whether any of these events is there, or an error.
func polled(fd uintptr, events int16) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, _ := unix.Poll(poll, 0)
	return n > 0
}

// process is a pidfd of the process at the other end, where the kernel gives one.
func (s *socket) process() (pidfd *os.File) {
	_ = s.raw.Control(func(fd uintptr) {
		const peerPidfd = 77 // SO_PEERPIDFD, Linux 6.5; it is closed on exec
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, peerPidfd)
		if err != nil {
			return
		}
		if unix.SetNonblock(n, true) != nil {
			closeOwn(n)
			return
		}
		pidfd = os.NewFile(uintptr(n), "pidfd")
	})
	return pidfd
}
