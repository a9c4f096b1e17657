//go:build linux

package bellwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"bellwire.dev/go/internal/vectors"
)

// This module publishes no deltas and applies none: it takes the newest snapshot as a whole.
func TestVectorsOfBroadcastRings(t *testing.T) {
	read := func(v vectors.Case) (taken []string, err error) {
		ring := make(words, broadcastStart+4096)
		for _, line := range v.Lines {
			switch line[0] {
			case "oldest":
				ring.store(wordOldest, vectors.Number(t, line[1]))
			case "intent":
				ring.store(wordIntent, vectors.Number(t, line[1]))
			case "latest":
				ring.store(wordLatest, vectors.Number(t, line[1]))
			case "tail":
				ring.store(wordPublished, vectors.Number(t, line[1]))
			case "records":
				patch(t, ring[broadcastStart:], line[1])
			}
		}
		c := newRingReader(ring, ringHeader{size: 4096, number: 1, first: 1})
		c.gaps = v.Text("newest") != ""
		for {
			if c.gaps {
				if there, err := c.toNewest(); !there {
					return taken, err
				}
			}
			r, ok, err := c.next(nil)
			switch {
			case err != nil || !ok:
				return taken, err
			case c.gaps:
				taken = append(taken, fmt.Sprintf("%d %d %x", r.sequence, len(r.bytes), r.bytes[:4]))
				continue
			case r.next != 0:
				return append(taken, fmt.Sprintf("next %d", r.next)), nil
			}
			taken = append(taken, fmt.Sprintf("%d %d %d %x", r.sequence, r.missed, len(r.bytes), r.bytes[:min(4, len(r.bytes))]))
		}
	}
	for _, v := range casesOf(t, "broadcast.txt") {
		if v.Name == "header" {
			b := v.Bytes(t, "header")
			h, err := parseRing(b, "increment")
			ring := make(words, broadcastStart)
			h.write(ring)
			if err != nil || !bytes.Equal(ring[:len(b)], b) {
				t.Errorf("header: %v\n%x\n%x", err, b, ring[:len(b)])
			}
			continue
		}
		var expected []string
		for _, line := range v.Lines {
			if line[0] == "taken" || line[0] == "newest" {
				expected = append(expected, line[1])
			}
		}
		taken, err := read(v)
		if err != nil || strings.Join(taken, "\n") != strings.Join(expected, "\n") {
			t.Errorf("%s: %v\n%s", v.Name, err, strings.Join(taken, "\n"))
		}
	}
	for _, v := range casesOf(t, "broadcast-bad.txt") {
		if taken, err := read(v); err == nil {
			t.Errorf("%s was taken: %v", v.Name, taken)
		}
	}
}

