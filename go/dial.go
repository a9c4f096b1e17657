//go:build linux

package bellwire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Dial opens a session with the provider of a service, which listens in the run directory dir: see RunDir. It fails with
// ErrAbsent if there is none; Await waits for one.
func Dial(ctx context.Context, dir, service string, list ...Option) (*Session, error) {
	o, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	return dial(ctx, dir, service, o)
}

func dial(ctx context.Context, dir, service string, o options) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	conn, err := connect(ctx, dir, service, o)
	if err != nil {
		return nil, err
	}
	// A context that ends ends the handshake.
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	s, err := openClient(conn, dir, service, o)
	if !stop() && err == nil {
		s.Close()
		return nil, ctx.Err()
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			<-ctx.Done() // the connection may be quicker
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	s.start()
	return s, nil
}

// socketPath is where a service listens.
func socketPath(dir, service string) (string, error) {
	if !validName(service) {
		return "", fmt.Errorf("bellwire: %q is no name of a service: 1 to 63 of a-z, 0-9 and -, and no - at first", service)
	}
	path := filepath.Join(dir, service+".sock")
	if len(path) > 107 {
		return "", fmt.Errorf("bellwire: %s has %d bytes where a socket's path has at most 107: use a shorter run directory", path, len(path))
	}
	return path, nil
}

// connect connects to the socket of a service, if a user who is trusted owns it.
func connect(ctx context.Context, dir, service string, o options) (*net.UnixConn, error) {
	path, err := socketPath(dir, service)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w %q in %s", ErrAbsent, service, dir)
		}
		return nil, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	if !o.trusts(stat.Uid, dir) {
		return nil, fmt.Errorf("%w: user %d owns %s", ErrUntrusted, stat.Uid, path)
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unixpacket", path)
		switch {
		case err == nil:
			return conn.(*net.UnixConn), nil
		case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED):
			return nil, fmt.Errorf("%w %q in %s", ErrAbsent, service, dir)
		case !errors.Is(err, syscall.EAGAIN):
			return nil, err
		}
		// As many connections wait as may.
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// trusts reports whether a client accepts a provider of this user.
func (o options) trusts(uid uint32, dir string) bool {
	own := uint32(os.Geteuid())
	return uid == own || uid == 0 || slices.Contains(o.trusted, uid) ||
		own == 0 && os.Getuid() == 0 && uid != overflow && isOwnersAlone(dir, uid)
}

// overflow stands for every user of another user namespace.
const overflow = 65534

// isOwnersAlone reports whether a user owns a directory, and nobody else but root can put another one in its place: then root trusts
// its owner.
func isOwnersAlone(dir string, uid uint32) bool {
	dir, err := filepath.Abs(dir)
	for owned := false; err == nil; owned, dir = true, filepath.Dir(dir) {
		var stat unix.Stat_t
		err = unix.Lstat(dir, &stat)
		if err != nil || stat.Uid != uid && (stat.Uid != 0 || !owned) || stat.Mode&(unix.S_IFMT|0o022) != unix.S_IFDIR {
			return false
		}
		if dir == "/" {
			return true
		}
	}
	return false
}

// ringsEventfds reports whether a peer of this user may be rung by an eventfd that it shares: it could make the ring block.
func ringsEventfds(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// openClient is the client's part of the handshake. It closes the connection if that fails.
func openClient(conn *net.UnixConn, dir, service string, o options) (*Session, error) {
	sock, err := newSocket(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s := &Session{
		end:     end{role: roleClient, service: service, sock: sock, peerBell: -1},
		pending: map[uint64]*Pending{}, serviceVersion: o.serviceVersion,
	}
	s.take = s.takeAnswer
	s.rx.waits = func(id uint64) bool { return s.pending[id] != nil }
	s.peerName = fmt.Sprintf("server (process %d of user %d)", sock.peer.Pid, sock.peer.Uid)
	if err = s.open(sock.peer.Uid, dir, o); err != nil {
		s.discard()
		sock.close()
		return nil, err
	}
	s.pidfd = ofAnswerer(s.pidfd)
	return s, nil
}

// ofAnswerer returns the pidfd unless its process has ended: then it is not the one that has answered, but its predecessor, since a
// service manager keeps the socket.
func ofAnswerer(pidfd *os.File) *os.File {
	if pidfd == nil {
		return nil
	}
	ended := true
	if raw, err := pidfd.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { ended = hasEnded(fd) })
	}
	if ended {
		pidfd.Close()
		return nil
	}
	return pidfd
}

