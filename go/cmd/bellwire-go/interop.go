//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	bellwire "bellwire.dev/go"
)

// The Go end of the tests between languages: a server, and a client for each row of the table in docs/interop.md. examples/interop.rs is
// the same in Rust.

const (
	echoService     = "interop-echo"
	typedService    = "interop-typed"
	snapshotService = "interop-clock"
	eventService    = "interop-news"
	// Of the vectors, with the fingerprint of their HELLO.
	vectorService = "increment"
	vectorSchema  = 0x0123_4567_89ab_cdef
)

// Scenarios are the rows that a client plays, beside those that kill a process.
var scenarios = map[string]func(context.Context, []bellwire.Option) error{
	"calls": onEcho(interopCalls), "largest": onEcho(interopLargest), "pipeline": onEcho(interopPipeline),
	"batches": onEcho(interopBatches), "posts": onEcho(interopPosts), "resize": onEcho(interopResize),
	"cancel": onEcho(interopCancel), "deadlines": onEcho(interopDeadlines), "forever": onEcho(interopForever),
	"fingerprint": interopFingerprint, "version": interopVersion, "vectors": interopVectors,
	"snapshots": interopSnapshots, "events": interopEvents, "restart": interopRestart,
}

func interopDoorbell(name string) (bellwire.Option, error) {
	switch name {
	case "eventfd":
		return bellwire.RungBy(bellwire.DoorbellEventfd), nil
	case "socket":
		return bellwire.RungBy(bellwire.DoorbellSocket), nil
	}
	return nil, errors.New("eventfd or socket")
}

func interop(ctx context.Context, scenario, doorbell string, list []bellwire.Option) error {
	bell, err := interopDoorbell(doorbell)
	if err != nil {
		return err
	}
	list = append(list, bell)
	if scenario == "serve" {
		return interopServe(ctx, list)
	}
	play, ok := scenarios[scenario]
	if !ok {
		return errors.New("no such scenario")
	}
	if scenario != "forever" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 40*time.Second)
		defer cancel()
	}
	if err := play(ctx, list); err != nil {
		return err
	}
	fmt.Println("ok")
	return nil
}

