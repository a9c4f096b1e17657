//go:build linux

package bellwire

import (
	"context"
	"errors"
	"iter"
)

// Snapshot is one generation of what a provider publishes. Its bytes are this process's own: they stay, and nobody else
// changes them.
type Snapshot struct {
	Generation uint64 // from 1, in the life of a provider
	Bytes      []byte
}

// SnapshotReader follows the snapshots of a service, whichever process provides it. One goroutine uses it at a time.
type SnapshotReader struct {
	watcher
	current *Snapshot
	seen    uint64 // the generation that the board had when current was taken
}

// NewSnapshotReader makes a reader of a service in a run directory. It does not connect yet.
func NewSnapshotReader(dir, service string, list ...Option) (*SnapshotReader, error) {
	w, err := newWatcher(dir, service, list)
	if err != nil {
		return nil, err
	}
	return &SnapshotReader{watcher: *w}, nil
}

// Current is the newest snapshot that was taken, or nil. It stays while there is no provider.
func (r *SnapshotReader) Current() *Snapshot { return r.current }

// Refresh takes the newest snapshot if there is a newer one. While nothing has changed it makes no system call. It fails with
// ErrAbsent if there is no provider, and with ErrNotYet before the first snapshot; Current stays what it was.
func (r *SnapshotReader) Refresh(ctx context.Context) (changed bool, err error) {
	if s := r.session; s != nil && !s.ended.Load() && s.board.load(wordGeneration) == r.seen && r.seen != 0 {
		return false, nil
	}
	return r.refresh(ctx)
}

func (r *SnapshotReader) refresh(ctx context.Context) (bool, error) {
	opened, err := r.open(ctx)
	if err != nil {
		return false, err
	}
	if opened {
		r.seen = 0
	}
	generation := r.session.board.load(wordGeneration)
	if r.session.board.load(wordServing) != 1 {
		r.drop()
		return false, ErrPeerGone
	}
	if generation == r.seen {
		if generation == 0 {
			return false, ErrNotYet
		}
		return false, nil
	}
	next, err := r.fromRing(ctx, generation)
	if err == nil && next == nil {
		next, err = r.fromMemory(ctx)
	}
	if err != nil {
		return false, err
	}
	r.current, r.seen = next, generation
	return true, nil
}

// fromRing takes the newest snapshot out of the broadcast ring, if it is there.
func (r *SnapshotReader) fromRing(ctx context.Context, generation uint64) (*Snapshot, error) {
	for {
		if err := r.mapRing(ctx); err != nil || r.ring == nil {
			return nil, err
		}
		r.ring.gaps = true
		if there, err := r.ring.toNewest(); err != nil {
			return nil, r.wrong(err)
		} else if !there {
			return nil, nil
		}
		record, ok, err := r.ring.next(nil)
		switch {
		case err != nil:
			return nil, r.wrong(err)
		case ok && record.next != 0:
			r.watcher.ended = true
			continue
		case ok && record.sequence >= generation:
			return &Snapshot{record.sequence, record.bytes}, nil
		case !ok:
			return nil, nil
		}
	}
}

// fromMemory asks for the newest snapshot in memory of its own.
func (r *SnapshotReader) fromMemory(ctx context.Context) (*Snapshot, error) {
	p, err := r.session.submit(ctx, header{kind: kindRequest}, nil, nil, true)
	if err != nil {
		return nil, err
	}
	if _, err := p.Wait(ctx); err != nil {
		return nil, err
	}
	if !p.attached {
		return nil, errNoAttachment
	}
	bytes, err := p.attachment.appendTo(nil)
	if err != nil {
		return nil, r.wrong(err)
	}
	return &Snapshot{p.attachment.generation, bytes}, nil
}

var errNoAttachment = &ended{errors.New("bellwire: the provider publishes no snapshots"), ExecutedYes}

// Next waits for a snapshot that is newer than Current, also while there is no provider.
func (r *SnapshotReader) Next(ctx context.Context) (*Snapshot, error) {
	for {
		changed, err := r.Refresh(ctx)
		if changed {
			return r.current, nil
		}
		if err == nil || errors.Is(err, ErrNotYet) {
			err = r.waitAbove(ctx, r.seen)
		}
		if err = r.survive(ctx, err); err != nil {
			return nil, err
		}
	}
}

// Snapshots yields each snapshot that the reader sees, beginning with the newest, until the context ends or the loop does; it
// waits while there is no provider. An error is the last thing that it yields: a refusal, a protocol violation.
func Snapshots(ctx context.Context, dir, service string, list ...Option) iter.Seq2[*Snapshot, error] {
	return func(yield func(*Snapshot, error) bool) {
		r, err := NewSnapshotReader(dir, service, list...)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.Close()
		yieldEach(ctx, r.Next, yield)
	}
}
