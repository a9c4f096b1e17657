//go:build linux

package bellwire

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// theirs is the server's end of the only session, once the server knows it.
func theirs(server *Server) *serverSession {
	for ; ; time.Sleep(time.Millisecond) {
		server.mu.Lock()
		for session := range server.sessions {
			server.mu.Unlock()
			return session
		}
		server.mu.Unlock()
	}
}

// puts publishes a record that no honest end would.
func (e *end) puts(h header, payload []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tx.put(h, payload)
	e.commit()
}

func TestPartsOfAnAbandonedAnswer(t *testing.T) {
	handler, begun, release := pausing()
	server, s := pair(t, handler)
	defer close(release)
	requests := []*Pending{submitted(t, s, []byte("wait")), submitted(t, s, []byte("behind it"))}
	<-begun
	peer := theirs(server)
	part := header{kind: kindResponse, flags: flagMore, id: requests[0].id}
	peer.puts(part, pattern(16))
	s.peerDied()
	if _, err := requests[0].Wait(t.Context()); !errors.Is(err, ErrPeerGone) {
		t.Error(err)
	}
	peer.puts(part, pattern(16))
	if _, err := requests[1].Wait(t.Context()); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
}

// openFDs is how many descriptors of this process are memory with this name.
func openFDs(t *testing.T, name string) (count int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	for _, entry := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && strings.Contains(link, name) {
			count++
		}
	}
	return count
}

func TestTheMemoryOfAnAnswerThatFailedIsClosed(t *testing.T) {
	handler, begun, release := pausing()
	server, s := pair(t, handler)
	defer close(release)
	p, err := s.submit(t.Context(), header{kind: kindRequest}, []byte("wait"), nil, true)
	check(t, err)
	<-begun
	peer := theirs(server)
	const name = "bellwire-with-an-error"
	fd, err := newConstant(name, pattern(16))
	check(t, err)
	check(t, peer.sock.send(passed{id: p.id, len: 16}.encode(), false, fd))
	closeOwn(fd)
	peer.puts(header{kind: kindAttach, status: uint16(StatusFailed), id: p.id}, nil)
	var failed *CallError
	if _, err := p.Wait(t.Context()); !errors.As(err, &failed) {
		t.Fatal(err)
	}
	for openFDs(t, name) > 0 {
		time.Sleep(time.Millisecond)
	}
}

func TestAPublisherClosesWhileItPublishes(t *testing.T) {
	for range 50 {
		p := publisher(t, t.TempDir())
		done := make(chan error)
		go func() {
			for {
				if _, err := p.Publish([]byte("tick")); err != nil {
					done <- err
					return
				}
			}
		}()
		runtime.Gosched()
		p.Close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	}
}

// fill leaves so many answers unread that the server waits for room: nobody waits for them. The lanes have 4096 bytes.
func fill(t *testing.T, s *Session, peer *serverSession) {
	t.Helper()
	until := func(counter int, least uint64) {
		for count := uint64(0); count < least; time.Sleep(time.Millisecond) {
			peer.mu.Lock()
			count = peer.counters[counter]
			peer.mu.Unlock()
		}
	}
	for i := range 300 {
		submitted(t, s, nil)
		if i == 200 {
			until(countRequests, 200)
		}
	}
	until(countLaneFull, 1)
}

func TestAPublisherDoesNotWaitForAReaderWithAFullLane(t *testing.T) {
	dir := t.TempDir()
	p := publisher(t, dir, StallTimeout(time.Hour), Lane(4096, 4096))
	s := dialed(t, dir, "clock", Lane(4096, 4096))
	// Nobody waits for the answers, so nobody reads them.
	submitted(t, s, make([]byte, 8))
	peer := theirs(p.server)
	fill(t, s, peer)
	if !peer.watches.Load() {
		t.Fatal("the server does not watch")
	}
	publish(t, p, []byte("tick"))
}

func TestAServerClosesBesideAClientThatReadsNothing(t *testing.T) {
	server, s := pair(t, echo, StallTimeout(time.Hour), Lane(4096, 4096))
	fill(t, s, theirs(server))
	server.Close()
}

