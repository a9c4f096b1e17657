//go:build linux

package bellwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func echo(_ context.Context, request, answer []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(request, []byte("fail")):
		return answer, errors.New("no such thing")
	case bytes.HasPrefix(request, []byte("code")):
		return answer, &CallError{Status: StatusFailed, Reason: "\x00no such thing", Code: 1 << 31}
	case bytes.HasPrefix(request, []byte("panic")):
		panic("as asked")
	case bytes.HasPrefix(request, []byte("busy")):
		return answer, &CallError{Status: StatusBusy}
	}
	return append(answer, request...), nil
}

// pair is a server and a session with it.
func pair(t testing.TB, handler Handler, list ...Option) (*Server, *Session) {
	t.Helper()
	dir := t.TempDir()
	server, err := Listen(dir, "echo", handler, list...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Dial(t.Context(), dir, "echo", list...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		server.Close()
	})
	return server, s
}

func submitted(t testing.TB, s *Session, request string) *Pending {
	t.Helper()
	p, err := s.Submit(t.Context(), []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func call(t testing.TB, s *Session, request []byte) {
	t.Helper()
	answer, err := s.Call(t.Context(), request)
	if err != nil || !bytes.Equal(answer, request) {
		t.Fatalf("%d bytes: %d bytes, %v", len(request), len(answer), err)
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func TestCallsOfEachLength(t *testing.T) {
	for _, doorbell := range []Doorbell{DoorbellEventfd, DoorbellSocket} {
		_, s := pair(t, echo, RungBy(doorbell))
		for _, n := range []int{0, 1, 15, 16, 17, 2000, 8144, 8145, 100_000, 1 << 20, 5 << 20, 64 << 20} {
			call(t, s, pattern(n))
		}
		if err := s.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		call(t, s, pattern(3))
	}
}

func TestALaneThatMayNotGrowCarriesMessagesInParts(t *testing.T) {
	_, s := pair(t, echo, Lane(4096, 4096))
	for _, n := range []int{2000, 2001, 50_000, 3 << 20} {
		call(t, s, pattern(n))
	}
}

func TestAnswersThatAreErrors(t *testing.T) {
	_, s := pair(t, echo, MaxMessage(1000))
	_, err := s.Call(t.Context(), []byte("fail"))
	var failed *CallError
	if !errors.As(err, &failed) || failed.Reason != "no such thing" || failed.Code != 0 || ExecutedOf(err) != ExecutedYes {
		t.Fatal(err)
	}
	_, err = s.Call(t.Context(), []byte("code"))
	if !errors.As(err, &failed) || failed.Reason != "no such thing" || failed.Code != 1<<31 {
		t.Fatal(err)
	}
	if text := err.Error(); !strings.Contains(text, "code 2147483648: no such thing") {
		t.Fatal(text)
	}
	_, err = s.Call(t.Context(), []byte("panic"))
	if !errors.As(err, &failed) || failed.Status != StatusPanicked {
		t.Fatal(err)
	}
	_, err = s.Call(t.Context(), []byte("busy"))
	if !errors.Is(err, ErrBusy) || ExecutedOf(err) != ExecutedNo {
		t.Fatal(err)
	}
	if _, err = s.Call(t.Context(), pattern(1001)); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	call(t, s, []byte("and on"))
}

func TestManyCallersShareASession(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		_, s := pair(t, echo, Concurrency(concurrency))
		var group sync.WaitGroup
		for caller := range 16 {
			group.Add(1)
			go func() {
				defer group.Done()
				for i := range 300 {
					request := fmt.Appendf(nil, "%d of %d %s", i, caller, pattern(i*i%9000))
					answer, err := s.Call(t.Context(), request)
					if err != nil || !bytes.Equal(answer, request) {
						t.Errorf("caller %d, %d: %v", caller, i, err)
						return
					}
				}
			}()
		}
		group.Wait()
	}
}

func TestAPipelineOf20000(t *testing.T) {
	_, s := pair(t, echo)
	waiting := make([]*Pending, 20_000)
	for i := range waiting {
		p, err := s.Submit(t.Context(), fmt.Append(nil, i))
		if err != nil {
			t.Fatal(i, err)
		}
		waiting[i] = p
	}
	for i, p := range waiting {
		answer, err := p.Wait(t.Context())
		if err != nil || string(answer) != fmt.Sprint(i) {
			t.Fatalf("%d: %q, %v", i, answer, err)
		}
	}
}

func TestABatchHasAnAnswerForEachItem(t *testing.T) {
	_, s := pair(t, echo)
	items, err := s.Batch(t.Context(), [][]byte{[]byte("a"), []byte("code"), {}, pattern(5000)})
	if err != nil || len(items) != 4 {
		t.Fatal(items, err)
	}
	if string(items[0].Bytes) != "a" || items[1].Status != StatusFailed || len(items[2].Bytes) != 0 || len(items[3].Bytes) != 5000 {
		t.Fatal(items)
	}
	var failed *CallError
	if errors.As(items[0].Err(), &failed) || !errors.As(items[1].Err(), &failed) || failed.Code != 1<<31 {
		t.Fatal(items[1].Err())
	}
}

func TestPostsAreTakenAfterFlush(t *testing.T) {
	var mu sync.Mutex
	sum := 0
	_, s := pair(t, func(_ context.Context, request, answer []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		sum += len(request)
		return answer, nil
	})
	for range 5000 {
		if err := s.Post(t.Context(), []byte("ab")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Call(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if sum != 10_000 {
		t.Fatal(sum)
	}
}

func TestAContextEndsEachWait(t *testing.T) {
	release := make(chan struct{})
	_, s := pair(t, func(ctx context.Context, _, answer []byte) ([]byte, error) {
		<-release
		return answer, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := s.Call(ctx, nil)
	if !errors.Is(err, context.DeadlineExceeded) || ExecutedOf(err) != ExecutedMaybe {
		t.Fatal(err)
	}
	// The server takes nothing now: the lane gets full.
	for err = nil; err == nil; {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err = s.Post(ctx, pattern(1<<20))
		cancel()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	close(release)
	if _, err := s.Call(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func TestACancelEndsTheHandlersContext(t *testing.T) {
	running, ended := make(chan struct{}), make(chan struct{})
	_, s := pair(t, func(ctx context.Context, _, answer []byte) ([]byte, error) {
		close(running)
		<-ctx.Done()
		close(ended)
		return answer, ctx.Err()
	}, Concurrency(2))
	p, err := s.Submit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-running
	p.Cancel()
	<-ended
}

func TestAServerThatClosesAnswersWhatItTook(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	server, s := pair(t, func(ctx context.Context, request, answer []byte) ([]byte, error) {
		if len(request) > 0 {
			close(running)
			<-release
		}
		return append(answer, request...), nil
	})
	done := make(chan error, 1)
	go func() {
		_, err := s.Call(t.Context(), []byte("a"))
		done <- err
	}()
	<-running
	closed := make(chan error, 1)
	go func() { closed <- server.Close() }()
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	_, err := s.Call(t.Context(), nil)
	if !errors.Is(err, ErrPeerGone) || ExecutedOf(err) != ExecutedNo {
		t.Fatal(err)
	}
}

func TestOneProcessServesAName(t *testing.T) {
	dir := t.TempDir()
	if _, err := Dial(t.Context(), dir, "echo"); !errors.Is(err, ErrAbsent) {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := Await(t.Context(), dir, "echo")
		if err == nil {
			_, err = s.Call(t.Context(), nil)
		}
		opened <- err
	}()
	server, err := Listen(dir, "echo", echo)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(dir, "echo", echo); !errors.Is(err, ErrInUse) {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	server.Close()
	server, err = Listen(dir, "echo", echo)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
}

func TestASessionIsRefusedWithTheReason(t *testing.T) {
	dir := t.TempDir()
	server, err := Listen(dir, "echo", echo, Token([16]byte{1}), Schema("u64 -> u64"), MaxSessions(1))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	// Also at once: one that was refused holds no place.
	for code, list := range map[RefuseCode][]Option{
		RefusedToken:   {Token([16]byte{2})},
		RefusedService: {Token([16]byte{1}), Method(9)},
		RefusedSchema:  {Token([16]byte{1}), Schema("u64 -> u32")},
	} {
		_, err := Dial(t.Context(), dir, "echo", list...)
		var refused *Refused
		if !errors.As(err, &refused) || refused.Code != code {
			t.Fatal(code, err)
		}
	}
	s, err := Dial(t.Context(), dir, "echo", Token([16]byte{1}), Schema("u64 -> u64"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = Dial(t.Context(), dir, "echo", Token([16]byte{1}))
	var refused *Refused
	if !errors.As(err, &refused) || refused.Code != RefusedQuota {
		t.Fatal(err)
	}
}

func BenchmarkCallInOneProcess(b *testing.B) {
	_, s := pair(b, echo)
	request, answer := pattern(64), []byte(nil)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if answer, err = s.AppendCall(b.Context(), answer[:0], request); err != nil {
			b.Fatal(err)
		}
	}
}

// Handlers that wait for room at once, of which some have been passed over and others not.
func TestManyHandlersWaitForRoom(t *testing.T) {
	_, s := pair(t, echo, Concurrency(8), Lane(4096, 4096))
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 4 {
				waiting := make([]*Pending, 200)
				for i := range waiting {
					p, err := s.Submit(t.Context(), pattern(i))
					if err != nil {
						t.Error(err)
						return
					}
					waiting[i] = p
				}
				for i, p := range waiting {
					if answer, err := p.Wait(t.Context()); err != nil || !bytes.Equal(answer, pattern(i)) {
						t.Error(i, err)
						return
					}
				}
			}
		}()
	}
	group.Wait()
}

// admitted is a session that opens once another one of this user has ended.
func admitted(t *testing.T, dir, service string, list ...Option) *Session {
	t.Helper()
	for {
		s, err := Dial(t.Context(), dir, service, list...)
		var refused *Refused
		if errors.As(err, &refused) && refused.Code == RefusedQuota {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// counters asks a server for its counters, as `bellwire stat` does, and returns the row of its service and the answer.
func counters(t *testing.T, dir, service string, list ...Option) ([statsCounters]uint64, []byte) {
	t.Helper()
	s := admitted(t, dir, service, append(list, Method(statsMethod))...)
	defer s.Close()
	b, err := s.Call(t.Context(), le.AppendUint32(nil, 2))
	if err != nil {
		t.Fatal(err)
	}
	const total = 0x30
	at := total + 8*statsCounters + 64
	var row [statsCounters]uint64
	for i := range row {
		row[i] = le.Uint64(b[at+8*i:])
	}
	return row, b
}

func TestTheCountersOfAServerAddUp(t *testing.T) {
	dir := t.TempDir()
	begun, release := make(chan struct{}), make(chan struct{})
	server, err := Listen(dir, "echo", func(ctx context.Context, request, answer []byte) ([]byte, error) {
		if string(request) == "wait" {
			begun <- struct{}{}
			<-release
		}
		return echo(ctx, request, answer)
	}, MaxSessionsPerUser(2))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s, err := Dial(t.Context(), dir, "echo", RungBy(DoorbellSocket))
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		call(t, s, pattern(100))
	}
	call(t, s, pattern(5<<20))
	_, _ = s.Call(t.Context(), []byte("fail"))
	if err := s.Post(t.Context(), []byte("fail")); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	row, _ := counters(t, dir, "echo")
	for name, is := range map[string][2]uint64{
		"sessions": {row[0], 1}, "socket_rung": {row[1], 0}, "accepted": {row[4], 203}, "answered": {row[5], 202}, "errors": {row[8], 1},
		"attaches_received": {row[16], 1}, "attaches_sent": {row[17], 1}, "clients_by_socket": {row[26], 1}, "posted": {row[33], 1},
		"post_errors": {row[34], 1},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: %d in place of %d", name, is[0], is[1])
		}
	}
	// Of 200 requests and as many answers of 116 bytes.
	if row[14] < 200*112 || row[15] < 200*112 || row[22] < 112 || row[23] < 112 {
		t.Error("bytes: ", row)
	}
	// One handler runs, and a request behind it is lost with its client.
	for _, request := range []string{"wait", "lost"} {
		if _, err := s.Submit(t.Context(), []byte(request)); err != nil {
			t.Fatal(err)
		}
	}
	<-begun
	s.Close()
	close(release)
	for row[0] != 0 {
		row, _ = counters(t, dir, "echo")
	}
	if row[26] != 0 || row[4] != row[5]+row[6]+row[7]+row[33] {
		t.Error("after the session: ", row)
	}
	// The quota of a user, told by incident.
	var open []*Session
	for range 2 {
		open = append(open, admitted(t, dir, "echo"))
	}
	_, err = Dial(t.Context(), dir, "echo")
	var refused *Refused
	if !errors.As(err, &refused) || refused.Code != RefusedQuota {
		t.Fatal(err)
	}
	open[0].Close()
	var b []byte
	if row, b = counters(t, dir, "echo"); row[31] == 0 {
		t.Error("over_quota: ", row)
	}
	users := b[0x30+3*8*statsCounters+2*64:]
	name := fmt.Sprint("uid ", os.Geteuid())
	if le.Uint32(users) != 1 || string(users[12:12+len(name)]) != name || le.Uint64(users[12+len(name)+8*incidentOverQuota:]) == 0 {
		t.Errorf("incidents: %x", users)
	}
}

func TestARequestThatIsCancelledBeforeItsTurnDoesNotRun(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	var ran atomic.Uint64
	_, s := pair(t, func(_ context.Context, request, answer []byte) ([]byte, error) {
		ran.Add(1)
		if string(request) == "wait" {
			begun <- struct{}{}
			<-release
		}
		return append(answer, request...), nil
	})
	first, err := s.Submit(t.Context(), []byte("wait"))
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	second, err := s.Submit(t.Context(), []byte("cancelled"))
	if err != nil {
		t.Fatal(err)
	}
	second.Cancel()
	close(release)
	if _, err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	call(t, s, []byte("and on"))
	if ran.Load() != 2 {
		t.Error(ran.Load(), "handlers ran")
	}
}

func TestWhoIsAdmittedAndTrusted(t *testing.T) {
	dir := t.TempDir()
	server, err := Listen(dir, "echo", echo, Admit(stranger+1))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for uid, admitted := range map[uint32]bool{uint32(os.Geteuid()): true, 0: true, stranger + 1: true, stranger: false} {
		refused := server.admits(&candidate{cred: &unix.Ucred{Uid: uid}})
		if (refused == nil) != admitted || refused != nil && refused.Code != RefusedCredentials {
			t.Errorf("user %d: %v", uid, refused)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("not run: whose socket is trusted, which only root can try")
		return
	}
	if err := os.Lchown(dir+"/echo.sock", stranger, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), dir, "echo"); !errors.Is(err, ErrUntrusted) {
		t.Error(err)
	}
	s, err := Dial(t.Context(), dir, "echo", Trust(stranger))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestARunDirThatOthersMayWriteToIsRefused(t *testing.T) {
	dir := t.TempDir()
	for mode, refused := range map[os.FileMode]bool{0o755: false, 0o775: true, 0o757: true, 0o777 | os.ModeSticky: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		server, err := Listen(dir, "echo", echo)
		if (err != nil) != refused {
			t.Errorf("%v: %v", mode, err)
		}
		if err == nil {
			server.Close()
		}
	}
}

func TestMemoryOfAPeerIsChecked(t *testing.T) {
	make := func(size, allocated int64, seals int) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err == nil {
			err = unix.Ftruncate(fd, size)
		}
		if err == nil && allocated > 0 {
			err = unix.Fallocate(fd, 0, 0, allocated)
		}
		if err == nil && seals > 0 {
			err = addSeals(fd, seals)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size = 2 * pageSize
	for what, c := range map[string]struct {
		fd              int
		constant, taken bool
	}{
		"a lane":                    {make(size, size, sealsOfOwner), false, true},
		"an attachment":             {make(size, size, sealsConstant), true, true},
		"no seals":                  {make(size, size, 0), false, false},
		"writable by its peer":      {make(size, size, sealsOfOwner&^unix.F_SEAL_FUTURE_WRITE), false, false},
		"not sealed against cuts":   {make(size, size, sealsOfOwner&^unix.F_SEAL_SHRINK), false, false},
		"writable by its owner":     {make(size, size, sealsOfOwner), true, false},
		"a page too long":           {make(size+pageSize, size+pageSize, sealsOfOwner), false, false},
		"a page too short":          {make(pageSize, pageSize, sealsOfOwner), false, false},
		"a page that nobody paid":   {make(size, pageSize, sealsOfOwner), false, false},
		"an ordinary file":          {int(file.Fd()), false, false},
		"pages that nobody paid":    {make(size, 0, sealsConstant), true, false},
		"no seal against more ones": {make(size, size, sealsOfOwner&^unix.F_SEAL_SEAL), false, false},
	} {
		mem, err := mapPeers(c.fd, size, c.constant)
		if (err == nil) != c.taken {
			t.Errorf("%s: %v", what, err)
		}
		unmap(mem)
	}
	bell, fd, err := newEventBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.close()
	if isEventfd(fd) != nil || isEventfd(make(size, size, 0)) == nil {
		t.Error("what is an eventfd")
	}
}

// pausing is a handler that says that it has begun with "wait", and goes on when it may.
func pausing() (handler Handler, begun, release chan struct{}) {
	begun, release = make(chan struct{}), make(chan struct{})
	return func(ctx context.Context, request, answer []byte) ([]byte, error) {
		if bytes.HasPrefix(request, []byte("wait")) {
			begun <- struct{}{}
			<-release
		}
		return append(answer, request...), nil
	}, begun, release
}

func TestWhetherAHandlerRanIsKnownFromHead(t *testing.T) {
	handler, begun, release := pausing()
	_, s := pair(t, handler)
	defer close(release)
	requests := []*Pending{submitted(t, s, "wait"), nil}
	<-begun
	requests[1] = submitted(t, s, "not taken")
	s.mu.Lock()
	s.peerIsGone(nil)
	s.mu.Unlock()
	for i, ran := range []Executed{ExecutedMaybe, ExecutedNo} {
		if _, err := requests[i].Wait(t.Context()); !errors.Is(err, ErrPeerGone) || ExecutedOf(err) != ran {
			t.Errorf("%v, ran: %v", err, ExecutedOf(err))
		}
	}
}

func TestALateAnswerLeavesTheCallersBufferAlone(t *testing.T) {
	handler, begun, release := pausing()
	_, s := pair(t, handler)
	buffer := make([]byte, 100)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := s.AppendCall(ctx, buffer[:0], []byte("wait, and be late")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(release)
	call(t, s, []byte("and on"))
	if !bytes.Equal(buffer, make([]byte, 100)) {
		t.Errorf("%q", buffer)
	}
}

func TestABatchAboveTheServersLimitIsMalformed(t *testing.T) {
	_, s := pair(t, echo, func(o *options) { o.maxBatch = 1 })
	s.maxBatch = 2 // the client's own check aside
	_, err := s.Batch(t.Context(), [][]byte{{1}, {2}})
	var failed *CallError
	if !errors.As(err, &failed) || failed.Status != StatusMalformed {
		t.Fatal(err)
	}
}

func TestAClientThatReadsNothingIsClosed(t *testing.T) {
	server, s := pair(t, func(_ context.Context, _, answer []byte) ([]byte, error) {
		return append(answer, make([]byte, 10_000)...), nil
	}, StallTimeout(50*time.Millisecond))
	// Nobody waits, so nobody reads; the answers are more than a lane that grows takes.
	for range 300 {
		if _, err := s.Submit(t.Context(), make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
	}
	for server.stats.unread.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for s.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func TestAFlushWaitsUntilTheServerHasTakenEachPost(t *testing.T) {
	handler, begun, release := pausing()
	_, s := pair(t, handler)
	for _, request := range []string{"wait", "not taken yet"} {
		if err := s.Post(t.Context(), []byte(request)); err != nil {
			t.Fatal(err)
		}
		if request == "wait" {
			<-begun
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	close(release)
	if err := s.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAClientWhoseDoorbellIsNoEventfdIsRefused(t *testing.T) {
	dir := t.TempDir()
	server, err := Listen(dir, "echo", echo)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	o, err := newOptions(nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := connect(t.Context(), dir, "echo", o)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sock, err := newSocket(conn)
	if err != nil {
		t.Fatal(err)
	}
	h := hello{
		min: protocol, max: protocol, method: 1, service: "echo", lane: o.lane, doorbell: DoorbellEventfd, ringsEventfd: true,
		limits: o.limits,
	}
	if err := sock.send(h.encode(), true); err != nil {
		t.Fatal(err)
	}
	b, fds, err := sock.receiveOpening(controlWelcome)
	if err != nil {
		t.Fatal(err)
	}
	w, err := parseWelcome(b, len(fds))
	if err != nil {
		t.Fatal(err)
	}
	var s Session
	defer s.discard()
	s.sock = sock
	if err := s.join(roleClient, "echo", w.session, h.lane, h.limits, w.lane, w.limits, fds[0], fds[1]); err != nil {
		t.Fatal(err)
	}
	own, err := s.prepare(h.doorbell, h.lane)
	if err != nil {
		t.Fatal(err)
	}
	// The lane, where an eventfd has to be.
	if err := sock.send(opening(controlAttach, 3, w.session), true, own[0], own[1], own[1]); err != nil {
		t.Fatal(err)
	}
	_, _, err = sock.receiveOpening(controlReady)
	var refused *Refused
	if !errors.As(err, &refused) || refused.Code != RefusedProtocol {
		t.Fatal(err)
	}
}