// open sends HELLO, makes this end's own memory, maps that of the server, which runs as user uid, and waits for READY.
func (s *Session) open(uid uint32, dir string, o options) error {
	if !o.trusts(uid, dir) {
		return fmt.Errorf("%w: user %d listens", ErrUntrusted, uid)
	}
	if own := os.Geteuid(); own != 0 && uid != uint32(own) {
		o.doorbell = DoorbellSocket // the server would drop an eventfd
	}
	h := hello{
		min: protocol, max: protocol, serviceVersion: o.serviceVersion, service: s.service, token: o.token, lane: o.lane,
		doorbell: o.doorbell, ringsEventfd: ringsEventfds(uid), limits: o.limits, schema: o.schema,
	}
	if err := s.sock.send(h.encode(), true); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	// The server wakes up meanwhile and makes its own memory, which takes as long.
	s.pidfd = s.sock.process()
	own, err := s.prepare(h.doorbell, h.lane, uint64(os.Getpid()))
	if err != nil {
		return err
	}
	defer closeOwn(own[:2]...)
	b, fds, err := s.receiveOpening(controlWelcome)
	if err != nil {
		return err
	}
	defer func() { s.sock.reap(fds...) }()
	w, err := parseWelcome(b, len(fds))
	if err == nil {
		err = w.answers(h)
	}
	if err != nil {
		return s.violation(err)
	}
	s.maxBatch = int(w.maxBatch)
	s.startPage(w.session)
	err = s.join(h.limits, w.limits, w.lane, fds[0], fds[1])
	if err == nil {
		s.board, err = mapChecked(fds[2], pageSize, func(header []byte) error { return checkBoard(header, s.service) })
	}
	if err == nil && len(fds) == 4 {
		err = isEventfd(fds[3])
	}
	if err != nil {
		return s.violation(err)
	}
	if len(fds) == 4 {
		s.peerBell, fds = fds[3], fds[:3]
	}
	err = s.sock.send(numbered(controlAttach, len(own), w.session), true, own...)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	b, _, err = s.receiveOpening(controlReady)
	if err == nil && le.Uint64(b[8:]) != w.session {
		err = s.violation(controlFault("session"))
	}
	return err
}

// receiveOpening waits for one kind of message, or REFUSE.
func (s *Session) receiveOpening(kind controlKind) ([]byte, []int, error) {
	s.sock.spin()
	b, fds, err := s.sock.receive()
	if errors.Is(err, syscall.ECONNRESET) {
		// The server refused before it read HELLO.
		b, fds, err = s.sock.receive()
	}
	if err != nil {
		var wrong controlFault
		if errors.As(err, &wrong) {
			err = s.violation(err)
		} else if !os.IsTimeout(err) && !isShortage(err) {
			err = fmt.Errorf("%w while the session opened: %w", ErrPeerGone, err)
		}
		return nil, nil, err
	}
	got, err := parsePrefix(b, len(fds))
	if err == nil && got == controlRefuse {
		r, parseErr := parseRefuse(b)
		if parseErr == nil {
			return nil, nil, &Refused{Code: r.code, Reason: r.reason, Min: r.min, Max: r.max}
		}
		err = parseErr
	}
	if err == nil && got != kind {
		err = controlFault("kind")
	}
	if err != nil {
		s.sock.reap(fds...)
		return nil, nil, s.violation(err)
	}
	return b, fds, nil
}

// violation names what the peer did wrong, unless the fault is this process's own shortage.
func (e *end) violation(err error) error {
	if isShortage(err) {
		return err
	}
	return &Violation{Peer: e.peerName, Err: err}
}