func TestARequestThatWasTakenCannotBeCancelledOrTakenAgain(t *testing.T) {
	_, s := pair(t, echo)
	first := submitted(t, s, []byte("first"))
	if _, err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := submitted(t, s, []byte("second"))
	first.Cancel()
	if _, err := first.Wait(t.Context()); err == nil {
		t.Error("it was taken twice")
	}
	if answer, err := second.Wait(t.Context()); err != nil || string(answer) != "second" {
		t.Error(string(answer), err)
	}
	third := submitted(t, s, []byte("third"))
	third.Cancel()
	if _, err := third.Wait(t.Context()); !errors.Is(err, ErrCancelled) {
		t.Error(err)
	}
}

func TestARequestOfAContextThatHasEndedIsNotSent(t *testing.T) {
	var ran atomic.Bool
	_, s := pair(t, func(_ context.Context, request, answer []byte) ([]byte, error) {
		if string(request) == "too late" {
			ran.Store(true)
		}
		return append(answer, request...), nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Call(ctx, []byte("too late")); !errors.Is(err, context.Canceled) || ExecutedOf(err) != ExecutedNo {
		t.Error(err, ExecutedOf(err))
	}
	if err := s.Post(ctx, []byte("too late")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	call(t, s, []byte("and on"))
	if ran.Load() {
		t.Error("a handler ran")
	}
}

func TestASessionKeepsLittleAfterLongMessages(t *testing.T) {
	server, s := pair(t, echo)
	call(t, s, pattern(8<<20))
	waiting := make([]*Pending, 200)
	for i := range waiting {
		waiting[i] = submitted(t, s, pattern(1<<16-1000))
	}
	for _, p := range waiting {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	peer := theirs(server)
	peer.mu.Lock()
	defer peer.mu.Unlock()
	kept := cap(peer.kept)
	for _, buffer := range peer.buffers {
		kept += cap(buffer)
	}
	if kept > 2<<20 {
		t.Errorf("%d bytes", kept)
	}
}

func TestRequestsWaitInTheLaneWhileThoseThatWereTakenAreLong(t *testing.T) {
	const length = 4 << 20
	begun, release := make(chan struct{}), make(chan struct{})
	var server *Server
	var most atomic.Int64
	server, s := pair(t, func(_ context.Context, request, answer []byte) ([]byte, error) {
		if string(request) == "wait" {
			begun <- struct{}{}
			<-release
			return answer, nil
		}
		peer := theirs(server)
		peer.mu.Lock()
		defer peer.mu.Unlock()
		held := int64(0)
		for _, j := range peer.inbox {
			held += int64(len(j.request))
		}
		most.Store(max(most.Load(), held))
		return answer, nil
	}, MaxMessage(length))
	submitted(t, s, []byte("wait"))
	<-begun
	var last *Pending
	for range 20 {
		last = submitted(t, s, make([]byte, length))
	}
	close(release)
	if _, err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most := most.Load(); most > 2*length {
		t.Errorf("%d bytes were taken ahead", most)
	}
}

func TestTheAnswersOfABatchStayBelowTheLimit(t *testing.T) {
	_, s := pair(t, func(_ context.Context, _, answer []byte) ([]byte, error) {
		return append(answer, make([]byte, 600)...), nil
	}, MaxMessage(4096))
	requests := make([][]byte, 100)
	for i := range requests {
		requests[i] = []byte{1}
	}
	items, err := s.Batch(t.Context(), requests)
	check(t, err)
	whole := 0
	for _, item := range items {
		if item.Status == StatusOK && len(item.Bytes) == 600 {
			whole++
		} else if item.Status != StatusTooLarge {
			t.Fatal(item)
		}
	}
	if whole != 5 {
		t.Errorf("%d answers", whole)
	}
}

var ownUser = uint32(os.Geteuid())

// otherUser is none of this machine's.
const otherUser = 4711

// lingering is a socket whose close blocks: its peer takes nothing of what it has to send.
func lingering(t *testing.T, listener net.Listener) int {
	t.Helper()
	conn, err := net.Dial("tcp", listener.Addr().String())
	check(t, err)
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetWriteBuffer(1 << 16)
	file, err := conn.(*net.TCPConn).File()
	check(t, err)
	defer file.Close()
	fd := int(file.Fd())
	check(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}))
	for err == nil {
		err = unix.Sendto(fd, make([]byte, 1<<16), unix.MSG_DONTWAIT, nil)
	}
	copied := duplicate(fd)
	if copied < 0 || !errors.Is(err, unix.EAGAIN) {
		t.Fatal(copied, err)
	}
	return copied
}

// lingers listens for sockets whose close blocks, until the test ends.
func lingers(t *testing.T) net.Listener {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
	}}
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() {
		listener.Close() // with which the closes end
		for _, user := range []uint32{ownUser, otherUser} {
			for running, _ := closes(user); running > 0; running, _ = closes(user) {
				time.Sleep(time.Millisecond)
			}
		}
	})
	return listener
}

