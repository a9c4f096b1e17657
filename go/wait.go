//go:build linux

package bellwire

import (
	"context"
	"time"
)

// waiter is a goroutine that waits while another one leads.
type waiter struct {
	wake chan struct{}
	need uint64 // the Head of the peer that it waits for, or 0
	at   int    // in end.waiters
}

func newWaiter() *waiter { return &waiter{wake: make(chan struct{}, 1), at: -1} }

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// await waits until cond holds. mu is held before and after it, and while cond runs. need is a Head that the peer has
// to store before cond can hold, or 0.
func (e *end) await(ctx context.Context, w *waiter, need uint64, cond func() bool) error {
	// Whoever leaves, and may have been woken to lead, wakes another one to lead.
	defer func() {
		if !e.leading && len(e.waiters) > 0 {
			e.waiters[len(e.waiters)-1].signal()
		}
	}()
	for {
		if cond() {
			return nil
		}
		if e.broken != nil || e.closed {
			return e.over()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.leading {
			e.follow(ctx, w, need)
			continue
		}
		e.leading = true
		e.lead(ctx, need, cond)
		e.leading = false
		// What a peer that is gone has published was read first.
		if err := e.over(); err != nil && !cond() {
			return err
		}
	}
}

// follow waits for the goroutine that leads.
func (e *end) follow(ctx context.Context, w *waiter, need uint64) {
	w.need, w.at = need, len(e.waiters)
	e.waiters = append(e.waiters, w)
	if need > 0 {
		e.armSpace()
		if e.peer.load(wordHead) >= need {
			e.bell.kick()
		}
	}
	e.mu.Unlock()
	select {
	case <-w.wake:
	case <-ctx.Done():
	}
	e.mu.Lock()
	last := len(e.waiters) - 1
	e.waiters[w.at] = e.waiters[last]
	e.waiters[w.at].at = w.at
	e.waiters = e.waiters[:last]
	w.at, w.need = -1, 0
}

// lead reads for all until cond holds or there is nothing more to wait for.
func (e *end) lead(ctx context.Context, need uint64, cond func() bool) {
	for {
		took, err := e.poll()
		if err != nil {
			e.poison(err)
		}
		if cond() || e.over() != nil && !took || ctx.Err() != nil {
			return
		}
		if took {
			continue
		}
		tail, head := e.rx.tail, e.tx.head
		moved := func() bool { return e.peer.load(wordTail) != tail || e.peer.load(wordHead) != head }
		e.mu.Unlock()
		found := e.spinner.spin(spinFor, 256, moved)
		e.mu.Lock()
		if !found {
			e.park(ctx, need, cond)
		}
	}
}

// armSpace arms the event index for the lowest Head that somebody waits for and that has not come: one that has come would
// hide the others from the peer.
func (e *end) armSpace() {
	index := uint64(never)
	if e.leadNeed > e.tx.head {
		index = e.leadNeed - 1
	}
	for _, w := range e.waiters {
		if w.need > e.tx.head {
			index = min(index, w.need-1)
		}
	}
	e.own.store(wordWantSpace, index)
}

// park sleeps until the peer rings, the context ends or somebody kicks.
func (e *end) park(ctx context.Context, need uint64, cond func() bool) {
	// A kick may have come while mu was not held: check once more after this.
	e.bell.rearm()
	if cond() || e.over() != nil || ctx.Err() != nil {
		return
	}
	e.ringForSpace()
	tail, head := e.rx.tail, e.tx.head
	e.own.store(wordWantData, tail)
	e.leadNeed = need
	e.armSpace()
	moved := func() bool { return e.peer.load(wordTail) != tail || e.peer.load(wordHead) != head }
	if !moved() {
		e.parks++
		e.own.note(wordParks, e.parks*uint64(2-e.role))
		e.export()
		stop := func() bool { return true }
		if ctx.Done() != nil {
			stop = context.AfterFunc(ctx, e.bell.kick)
		}
		if e.short {
			// Nobody rings when this process has descriptors or memory again.
			defer time.AfterFunc(retryAfter, e.bell.kick).Stop()
		}
		e.mu.Unlock()
		e.bell.wait(moved)
		stop()
		e.mu.Lock()
	}
	e.own.store(wordWantData, never)
	e.own.store(wordWantSpace, never)
	e.leadNeed = 0
}

// wakeAll lets every waiter check its condition again.
func (e *end) wakeAll() {
	for _, w := range e.waiters {
		w.signal()
	}
	e.bell.kick()
}