func interopServe(ctx context.Context, list []bellwire.Option) error {
	var posted atomic.Uint64
	// A request may sleep: the others go on.
	server, err := bellwire.Listen(bellwire.RunDir(), echoService, func(_ context.Context, request, answer []byte) ([]byte, error) {
		switch string(request[:min(len(request), 16)]) {
		case "fail":
			return nil, &bellwire.CallError{Status: bellwire.StatusFailed, Code: 404, Reason: "as asked"}
		case "sleep":
			time.Sleep(300 * time.Millisecond)
		case "+":
			posted.Add(1)
			return answer, nil
		case "pid":
			return binary.LittleEndian.AppendUint32(answer, uint32(os.Getpid())), nil
		case "count":
			return binary.LittleEndian.AppendUint64(answer, posted.Load()), nil
		}
		return append(answer, request...), nil
	}, append(list, bellwire.Concurrency(4))...)
	if err != nil {
		return err
	}
	defer server.Close()
	typed, err := bellwire.Listen(bellwire.RunDir(), typedService, echo, append(list, bellwire.Schema("bytes -> bytes"))...)
	if err != nil {
		return err
	}
	defer typed.Close()
	increment, err := bellwire.Listen(bellwire.RunDir(), vectorService, echo, append(list, bellwire.Fingerprint(vectorSchema))...)
	if err != nil {
		return err
	}
	defer increment.Close()
	clock, err := bellwire.Publish(bellwire.RunDir(), snapshotService, list...)
	if err != nil {
		return err
	}
	defer clock.Close()
	news, err := bellwire.PublishEvents(bellwire.RunDir(), eventService, list...)
	if err != nil {
		return err
	}
	defer news.Close()
	ready()
	for number := uint64(1); ctx.Err() == nil; number++ {
		length, pause := lengthOf(number), 2*time.Millisecond
		if length > 1<<20 {
			pause = 20 * time.Millisecond
		}
		if _, err := clock.Publish(pattern(number, length)); err != nil {
			return err
		}
		if _, err := news.Send(binary.LittleEndian.AppendUint64(nil, number)); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	return nil
}

// lengthOf is 16 bytes to 100 000 cgroups' worth.
func lengthOf(number uint64) int {
	if number%40 == 39 {
		return 12_000_000
	}
	return [...]int{16, 1000, 100_000, 300_000}[number%4]
}

// pattern is bytes of which every one depends on number, which is in the first eight.
func pattern(number uint64, length int) []byte {
	b := make([]byte, length)
	for i := range min(length, 251) {
		b[i] = byte(i) ^ byte(number)
	}
	for have := 251; have < length; have *= 2 {
		copy(b[have:], b[:have])
	}
	if length >= 8 {
		binary.LittleEndian.PutUint64(b, number)
	}
	return b
}

func expect(holds bool, what string) error {
	if holds {
		return nil
	}
	return errors.New(what)
}

// onEcho is a scenario on one session.
func onEcho(play func(context.Context, *bellwire.Session) error) func(context.Context, []bellwire.Option) error {
	return func(ctx context.Context, list []bellwire.Option) error {
		s, err := bellwire.Dial(ctx, bellwire.RunDir(), echoService, list...)
		if err != nil {
			return err
		}
		defer s.Close()
		return play(ctx, s)
	}
}

func callOf(ctx context.Context, s *bellwire.Session, length int) error {
	request := pattern(uint64(length), length)
	answer, err := s.Call(ctx, request)
	if err != nil {
		return fmt.Errorf("%d bytes: %w", length, err)
	}
	return expect(bytes.Equal(answer, request), fmt.Sprintf("the answer to %d bytes", length))
}

func interopCalls(ctx context.Context, s *bellwire.Session) error {
	for _, n := range []int{0, 1, 16, 2000, 8145, 100_000, 1 << 20, 5 << 20} {
		if err := callOf(ctx, s, n); err != nil {
			return err
		}
	}
	_, err := s.Call(ctx, []byte("fail"))
	var failed *bellwire.CallError
	return expect(errors.As(err, &failed) && failed.Reason == "as asked" && failed.Code == 404, fmt.Sprintf("fail: %v", err))
}

func interopLargest(ctx context.Context, s *bellwire.Session) error {
	return callOf(ctx, s, 64<<20-64)
}

func interopPipeline(ctx context.Context, s *bellwire.Session) error {
	waiting := make([]*bellwire.Pending, 20_000)
	for i := range waiting {
		p, err := s.Submit(ctx, binary.LittleEndian.AppendUint64(nil, uint64(i)))
		if err != nil {
			return err
		}
		waiting[i] = p
	}
	for i, p := range waiting {
		answer, err := p.Wait(ctx)
		if err != nil {
			return err
		}
		if err := expect(binary.LittleEndian.Uint64(answer) == uint64(i), "an answer of the pipeline"); err != nil {
			return err
		}
	}
	return nil
}

func interopBatches(ctx context.Context, s *bellwire.Session) error {
	requests := make([][]byte, 1000)
	for i := range requests {
		requests[i] = pattern(uint64(i), 8+i%100)
	}
	answers, err := s.Batch(ctx, requests)
	if err != nil {
		return err
	}
	for i, answer := range answers {
		if err := expect(answer.Status == bellwire.StatusOK && bytes.Equal(answer.Bytes, requests[i]), "an item"); err != nil {
			return err
		}
	}
	return nil
}

func interopPosts(ctx context.Context, s *bellwire.Session) error {
	count := func() (uint64, error) {
		answer, err := s.Call(ctx, []byte("count"))
		if err != nil {
			return 0, err
		}
		return binary.LittleEndian.Uint64(answer), nil
	}
	before, err := count()
	if err != nil {
		return err
	}
	for range 10_000 {
		if err := s.Post(ctx, []byte("+")); err != nil {
			return err
		}
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	// Taken is not handled, where handlers run at once.
	for {
		after, err := count()
		if err != nil || after == before+10_000 {
			return err
		}
	}
}

func interopResize(ctx context.Context, s *bellwire.Session) error {
	for range 3 {
		if err := callOf(ctx, s, 900_000); err != nil {
			return err
		}
		if err := s.Trim(ctx); err != nil {
			return err
		}
		if err := callOf(ctx, s, 10); err != nil {
			return err
		}
	}
	return nil
}

func interopCancel(ctx context.Context, s *bellwire.Session) error {
	p, err := s.Submit(ctx, []byte("sleep"))
	if err != nil {
		return err
	}
	p.Cancel()
	return callOf(ctx, s, 100)
}

func interopDeadlines(ctx context.Context, s *bellwire.Session) error {
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	_, err := s.Call(short, []byte("sleep"))
	if err := expect(errors.Is(err, context.DeadlineExceeded), fmt.Sprintf("deadline: %v", err)); err != nil {
		return err
	}
	return callOf(ctx, s, 100)
}

func interopFingerprint(ctx context.Context, list []bellwire.Option) error {
	s, err := bellwire.Dial(ctx, bellwire.RunDir(), typedService, append(list, bellwire.Schema("bytes -> bytes"))...)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := callOf(ctx, s, 1); err != nil {
		return err
	}
	_, err = bellwire.Dial(ctx, bellwire.RunDir(), typedService, append(list, bellwire.Schema("bytes -> text"))...)
	var refused *bellwire.Refused
	return expect(errors.As(err, &refused) && refused.Code == bellwire.RefusedSchema, fmt.Sprint("other types: ", err))
}

func interopVersion(ctx context.Context, list []bellwire.Option) error {
	_, err := bellwire.Dial(ctx, bellwire.RunDir(), echoService, append(list, bellwire.ServiceVersion(9))...)
	var refused *bellwire.Refused
	return expect(errors.As(err, &refused) && refused.Code == bellwire.RefusedService, fmt.Sprint("another version: ", err))
}

// interopVectors meets a provider that opens no session.
func interopVectors(ctx context.Context, list []bellwire.Option) error {
	_, err := bellwire.Dial(ctx, bellwire.RunDir(), vectorService, append(list, bellwire.Fingerprint(vectorSchema))...)
	return expect(errors.Is(err, bellwire.ErrProtocol), fmt.Sprint("not the provider's fault: ", err))
}

func interopSnapshots(ctx context.Context, list []bellwire.Option) error {
	seen := map[int]bool{}
	for snapshot, err := range bellwire.Snapshots(ctx, bellwire.RunDir(), snapshotService, list...) {
		if err != nil {
			return err
		}
		number := binary.LittleEndian.Uint64(snapshot.Bytes)
		if number != snapshot.Generation || !bytes.Equal(snapshot.Bytes, pattern(number, lengthOf(number))) {
			return fmt.Errorf("snapshot %d of %d bytes is not what was published", snapshot.Generation, len(snapshot.Bytes))
		}
		if seen[len(snapshot.Bytes)] = true; len(seen) == 5 {
			return nil
		}
	}
	return ctx.Err()
}

func interopEvents(ctx context.Context, list []bellwire.Option) error {
	s, err := bellwire.Subscribe(ctx, bellwire.RunDir(), eventService, true, list...)
	if err != nil {
		return err
	}
	defer s.Close()
	last := uint64(0)
	for range 200 {
		event, err := s.Next(ctx)
		if err != nil {
			return err
		}
		if binary.LittleEndian.Uint64(event.Bytes) != event.Number || last != 0 && event.Number != last+event.Missed+1 {
			return fmt.Errorf("event %+v after %d", event, last)
		}
		last = event.Number
	}
	return nil
}

// interopRestart calls until another provider has answered 500 calls. None has to fail meanwhile: a call that was not taken is
// repeated.
func interopRestart(ctx context.Context, list []bellwire.Option) error {
	client, err := bellwire.NewClient[bellwire.Bytes, bellwire.Bytes](bellwire.RunDir(), echoService, list...)
	if err != nil {
		return err
	}
	defer client.Close()
	request := bellwire.Bytes("pid")
	first, err := client.Call(ctx, request)
	if err != nil {
		return err
	}
	fmt.Println("called")
	for answers := 0; answers < 500; {
		pid, err := client.Call(ctx, request)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			answers = 0
			time.Sleep(time.Millisecond)
		case !bytes.Equal(pid, first):
			answers++
		}
	}
	return nil
}

func interopForever(ctx context.Context, s *bellwire.Session) error {
	for {
		if err := callOf(ctx, s, 100_000); err != nil {
			return err
		}
	}
}