// closes is how many closes of what a user sent run now, and how many wait.
func closes(user uint32) (running, waiting int) {
	reapersMu.Lock()
	defer reapersMu.Unlock()
	if r := reapers[user]; r != nil {
		return r.running, len(r.waiting)
	}
	return 0, 0
}

// takeFewThreads waits until closes block, and checks how many threads they have.
func takeFewThreads(t *testing.T) {
	t.Helper()
	for running, _ := closes(ownUser); running < maxCloses; running, _ = closes(ownUser) {
		time.Sleep(time.Millisecond)
	}
	status, err := os.ReadFile("/proc/self/status")
	check(t, err)
	_, threads, _ := strings.Cut(string(status), "Threads:\t")
	threads, _, _ = strings.Cut(threads, "\n")
	if count, err := strconv.Atoi(threads); err != nil || count > 8*maxCloses {
		t.Error(threads, err)
	}
}

func TestDescriptorsThatBlockInCloseTakeFewThreads(t *testing.T) {
	listener := lingers(t)
	for range 12 * maxCloses {
		reap(ownUser, lingering(t, listener))
	}
	takeFewThreads(t)
}

func TestDescriptorsThatBlockInCloseHoldUpNoOtherUsers(t *testing.T) {
	listener := lingers(t)
	for range 12 * maxCloses {
		reap(ownUser, lingering(t, listener))
	}
	takeFewThreads(t)
	var pipe [2]int
	check(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	reap(otherUser, pipe[1])
	// It ends when the other end is closed.
	_, err := unix.Read(pipe[0], make([]byte, 1))
	check(t, err)
}

func TestClosesThatCannotBlockWaitForNoOther(t *testing.T) {
	dir := t.TempDir()
	listening(t, dir, echo, MaxSessionsPerUser(1))
	s := dialed(t, dir, "echo")
	call(t, s, []byte("the server has closed what opened the session"))
	listener := lingers(t)
	for range maxCloses {
		reap(ownUser, lingering(t, listener))
	}
	for running, waiting := closes(ownUser); running < maxCloses || waiting > 0; running, waiting = closes(ownUser) {
		time.Sleep(time.Millisecond)
	}
	for length := 1 << 16; length <= 8<<20; length *= 2 {
		call(t, s, pattern(length))
		if _, err := Dial(t.Context(), dir, "echo"); !isRefusal(err, RefusedQuota) {
			t.Fatal(err)
		}
	}
	if _, waiting := closes(ownUser); waiting > 0 {
		t.Errorf("%d closes wait", waiting)
	}
}

func TestAClientThatIsNotAdmittedPassesNoDescriptor(t *testing.T) {
	dir := t.TempDir()
	listening(t, dir, echo)
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(dir, "echo.sock"), Net: "unixpacket"})
	check(t, err)
	defer conn.Close()
	sock, err := newSocket(conn)
	check(t, err)
	check(t, sock.raw.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, soPassRights, 1); err != nil {
			t.Skip("this kernel has no SO_PASSRIGHTS, Linux 6.16 has it: ", err)
		}
		err = sock.send([]byte("?"), false, int(fd))
	}))
	if err != unix.EPERM {
		t.Error(err)
	}
}

