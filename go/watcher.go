//go:build linux

package bellwire

import (
	"context"
	"errors"
	"time"
)

// watcher is what readers of snapshots and of events share: a session that is opened again when the provider was restarted,
// its board, and the broadcast ring in use.
type watcher struct {
	dir, service string
	o            options
	session      *Session // its memory stays mapped until drop
	opened       time.Time
	awaited      *Session // which the next open takes
	ring         *ringReader
	ended        bool // the ring has a successor
}

func newWatcher(dir, service string, list []Option) (*watcher, error) {
	o, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	return &watcher{dir: dir, service: service, o: o}, nil
}

// open opens a session if there is none; the state of an earlier one is over.
func (w *watcher) open(ctx context.Context) (opened bool, err error) {
	if w.session != nil && !w.session.ended.Load() {
		return false, nil
	}
	w.drop()
	s := w.awaited
	w.awaited = nil
	if s == nil {
		if s, err = dial(ctx, w.dir, w.service, w.o); err != nil {
			return false, err
		}
	}
	if err := s.enter(); err != nil {
		return false, err
	}
	s.mu.Unlock() // but no leave: the board stays
	w.session, w.opened = s, time.Now()
	return true, nil
}

// drop ends the session.
func (w *watcher) drop() {
	if w.session != nil {
		w.session.mu.Lock()
		w.session.shut(closeNormal)
		w.session.leave()
	}
	if w.ring != nil {
		unmap(w.ring.mem)
	}
	w.session, w.ring, w.ended = nil, nil, false
}

// Close ends the session. What was taken stays.
func (w *watcher) Close() error {
	w.drop()
	if w.awaited != nil {
		w.awaited.Close()
	}
	return nil
}

// wrong ends a session whose provider broke a rule of a ring.
func (w *watcher) wrong(err error) error {
	if isShortage(err) {
		return err
	}
	s := w.session
	s.mu.Lock()
	s.poison(err)
	err = s.over()
	s.mu.Unlock()
	w.drop()
	return err
}

// mapRing maps the broadcast ring in use, if it is not mapped. The watcher has none if the provider has none.
func (w *watcher) mapRing(ctx context.Context) error {
	if w.ring != nil && !w.ended {
		return nil
	}
	inUse := epochFrom(w.session.board.load(wordRing))
	number := inUse.number
	if w.ended {
		number = w.ring.number + 1
	}
	if inUse.size == 0 {
		return nil
	}
	p, err := w.session.submit(ctx, header{kind: kindRequest}, le.AppendUint32(nil, number), nil, true)
	if err != nil {
		return err
	}
	if _, err := p.Wait(ctx); err != nil {
		if errors.Is(err, ErrNotYet) {
			return nil
		}
		return err
	}
	if !p.attached {
		return errNoEvents
	}
	defer p.attachment.close()
	got := epochFrom(p.attachment.generation)
	size := uint64(got.size)
	if !isLaneSize(size) || p.attachment.len != broadcastStart+size {
		return w.wrong(faultMemory)
	}
	var h ringHeader
	mem, err := mapChecked(p.attachment.fd, p.attachment.len, func(header []byte) (err error) {
		if h, err = parseRing(header, w.service); err == nil && (h.size != got.size || h.number != got.number) {
			err = faultMemory
		}
		return err
	})
	if err != nil {
		return w.wrong(err)
	}
	ring := newRingReader(mem, h)
	if w.ring != nil {
		unmap(w.ring.mem)
	} else if oldest := ring.mem.load(wordOldest); oldest%headerSize == 0 {
		ring.at = oldest
	}
	w.ring, w.ended = ring, false
	return nil
}

// waitAbove waits until the provider's generation is above this one.
func (w *watcher) waitAbove(ctx context.Context, generation uint64) error {
	if w.session.board.load(wordGeneration) > generation {
		return nil
	}
	p, err := w.session.submit(ctx, header{kind: kindRequest}, le.AppendUint64(nil, generation), nil, false)
	if err != nil {
		return err
	}
	if _, err = p.Wait(ctx); err == nil && w.session.board.load(wordGeneration) <= generation {
		// Another kind of service has answered.
		return errNoGeneration
	}
	return err
}

var errNoGeneration = &ended{errors.New("bellwire: the service has neither snapshots nor events"), ExecutedYes}

// yieldEach yields what next returns, until the context ends or the loop does. An error is the last thing that it yields.
func yieldEach[T any](ctx context.Context, next func(context.Context) (T, error), yield func(T, error) bool) {
	for {
		value, err := next(ctx)
		if ctx.Err() != nil || !yield(value, err) || err != nil {
			return
		}
	}
}

// survive waits for a provider after an error that says that there is none, or that it is busy. Other errors are returned.
func (w *watcher) survive(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrAbsent), peerLeft(err), noAnswer(ctx, err):
		if w.awaited != nil {
			return nil // what the old ring has is read first
		}
		// A provider may accept each client, and say at once that it has stopped.
		if err := sleep(ctx, retryAfter-time.Since(w.opened)); err != nil {
			return err
		}
		w.awaited, err = await(ctx, w.dir, w.service, w.o)
		return err
	case errors.Is(err, ErrBusy), isRefusal(err, RefusedQuota):
		return sleep(ctx, retryAfter)
	}
	return err
}

// sleep returns after a time, or when the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