// TestSnapshotBehindDeltas looks for the newest snapshot where deltas were written over it: it is passed in other memory.
func TestSnapshotBehindDeltas(t *testing.T) {
	ring := make(words, broadcastStart+4096)
	ring.store(wordLatest, never)
	w := ringWriter{mem: ring, size: 4096, number: 1}
	c := newRingReader(ring, ringHeader{size: 4096, number: 1, first: 1})
	c.gaps = true
	w.put(ringData, 1, make([]byte, 100))
	latest := ring.load(wordLatest)
	for sequence := uint64(2); sequence < 200; sequence++ {
		w.put(4, sequence, make([]byte, 100))
		ring.store(wordLatest, latest)
	}
	for range 2 {
		if _, err := c.toNewest(); err != nil {
			t.Fatal(err)
		}
		if r, ok, err := c.next(nil); ok || err != nil {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	w.put(ringData, 200, []byte("new"))
	if there, err := c.toNewest(); !there || err != nil {
		t.Fatal(there, err)
	}
	if r, ok, err := c.next(nil); !ok || err != nil || r.sequence != 200 {
		t.Fatalf("%+v, %v, %v", r, ok, err)
	}
}

func TestARingIsReadAsItIsWritten(t *testing.T) {
	ring := make(words, broadcastStart+4096)
	h := ringHeader{size: 4096, number: 1, first: 1, name: "increment"}
	h.write(ring)
	w := ringWriter{mem: ring, size: 4096, number: 1}
	slow, quick := newRingReader(ring, h), newRingReader(ring, h)
	missed, last := uint64(0), uint64(0)
	for n := uint64(1); n <= 1000; n++ {
		payload := bytes.Repeat([]byte{byte(n)}, int(n*37%1008))
		w.put(ringData, n, payload)
		r, ok, err := quick.next(nil)
		if err != nil || !ok || r.sequence != n || r.missed != 0 || !bytes.Equal(r.bytes, payload) {
			t.Fatalf("%d: %+v %v %v", n, r, ok, err)
		}
		if n%13 != 0 {
			continue
		}
		for {
			r, ok, err := slow.next(nil)
			check(t, err)
			if !ok {
				break
			}
			missed += r.missed
			last = r.sequence
			if len(r.bytes) != int(r.sequence*37%1008) {
				t.Fatal(r.sequence, len(r.bytes))
			}
		}
		if last != n {
			t.Fatal(last, n)
		}
	}
	if missed == 0 {
		t.Fatal("nothing was overwritten")
	}
}

// publisher is one of "clock" that closes when the test ends.
func publisher(t testing.TB, dir string, list ...Option) *Publisher {
	t.Helper()
	p, err := Publish(dir, "clock", list...)
	check(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

func publish(t testing.TB, p *Publisher, snapshot []byte) {
	t.Helper()
	if _, err := p.Publish(snapshot); err != nil {
		t.Fatal(err)
	}
}

// snapshotReader is a reader that closes when the test ends.
func snapshotReader(t testing.TB, dir, service string) *SnapshotReader {
	t.Helper()
	r, err := NewSnapshotReader(dir, service)
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

func TestSnapshotsOfEachLength(t *testing.T) {
	dir := t.TempDir()
	p := publisher(t, dir)
	r := snapshotReader(t, dir, "clock")
	if _, err := r.Refresh(t.Context()); !errors.Is(err, ErrNotYet) {
		t.Fatal(err)
	}
	for i, n := range []int{0, 1, 1000, 200_000, 262_128, 262_129, 5 << 20, 10} {
		generation, err := p.Publish(pattern(n))
		if err != nil || generation != uint64(i+1) {
			t.Fatal(generation, err)
		}
		changed, err := r.Refresh(t.Context())
		if !changed || err != nil || r.Current().Generation != generation || !bytes.Equal(r.Current().Bytes, pattern(n)) {
			t.Fatal(n, changed, err)
		}
		if changed, err = r.Refresh(t.Context()); changed || err != nil {
			t.Fatal(changed, err)
		}
	}
	// The provider is restarted while the reader waits.
	next := make(chan *Snapshot)
	go func() {
		s, err := r.Next(t.Context())
		if err != nil {
			t.Error(err)
		}
		next <- s
	}()
	p.Close()
	p = publisher(t, dir)
	publish(t, p, []byte("again"))
	if s := <-next; string(s.Bytes) != "again" {
		t.Fatal(s)
	}
	if count := p.server.stats.admitted.Load(); count != 1 {
		t.Error(count, "sessions of one reader")
	}
}

func TestSnapshotsAreYieldedUntilTheContextEnds(t *testing.T) {
	dir := t.TempDir()
	p := publisher(t, dir)
	publish(t, p, []byte{1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	for snapshot, err := range Snapshots(ctx, dir, "clock") {
		if err != nil || int(snapshot.Bytes[0]) != seen+1 {
			t.Fatal(snapshot, err)
		}
		if seen++; seen == 50 {
			cancel()
			continue
		}
		publish(t, p, []byte{byte(seen + 1)})
	}
	if seen != 50 {
		t.Fatal(seen)
	}
}

func TestEverySubscriberGetsEachEvent(t *testing.T) {
	dir := t.TempDir()
	p, err := PublishEvents(dir, "shout")
	check(t, err)
	defer p.Close()
	if _, err := p.Send([]byte("before")); err != nil {
		t.Fatal(err)
	}
	const events = 3000
	done := make(chan error)
	for i := range 3 {
		s, err := Subscribe(t.Context(), dir, "shout", i == 0)
		check(t, err)
		go func() {
			defer s.Close()
			first := uint64(2)
			if i == 0 {
				first = 1
			}
			for n := first; n <= events+1; {
				event, err := s.Next(t.Context())
				if err != nil || event.Number != n+event.Missed {
					done <- fmt.Errorf("event %d: %+v, %w", n, event, err)
					return
				}
				n = event.Number + 1
			}
			done <- nil
		}()
	}
	for i := range events {
		if _, err := p.Send(fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		check(t, <-done)
	}
	if _, err := p.Send(pattern(1 << 19)); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
}

// It goes on accepting clients, as only a faulty one does.
func TestReadersOfAStoppedProviderPause(t *testing.T) {
	for name, read := range map[string]func(context.Context, string){
		"events": func(ctx context.Context, dir string) {
			for range Events(ctx, dir, "clock") {
				t.Error("there is none")
			}
		},
		"snapshots": func(ctx context.Context, dir string) {
			for range Snapshots(ctx, dir, "clock") {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := publisher(t, dir)
			p.server.board.store(wordServing, 2)
			ctx, cancel := context.WithTimeout(t.Context(), 5*retryAfter)
			defer cancel()
			read(ctx, dir)
			if admitted := p.server.stats.admitted.Load(); admitted < 2 || admitted > 6 {
				t.Fatal(admitted, "sessions")
			}
		})
	}
}

func BenchmarkRefreshUnchanged(b *testing.B) {
	dir := b.TempDir()
	p := publisher(b, dir)
	publish(b, p, pattern(1000))
	r := snapshotReader(b, dir, "clock")
	if _, err := r.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if changed, err := r.Refresh(b.Context()); changed || err != nil {
			b.Fatal(changed, err)
		}
	}
}

// What the publisher may be writing over is worth nothing, whether it has begun or not.
func TestARecordThatMayBeOverwrittenIsNotTaken(t *testing.T) {
	ring := words(alignedMemory(broadcastStart + 4096))
	ringHeader{size: 4096, number: 1, first: 1, name: "test"}.write(ring)
	w := ringWriter{mem: ring, size: 4096, number: 1}
	for sequence := uint64(1); sequence <= 3; sequence++ {
		w.put(ringData, sequence, []byte("some bytes"))
		if ring.load(wordIntent) != ring.load(wordPublished) {
			t.Fatal("the publisher did not say how far it wrote")
		}
	}
	for intent, first := range map[uint64]uint64{w.tail: 1, w.tail + 4096: 0} {
		ring.store(wordIntent, intent)
		r := newRingReader(ring, ringHeader{size: 4096, number: 1, first: 1})
		record, ok, err := r.next(nil)
		if err != nil || ok != (first > 0) || record.sequence != first {
			t.Errorf("Intent %d: %+v, %v, %v", intent, record, ok, err)
		}
	}
}

// A reader takes records while they are written over: each is whole, or was missed.
func TestAReaderTakesNoTornRecord(t *testing.T) {
	const size, records = 4096, 20_000
	// Not on the heap, where the race detector would see what both do on purpose.
	_, memory, err := newShared("bellwire-test", broadcastStart+size)
	check(t, err)
	defer unmap(memory)
	ringHeader{size: size, number: 1, first: 1, name: "test"}.write(memory)
	lengthOf := func(sequence uint64) int { return 8 + int(sequence%112)*8 }
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		w := ringWriter{mem: memory, size: size, number: 1}
		record := make([]byte, 904)
		for sequence := uint64(1); sequence <= records; sequence++ {
			for at := 0; at+8 <= len(record); at += 8 {
				le.PutUint64(record[at:], sequence)
			}
			w.put(ringData, sequence, record[:lengthOf(sequence)])
		}
	}()
	r := newRingReader(memory, ringHeader{size: size, number: 1, first: 1})
	var taken int
	var bytes []byte
	for last := uint64(0); last < records; {
		record, ok, err := r.next(bytes)
		check(t, err)
		if !ok {
			continue
		}
		if len(record.bytes) != lengthOf(record.sequence) {
			t.Fatalf("record %d has %d bytes", record.sequence, len(record.bytes))
		}
		for at := 0; at < len(record.bytes); at += 8 {
			if got := le.Uint64(record.bytes[at:]); got != record.sequence {
				t.Fatalf("record %d has bytes of %d at %d", record.sequence, got, at)
			}
		}
		last, taken, bytes = record.sequence, taken+1, record.bytes
	}
	if taken == 0 {
		t.Fatal("none was taken")
	}
}

func TestAReaderConnectsToAnotherProviderWhenItsOwnIsGone(t *testing.T) {
	dir := t.TempDir()
	p := publisher(t, dir)
	publish(t, p, []byte("tick"))
	r := snapshotReader(t, dir, "clock")
	if _, err := r.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	// As if it was killed, and left its board as it was.
	first := r.session
	first.peerDied()
	if changed, err := r.Refresh(t.Context()); !changed || err != nil || r.session == first {
		t.Error(changed, err)
	}
}
