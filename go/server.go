//go:build linux

package bellwire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Handler answers requests: it appends the answer to answer, and returns that. request and answer are its own until it
// returns. An error that it returns is the answer's reason, as StatusFailed; a CallError gives another status. A panic
// ends the request as StatusPanicked, and nothing else. In a batch it runs for every item; an answer that no longer fits the
// message becomes StatusTooLarge of that item, without bytes.
//
// The context ends when the client leaves, when it cancels the request, where the server has Concurrency, or when the server
// closes; CallerOf returns the client from it.
type Handler func(ctx context.Context, request, answer []byte) ([]byte, error)

// Server serves one service in one run directory.
type Server struct {
	service string
	dir     string
	handler Handler
	source  *source // of a publisher
	o       options
	ctx     context.Context
	cancel  context.CancelFunc

	mu       sync.Mutex
	listener *net.UnixListener
	lock     *os.File
	sessions map[*serverSession]struct{}
	held     map[uint32]int // sessions of each user, also those that open
	opening  int
	closing  bool
	done     sync.WaitGroup

	board         words
	boardFD       int
	stats         serverStats
	observerStats serverStats // of the sessions that ask for counters
}

var lastSession atomic.Uint64

// Listen serves a service until Close. It fails with ErrInUse while another process serves it.
func Listen(dir, service string, handler Handler, list ...Option) (*Server, error) {
	if handler == nil {
		return nil, errors.New("bellwire: a server without a handler")
	}
	return listen(dir, service, handler, nil, list)
}

func listen(dir, service string, handler Handler, from *source, list []Option) (*Server, error) {
	o, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	socket, err := socketPath(dir, service)
	if err != nil {
		return nil, err
	}
	s := &Server{
		service: service, dir: dir, handler: handler, source: from, o: o, sessions: map[*serverSession]struct{}{},
		held: map[uint32]int{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stats.started = uint64(time.Now().UnixNano())
	if s.boardFD, s.board, err = newSharedBoard(service, s.stats.started); err != nil {
		return nil, err
	}
	if err := s.claim(socket); err != nil {
		s.dropBoard()
		return nil, err
	}
	s.done.Add(1)
	go s.accept()
	return s, nil
}

func newSharedBoard(service string, created uint64) (int, words, error) {
	fd, board, err := newShared("bellwire-board-"+service, pageSize)
	if err == nil {
		writeBoard(board, uint32(os.Getpid()), created, service)
	}
	return fd, board, err
}

func (s *Server) dropBoard() {
	unmap(s.board)
	closeOwn(s.boardFD)
}

// claim takes the service's lock, and listens at its socket.
func (s *Server) claim(socket string) (err error) {
	if err := checkRunDir(s.dir); err != nil {
		return err
	}
	path := filepath.Join(s.dir, s.service+".lock")
	s.lock, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		s.lock.Close()
		return fmt.Errorf("%w: %s is locked", ErrInUse, path)
	}
	var named, held unix.Stat_t
	if unix.Lstat(path, &named) != nil || unix.Fstat(int(s.lock.Fd()), &held) != nil || named.Ino != held.Ino {
		s.lock.Close()
		return fmt.Errorf("%w: %s was replaced", ErrInUse, path)
	}
	if s.listener, err = bind(socket, s.o); err != nil {
		s.lock.Close()
	}
	return err
}

func bind(path string, o options) (*net.UnixListener, error) {
	var stat unix.Stat_t
	if unix.Lstat(path, &stat) == nil {
		if stat.Mode&unix.S_IFMT != unix.S_IFSOCK || stat.Uid != uint32(os.Geteuid()) {
			return nil, fmt.Errorf("bellwire: %s is in the way: remove it", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) {
			// Those of a client that is not admitted would only have to be closed.
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, soPassRights, 0)
			// Before bind, so that the socket has this mode from its first moment.
			err = unix.Fchmod(int(fd), 0o600)
		})
		return errors.Join(err, controlErr)
	}}
	listener, err := config.Listen(context.Background(), "unixpacket", path)
	if err != nil {
		return nil, err
	}
	if len(o.admitted) > 0 {
		err = os.Chmod(path, 0o666)
	}
	// For the clients that wait: listen changes no file, and this does.
	now := time.Now()
	if err = errors.Join(err, os.Chtimes(path, now, now)); err != nil {
		listener.Close()
		return nil, err
	}
	return listener.(*net.UnixListener), nil
}

// checkRunDir makes the run directory, or refuses one that others may write to.
func checkRunDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	own := uint32(os.Geteuid())
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("bellwire: %s is no directory", dir)
	case stat.Uid != own && stat.Uid != 0:
		return fmt.Errorf("bellwire: %s belongs to user %d", dir, stat.Uid)
	case stat.Mode&0o022 != 0 && stat.Mode&unix.S_ISVTX == 0:
		return fmt.Errorf("bellwire: others may write to %s: chmod go-w it", dir)
	}
	return nil
}

