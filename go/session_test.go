//go:build linux

package bellwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
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

// check ends a test that cannot go on after an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listening is a server of "echo" that closes when the test ends.
func listening(t testing.TB, dir string, handler Handler, list ...Option) *Server {
	t.Helper()
	server, err := Listen(dir, "echo", handler, list...)
	check(t, err)
	t.Cleanup(func() { server.Close() })
	return server
}

// dialed is a session that closes when the test ends.
func dialed(t testing.TB, dir, service string, list ...Option) *Session {
	t.Helper()
	s, err := Dial(t.Context(), dir, service, list...)
	check(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// pair is a server and a session with it.
func pair(t testing.TB, handler Handler, list ...Option) (*Server, *Session) {
	t.Helper()
	dir := t.TempDir()
	server := listening(t, dir, handler, list...)
	return server, dialed(t, dir, "echo", list...)
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

func submitted(t testing.TB, s *Session, request []byte) *Pending {
	t.Helper()
	p, err := s.Submit(t.Context(), request)
	check(t, err)
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
		check(t, s.Trim(t.Context()))
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
		check(t, s.Post(t.Context(), []byte("ab")))
	}
	check(t, s.Flush(t.Context()))
	if _, err := s.Call(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if sum != 10_000 {
		t.Fatal(sum)
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

func TestABatchAboveTheServersLimitIsMalformed(t *testing.T) {
	_, s := pair(t, echo, func(o *options) { o.maxBatch = 1 })
	s.maxBatch = 2 // the client's own check aside
	_, err := s.Batch(t.Context(), [][]byte{{1}, {2}})
	var failed *CallError
	if !errors.As(err, &failed) || failed.Status != StatusMalformed || !errors.Is(err, ErrMalformed) {
		t.Fatal(err)
	}
}

func TestAFlushWaitsUntilTheServerHasTakenEachPost(t *testing.T) {
	handler, begun, release := pausing()
	_, s := pair(t, handler)
	for _, request := range []string{"wait", "not taken yet"} {
		check(t, s.Post(t.Context(), []byte(request)))
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
