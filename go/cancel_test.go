//go:build linux

package bellwire

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

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
	p := submitted(t, s, nil)
	<-running
	p.Cancel()
	<-ended
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
	first := submitted(t, s, []byte("wait"))
	<-begun
	second := submitted(t, s, []byte("cancelled"))
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

func TestHeadShowsWhetherAHandlerRan(t *testing.T) {
	handler, begun, release := pausing()
	_, s := pair(t, handler)
	defer close(release)
	requests := []*Pending{submitted(t, s, []byte("wait")), nil}
	<-begun
	requests[1] = submitted(t, s, []byte("not taken"))
	s.peerDied()
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
