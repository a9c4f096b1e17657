//go:build linux

package bellwire

import (
	"context"
	"fmt"
	"slices"
)

const (
	learnedLane = 1 << 20 // the largest lane that grows because it is full, or for one message
	attachFrom  = 4 << 20 // bytes; shorter messages go through the lane
	fullsToGrow = 16
)

// lengthAllowed checks a message against the limits of both ends.
func (e *end) lengthAllowed(n int) error {
	if uint64(n) <= e.agreed.maxMessage {
		return nil
	}
	return &LengthError{uint64(n), e.agreed.maxMessage, e.peers.maxMessage < e.limits.maxMessage}
}

// send writes a message, in one record, in parts, or as an attachment if it is long and may be. It publishes parts, and
// leaves the last record to commit. mu is held, and released while the message waits for room. A request whose
// context ends between its parts is broken off. number gives the id, if it is not nil, when the first record is
// written: ids grow in the order of records.
func (e *end) send(ctx context.Context, w *waiter, h header, payload []byte, number func() uint64) error {
	if e.sending {
		if err := e.await(ctx, w, 0, func() bool { return !e.sending }); err != nil {
			return err
		}
	}
	if err := e.over(); err != nil {
		return err
	}
	n := uint64(len(payload))
	if n > maxPayload(uint64(e.tx.epoch.size)) {
		if n >= attachFrom && h.flags&flagBatch == 0 {
			done, err := e.sendConstant(ctx, w, h, payload, number)
			if done || err != nil {
				return err
			}
		}
		e.grow(min(laneFor(min(n, maxPayload(learnedLane))), e.largest))
	}
	if n <= maxPayload(uint64(e.tx.epoch.size)) {
		if err := e.room(ctx, w, n); err != nil {
			return err
		}
		// Room was made by leaving mu: another message may be on its way.
		if e.sending {
			return e.send(ctx, w, h, payload, number)
		}
		if number != nil {
			h.id = number()
		}
		e.tx.put(h, payload)
		return nil
	}
	return e.sendParts(ctx, w, h, payload, number)
}

func (e *end) sendParts(ctx context.Context, w *waiter, h header, payload []byte, number func() uint64) error {
	e.sending = true
	defer func() {
		e.sending = false
		e.wakeAll()
	}()
	for begun := false; ; begun = true {
		part := payload[:min(len(payload), int(uint64(e.tx.epoch.size)/4-headerSize))]
		if err := e.room(ctx, w, uint64(len(part))); err != nil {
			if begun && isContext(err) && e.role == roleClient {
				e.queueCancel(h.id)
			}
			return err
		}
		if !begun && number != nil {
			h.id = number()
		}
		payload = payload[len(part):]
		h.flags &^= flagMore
		if len(payload) > 0 {
			h.flags |= flagMore
		}
		e.tx.put(h, part)
		if len(payload) == 0 {
			return nil
		}
		e.commit()
	}
}

// room waits until a record with this payload fits.
func (e *end) room(ctx context.Context, w *waiter, payload uint64) error {
	head, fits := e.tx.needs(payload)
	if fits {
		return nil
	}
	if err := e.tx.checkHead(e.peer.load(wordHead), e.published); err != nil {
		e.poison(err)
		return e.over()
	}
	if head, fits = e.tx.needs(payload); fits {
		return nil
	}
	e.counters[countLaneFull]++
	if e.tx.fulls++; e.tx.fulls >= fullsToGrow && e.tx.epoch.size < learnedLane {
		e.grow(2 * uint64(e.tx.epoch.size))
		if head, fits = e.tx.needs(payload); fits {
			return nil
		}
	}
	for !fits {
		e.commit()
		err := e.await(ctx, w, head, func() bool { return e.tx.head >= head })
		if err != nil {
			return err
		}
		// Another caller may have been quicker.
		head, fits = e.tx.needs(payload)
	}
	return nil
}

// grow goes on in a lane of this size, or a larger one as it is, if limits and resources allow it.
func (e *end) grow(size uint64) {
	if size > e.largest || size <= uint64(e.tx.epoch.size) || !e.switchLane(size) {
		return
	}
	e.counters[countGrows]++
}

// shrink goes back to the least lane.
func (e *end) shrink() {
	if least := uint64(e.limits.leastLane); least < uint64(e.tx.epoch.size) && e.switchLane(least) {
		e.counters[countShrinks]++
	}
}

func (e *end) switchLane(size uint64) bool {
	if len(e.tx.left) >= maxEpochs || e.tx.inUse()+size > e.agreed.maxShared {
		return false
	}
	next := e.tx.next(size)
	fd, mem, err := newShared(e.memfdName("lane", e.session), int(size))
	if err != nil {
		return false
	}
	err = e.sock.send(numbered(controlLane, 1, next.id()), false, fd)
	closeOwn(fd)
	if err != nil {
		unmap(mem)
		return false
	}
	unmap(e.tx.switchTo(next, mem))
	return true
}

// memfdName is by which observers find the two ends of a session. The number is the session's, or a client's process id before that is
// known.
func (e *end) memfdName(of string, number uint64) string {
	role := "client"
	if e.role == roleServer {
		role = "server"
	}
	return fmt.Sprintf("bellwire-%s-%s-%s-%d", of, role, e.service, number)
}

// sendConstant sends a message as an attachment; it reports false if limits or resources forbid that for now.
func (e *end) sendConstant(ctx context.Context, w *waiter, h header, payload []byte, number func() uint64) (bool, error) {
	memory := roundedUp(uint64(len(payload)))
	if e.tx.inUse()+memory > e.agreed.maxShared {
		return false, nil
	}
	fd, err := newConstant("bellwire-attachment-"+e.service, payload)
	if err != nil {
		return false, nil
	}
	defer closeOwn(fd)
	return e.sendMemfd(ctx, w, h, passed{0, 0, uint64(len(payload))}, memory, fd, number)
}

// sendMemfd passes constant memory and writes its attach record.
func (e *end) sendMemfd(ctx context.Context, w *waiter, h header, p passed, memory uint64, fd int, number func() uint64) (bool, error) {
	for {
		if err := e.room(ctx, w, 0); err != nil {
			return false, err
		}
		if e.sending {
			if err := e.await(ctx, w, 0, func() bool { return !e.sending }); err != nil {
				return false, err
			}
			continue
		}
		if len(e.tx.attached) < maxAttachments {
			break
		}
		// One more waits as a record waits for room.
		oldest := e.tx.attached[0].end
		if err := e.await(ctx, w, oldest, func() bool { return e.tx.head >= oldest }); err != nil {
			return false, err
		}
	}
	if number != nil {
		h.id = number()
	}
	p.id = h.id
	if err := e.sock.send(p.encode(), false, fd); err != nil {
		// A full socket is a shortage, too.
		return false, nil
	}
	h.kind, h.flags = kindAttach, 0
	e.tx.put(h, nil)
	e.tx.attached = append(slices.Clip(e.tx.attached), attached{e.tx.written, memory})
	e.counters[countAttaches]++
	return true, nil
}
