//go:build linux

package bellwire

import (
	"context"
	"errors"
	"iter"
)

// Event is one of what a provider publishes for all.
type Event struct {
	Number uint64 // from 1, in the life of a provider
	Missed uint64 // events before this one that the subscriber was too slow for
	Bytes  []byte // this process's own
}

// Subscriber gets each event of a service, or learns how many it missed. One goroutine uses it at a time.
type Subscriber struct {
	watcher
	last    uint64 // the number of the newest event that was taken
	oldest  bool   // begin with the oldest event that the provider keeps
	started bool
}

// Subscribe begins with the next event, or with the oldest that the provider keeps. It waits for a provider.
func Subscribe(ctx context.Context, dir, service string, oldest bool, list ...Option) (*Subscriber, error) {
	w, err := newWatcher(dir, service, list)
	if err != nil {
		return nil, err
	}
	s := &Subscriber{watcher: *w, oldest: oldest}
	for !s.started {
		if err := s.survive(ctx, s.start(ctx)); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// start opens a session, and finds out where to begin.
func (s *Subscriber) start(ctx context.Context) error {
	opened, err := s.open(ctx)
	if err != nil {
		return err
	}
	if opened {
		// Events up to this one are over, unless they are wanted; of another provider all are new.
		generation := s.session.board.load(wordGeneration)
		switch {
		case s.started:
			s.last = 0
		case !s.oldest:
			s.last = generation
		}
	}
	if err := s.mapRing(ctx); err != nil {
		return err
	}
	s.started = true
	return nil
}

// Next waits for the next event, also while there is no provider.
func (s *Subscriber) Next(ctx context.Context) (Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Event{}, err
		}
		event, ok, err := s.take(ctx)
		if ok {
			return event, nil
		}
		if err == nil {
			err = s.waitAbove(ctx, max(s.last, s.skipped()))
		}
		if err = s.survive(ctx, err); err != nil {
			return Event{}, err
		}
	}
}

// skipped is the number of the newest event that the ring has shown.
func (s *Subscriber) skipped() uint64 {
	if s.ring == nil {
		return 0
	}
	return s.ring.expected - 1
}

func (s *Subscriber) take(ctx context.Context) (Event, bool, error) {
	for {
		if s.session == nil || s.ring == nil || s.watcher.ended {
			if err := s.start(ctx); err != nil {
				return Event{}, false, err
			}
			if s.ring == nil {
				return Event{}, false, nil
			}
		}
		record, ok, err := s.ring.next(nil)
		switch {
		case err != nil:
			return Event{}, false, s.wrong(err)
		case !ok:
			if s.session.board.load(wordServing) != 1 || s.session.ended.Load() {
				s.drop()
				return Event{}, false, ErrPeerGone
			}
			return Event{}, false, nil
		case record.next != 0:
			s.watcher.ended = true
			continue
		case record.sequence <= s.last:
			continue
		}
		event := Event{Number: record.sequence, Bytes: record.bytes}
		if s.last > 0 || !s.oldest {
			event.Missed = record.sequence - s.last - 1
		}
		s.last, s.oldest = record.sequence, false
		return event, true, nil
	}
}

// Events yields each event from the next one on, until the context ends or the loop does; it waits while there is no provider.
// An error is the last thing that it yields.
func Events(ctx context.Context, dir, service string, list ...Option) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s, err := Subscribe(ctx, dir, service, false, list...)
		if err != nil {
			if ctx.Err() == nil {
				yield(Event{}, err)
			}
			return
		}
		defer s.Close()
		yieldEach(ctx, s.Next, yield)
	}
}

var errNoEvents = errors.New("bellwire: the provider has no broadcast ring")