func (s *Server) accept() {
	defer s.done.Done()
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// The connection waits.
			s.stats.lacked(err)
			select {
			case <-time.After(retryAfter):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		s.mu.Lock()
		if s.closing {
			s.mu.Unlock()
			reapConn(unadmittedUsers, conn)
			return
		}
		s.opening++
		s.done.Add(1)
		s.mu.Unlock()
		go func() {
			defer s.done.Done()
			s.serve(conn)
		}()
	}
}

// serve opens one session and serves it until it ends.
func (s *Server) serve(conn *net.UnixConn) {
	session, err := s.newSession(conn)
	if err == nil {
		err = session.open()
	}
	isOpen := err == nil
	s.mu.Lock()
	// Before the client knows: it may come again at once.
	s.opening--
	if isOpen && s.closing {
		err = &Refused{Code: RefusedStopping, Reason: "the provider stops"}
	}
	if err == nil {
		s.sessions[session] = struct{}{}
	} else if session != nil {
		s.releaseUser(session)
	}
	s.mu.Unlock()
	if err != nil {
		s.reject(session, isOpen, err)
		if session == nil {
			reapConn(unadmittedUsers, conn)
		} else {
			session.sock.close()
		}
		return
	}
	stats := session.stats()
	stats.admitted.Add(1)
	stats.opened(session.rungBy, 1)
	defer func() {
		s.mu.Lock()
		delete(s.sessions, session)
		s.releaseUser(session)
		s.mu.Unlock()
		stats.opened(session.rungBy, ^uint64(0))
	}()
	err = session.run()
	var wrong *Violation
	if errors.As(err, &wrong) {
		stats.poisoned.Add(1)
		stats.incident(session.uid, incidentPoisoned)
		s.o.log.Warn("a client violated the protocol", "service", s.service, "error", err)
	}
}

// releaseUser ends what a session counts for its user. mu is held.
func (s *Server) releaseUser(session *serverSession) {
	if !session.held {
		return
	}
	session.held = false
	if s.held[session.uid]--; s.held[session.uid] == 0 {
		delete(s.held, session.uid)
	}
}

// reject tells a client why it gets no session, or ends the one that it has. There is none of a client whose user is unknown.
func (s *Server) reject(session *serverSession, isOpen bool, err error) {
	s.stats.handshakesFailed.Add(1)
	s.stats.lacked(err)
	s.o.log.Warn("a client was refused", "service", s.service, "error", err)
	if session == nil {
		return
	}
	var refused *Refused
	if errors.As(err, &refused) {
		s.stats.refusedClients.Add(1)
		s.stats.incident(session.uid, incidentRefused)
	}
	session.cancel()
	if isOpen {
		session.mu.Lock()
		defer session.mu.Unlock()
		session.shut(closeStopping)
		return
	}
	_ = session.sock.send(refusalFor(err).encode(), false)
	session.discard()
}

// Close stops serving: requests that were taken are answered, and the others are not run. It
// waits for handlers, and is not for them to call.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		s.done.Wait()
		return nil
	}
	s.closing = true
	sessions := make([]*serverSession, 0, len(s.sessions))
	for session := range s.sessions {
		sessions = append(sessions, session)
	}
	s.mu.Unlock()
	// Watchers of the board wake.
	s.board.store(wordServing, 2)
	s.board.store(wordGeneration, s.board.load(wordGeneration)+1)
	futexWake(s.board.at(wordGeneration), 1<<30)
	err := s.listener.Close()
	for _, session := range sessions {
		session.stop()
	}
	s.cancel()
	s.done.Wait()
	s.lock.Close()
	s.dropBoard()
	return err
}

// Caller identifies a client by its credentials, as the kernel reports them.
type Caller struct{ UID, GID, PID uint32 }

type callerKey struct{}

// CallerOf returns the client of a request from the context of its handler.
func CallerOf(ctx context.Context) (Caller, bool) {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	return caller, ok
}

// admits decides by the user alone, before anything is read.
func (s *Server) admits(session *serverSession) *Refused {
	own, uid := uint32(os.Geteuid()), session.uid
	if uid == overflow && own == overflow || uid != own && uid != 0 && !slices.Contains(s.o.admitted, uid) {
		return &Refused{Code: RefusedCredentials, Reason: fmt.Sprintf("the provider does not admit user %d", uid)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return &Refused{Code: RefusedStopping, Reason: "the provider stops"}
	case hasBlockedClose(uid):
		return &Refused{Code: RefusedQuota, Reason: fmt.Sprintf(
			"what clients of uid %d sent earlier cannot be closed: end the programs whose files do not answer", uid)}
	case len(s.sessions)+s.opening > s.o.maxSessions:
		return &Refused{Code: RefusedQuota, Reason: fmt.Sprintf("the provider has %d sessions already", s.o.maxSessions)}
	case s.held[uid] >= s.o.perUser:
		return &Refused{Code: RefusedQuota, Reason: fmt.Sprintf("user %d has %d sessions already", uid, s.o.perUser)}
	}
	s.held[uid]++
	session.held = true
	return nil
}