func TestSocketsOfRefusedClientsTakeFewThreads(t *testing.T) {
	leaveBlocking(t, listening(t, t.TempDir(), echo), 12*maxCloses)
	takeFewThreads(t)
}

// leaveBlocking has so many clients refused, each of which leaves a descriptor on its socket whose close blocks, until the
// listener closes.
func leaveBlocking(t *testing.T, server *Server, count int) net.Listener {
	t.Helper()
	ends, clients := make([]*socket, count), make([]int, count)
	for i := range ends {
		ends[i], clients[i] = socketPair(t)
	}
	listener := lingers(t)
	for i, client := range clients {
		fd := lingering(t, listener)
		// The first message is refused, and nobody reads the others. An empty one is not the end.
		for _, message := range []string{"?", "?", ""} {
			check(t, unix.Sendmsg(client, []byte(message), nil, nil, 0))
		}
		check(t, unix.Sendmsg(client, []byte("?"), unix.UnixRights(fd), nil, 0))
		unix.Close(fd)
		server.serve(ends[i].conn)
	}
	return listener
}

func TestAUserWhoseDescriptorsBlockInCloseIsRefusedUntilTheyAreClosed(t *testing.T) {
	dir := t.TempDir()
	server := listening(t, dir, echo)
	s := dialed(t, dir, "echo")
	listener := leaveBlocking(t, server, maxCloses)
	var err error
	for err == nil {
		var admitted *Session
		if admitted, err = Dial(t.Context(), dir, "echo"); err == nil {
			admitted.Close()
		}
	}
	if !isRefusal(err, RefusedQuota) || !strings.Contains(err.Error(), "cannot be closed") {
		t.Fatal(err)
	}
	call(t, s, []byte("who is in stays"))
	server.stats.mu.Lock()
	if counts := server.stats.incidents[ownUser]; counts[incidentRefused] == 0 {
		t.Error("incidents: ", *counts)
	}
	server.stats.mu.Unlock()
	listener.Close()
	check(t, finds(t.Context(), dir, "echo"))
}

func TestClosesThatHaveJustBegunDoNotBlock(t *testing.T) {
	reapersMu.Lock()
	reapers[otherUser] = &reaper{running: maxCloses, progressed: time.Now().Add(time.Hour)}
	reapersMu.Unlock()
	if hasBlockedClose(otherUser) {
		t.Error("a user is refused")
	}
	reapersMu.Lock()
	delete(reapers, otherUser)
	reapersMu.Unlock()
}

func TestASocketWhosePeerHasGoneBecomesEmpty(t *testing.T) {
	sock, client := socketPair(t)
	check(t, sock.send([]byte("nobody reads this"), true))
	check(t, unix.Sendmsg(client, []byte("nor this"), nil, nil, 0))
	check(t, unix.Dup3(0, client, unix.O_CLOEXEC)) // which closes it
	check(t, sock.conn.CloseRead())
	isEmpty := false
	check(t, sock.raw.Control(func(fd uintptr) { isEmpty = becomesEmpty(int(fd)) }))
	if !isEmpty {
		t.Error("its close waits for those that block")
	}
}

func TestAHandlerThatEndsItsGoroutine(t *testing.T) {
	for _, concurrency := range []int{1, 2} {
		server, s := pair(t, func(_ context.Context, request, answer []byte) ([]byte, error) {
			if string(request) == "exit" {
				runtime.Goexit()
			}
			return append(answer, request...), nil
		}, Concurrency(concurrency))
		_, err := s.Call(t.Context(), []byte("exit"))
		var failed *CallError
		if concurrency == 1 && !errors.Is(err, ErrPeerGone) {
			t.Error(err)
		}
		if concurrency == 2 && (!errors.As(err, &failed) || failed.Status != StatusPanicked) {
			t.Error(err)
		}
		server.Close()
	}
}
