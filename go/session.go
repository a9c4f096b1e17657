//go:build linux

package bellwire

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// Session is one open session with a provider. Any number of goroutines may use it at once.
//
// Each wait ends with its context. A request that was given up is cancelled at the server; its handler may run, or have
// run, all the same: see ExecutedOf.
type Session struct {
	end
	pending        map[uint64]*Pending
	lastID         uint64
	posted         uint64 // where the last one-way request ends
	trims          int    // asked for and not done
	maxBatch       int
	serviceVersion uint32
	slept          uint64 // parks when the last call was timed
}

// Pending is a request that was sent and whose answer was not taken yet.
type Pending struct {
	s          *Session
	w          *waiter
	id         uint64
	end        uint64 // where its last record ends
	sent       uint64 // when, for the latency; 0 if it is not timed
	counts     uint64
	done       bool
	taken      bool
	left       bool // nobody wants the answer any more
	kept       bool // the caller may use it again
	asIs       bool // an attachment is wanted as it came, not as a copy
	status     Status
	answer     []byte
	attachment received
	attached   bool
	err        error
}

var pendings = sync.Pool{New: func() any { return &Pending{w: newWaiter()} }}

var errTaken = errors.New("bellwire: the answer was taken already")

// Call sends a request and returns its answer. The request is not kept.
func (s *Session) Call(ctx context.Context, request []byte) ([]byte, error) {
	return s.AppendCall(ctx, nil, request)
}

// AppendCall is Call that appends the answer to dst, and so allocates nothing if it fits.
func (s *Session) AppendCall(ctx context.Context, dst, request []byte) ([]byte, error) {
	p, err := s.submit(ctx, header{kind: kindRequest}, request, dst, false)
	if err != nil {
		return dst, err
	}
	return p.Wait(ctx)
}

// Submit sends a request and returns before its answer: a pipeline is some of them before the first Wait. Each Pending
// has to be waited for, or cancelled.
func (s *Session) Submit(ctx context.Context, request []byte) (*Pending, error) {
	p, err := s.submit(ctx, header{kind: kindRequest}, request, nil, false)
	if err == nil {
		p.kept = true
	}
	return p, err
}

// Batch sends many requests in one message, and returns as many answers in the same order. They lie in one buffer. The handler
// runs for each request, also where its answer no longer fits the message: that item has StatusTooLarge and no bytes.
func (s *Session) Batch(ctx context.Context, requests [][]byte) ([]Item, error) {
	if len(requests) > s.maxBatch {
		return nil, &LengthError{uint64(len(requests)), uint64(s.maxBatch), true}
	}
	items := make([]Item, len(requests))
	for i, request := range requests {
		items[i].Bytes = request
	}
	p, err := s.submit(ctx, header{kind: kindRequest, flags: flagBatch}, appendBatch(nil, items), nil, false)
	if err != nil {
		return nil, err
	}
	answer, err := p.Wait(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := parseBatch(answer)
	if err == nil && len(answers) != len(requests) {
		err = errBatch
	}
	if err != nil {
		return nil, &ended{err, ExecutedYes}
	}
	return answers, nil
}

// Post sends a request that is handled and never answered. Flush waits until the server has taken it.
func (s *Session) Post(ctx context.Context, request []byte) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	p := pendings.Get().(*Pending)
	defer pendings.Put(p)
	err := ctx.Err()
	if err == nil {
		err = s.lengthAllowed(len(request))
	}
	if err == nil {
		err = s.send(ctx, p.w, header{kind: kindRequest}, request, nil)
	}
	if err != nil {
		s.counters[countUnsent]++
		return err
	}
	s.counters[countRequests]++
	s.counters[countPosted]++
	s.posted = s.tx.written
	s.commit()
	return nil
}

// Flush waits until the server has taken every one-way request of this session, and so runs its handler for each. It fails
// with ErrPeerGone or ErrStopping if the server ended before that.
func (s *Session) Flush(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	w, end := newWaiter(), s.posted
	return s.await(ctx, w, end, func() bool { return s.tx.head >= end })
}

// Trim makes the lanes of both ends as small as they may be, and waits until the server has done so.
func (s *Session) Trim(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	w := newWaiter()
	if err := s.await(ctx, w, 0, func() bool { return !s.sending && s.trims == 0 }); err != nil {
		return err
	}
	s.shrink()
	if err := s.send(ctx, w, header{kind: kindTrim}, nil, nil); err != nil {
		return err
	}
	s.trims++
	s.commit()
	return s.await(ctx, w, 0, func() bool { return s.trims == 0 })
}

// Close ends the session. Calls that are under way fail with ErrClosed.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut(closeNormal)
	return nil
}

// Err is why nothing can be called any more, or nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over()
}

// submit writes and publishes a request. The answer will be appended to dst.
func (s *Session) submit(ctx context.Context, h header, request, dst []byte, asIs bool) (*Pending, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	p := pendings.Get().(*Pending)
	*p = Pending{s: s, w: p.w, answer: dst, kept: asIs, asIs: asIs}
	err := ctx.Err()
	if err == nil {
		err = s.lengthAllowed(len(request))
	}
	if err == nil && len(s.pending) >= maxWaiting/2 {
		err = s.await(ctx, p.w, 0, func() bool { return len(s.pending) < maxWaiting/2 })
	}
	if err == nil {
		s.flushCancels()
		// The latency of calls that sleep, and of one in 64 others.
		if len(s.pending) == 0 && (s.lastID == 0 || s.parks != s.slept) {
			p.counts = 1
		} else if len(s.pending) == 0 && rand.Uint32()&63 == 0 {
			p.counts = 64
		}
		if p.counts > 0 {
			p.sent = now()
		}
		err = s.send(ctx, p.w, h, request, p.number)
	}
	if err != nil {
		s.counters[countUnsent]++
		delete(s.pending, p.id)
		pendings.Put(p)
		return nil, err
	}
	p.end = s.tx.written
	s.counters[countRequests]++
	s.commit()
	return p, nil
}

// number gives the request its id.
func (p *Pending) number() uint64 {
	s := p.s
	delete(s.pending, p.id)
	s.lastID++
	p.id = s.lastID
	s.pending[p.id] = p
	return p.id
}

// Wait waits for the answer. It is to be called once; a request that is cancelled has none.
func (p *Pending) Wait(ctx context.Context) ([]byte, error) {
	s := p.s
	if err := s.enter(); err != nil {
		return nil, &ended{err, ExecutedMaybe}
	}
	defer s.leave()
	if p.taken {
		return nil, &ended{errTaken, ExecutedMaybe}
	}
	if err := s.await(ctx, p.w, 0, func() bool { return p.done || p.left }); err != nil {
		return nil, s.giveUp(p, err)
	}
	if p.left {
		return nil, &ended{ErrCancelled, ExecutedMaybe}
	}
	return s.finish(p)
}

// Cancel gives the request up, unless its answer has come, and ends its Wait. Its handler may run all the same.
func (p *Pending) Cancel() {
	s := p.s
	if s.enter() != nil {
		return
	}
	defer s.leave()
	if !p.done && !p.left && s.pending[p.id] == p {
		_ = s.giveUp(p, ErrCancelled)
		p.w.signal()
		s.bell.kick()
	}
}

// giveUp leaves a request that has no answer yet. Who ran it is known from Head if the server is gone.
func (s *Session) giveUp(p *Pending, err error) error {
	s.counters[countFailed]++
	if errors.Is(err, context.DeadlineExceeded) {
		s.counters[countLate]++
	}
	p.left = true
	ran := ExecutedMaybe
	if s.over() != nil {
		if s.own != nil && s.peer.load(wordHead) < p.end {
			ran = ExecutedNo
		}
		delete(s.pending, p.id)
	} else {
		s.queueCancel(p.id)
		s.flushCancels()
	}
	return &ended{err, ran}
}

func (s *Session) finish(p *Pending) ([]byte, error) {
	answer, status, err := p.answer, p.status, p.err
	switch {
	case err != nil:
		s.counters[countFailed]++
		s.counters[countErrors]++
		err = &ended{err, ExecutedYes}
	case status == StatusOK:
		s.counters[countAnswered]++
		if p.counts > 0 {
			s.timed(time.Duration(now()-p.sent), p.counts)
			s.slept = s.parks
		}
	default:
		err = parseReason(status, answer)
		switch {
		case ExecutedOf(err) == ExecutedNo:
			s.counters[countRefused]++
		default:
			s.counters[countFailed]++
			s.counters[countErrors]++
		}
		answer = nil
	}
	if p.asIs && p.attached && err != nil {
		p.attachment.close()
	}
	if p.kept {
		pendings.Put(&Pending{w: p.w})
		p.taken, p.w = true, nil
	} else {
		pendings.Put(p)
	}
	return answer, err
}

// queueCancel remembers a cancel until it fits the lane.
func (e *end) queueCancel(id uint64) { e.cancels = append(e.cancels, id) }

// flushCancels writes the cancels that fit. They may lie between the parts of a message.
func (e *end) flushCancels() {
	for len(e.cancels) > 0 && e.over() == nil {
		if _, fits := e.tx.needs(0); !fits {
			return
		}
		e.tx.put(header{kind: kindCancel, id: e.cancels[0]}, nil)
		e.cancels = e.cancels[1:]
		e.commit()
	}
}

// takeAnswer is what the end calls for each record.
func (s *Session) takeAnswer(h header, payload []byte, whole bool) error {
	switch h.kind {
	case kindTrim:
		s.trims = 0
		s.wakeAll()
	case kindClose:
		s.gone = &closedByPeer{closeReason(h.status)}
		s.ended.Store(true)
		s.wakeAll()
	case kindResponse, kindAttach:
		p := s.pending[h.id]
		if p == nil {
			// Its parts had begun when it was given up.
			return faultUnknownID
		}
		if !p.left {
			p.answer = append(p.answer, payload...)
		}
		if !whole {
			return nil
		}
		delete(s.pending, h.id)
		if len(s.pending) == maxWaiting/2-1 {
			s.wakeAll()
		}
		p.status, p.done = Status(h.status), true
		if h.kind == kindAttach {
			s.takeMemory(p)
		}
		if p.left {
			s.counters[countDropped]++
			if p.asIs && h.kind == kindAttach {
				s.attachment.close()
			}
			return nil
		}
		p.w.signal()
	}
	return nil
}

// takeMemory reads the attachment that is an answer.
func (s *Session) takeMemory(p *Pending) {
	p.attachment, p.attached = s.attachment, true
	if p.asIs {
		return
	}
	var err error
	if p.answer, err = s.attachment.appendTo(p.answer); err != nil {
		p.err = s.violation(err)
		if !isShortage(err) {
			s.poison(faultMemory)
		}
	}
}

// closedByPeer is a Close record, as an error.
type closedByPeer struct{ reason closeReason }

func (c *closedByPeer) Error() string {
	return "bellwire: the peer closed the session: " + c.reason.String()
}

// Unwrap returns the error of the reason. A session that the peer poisoned is ErrProtocol, though this end is to blame.
func (c *closedByPeer) Unwrap() error {
	switch c.reason {
	case closePoisoned:
		return ErrProtocol
	case closeStopping:
		return ErrStopping
	case closeStalled:
		return ErrStalled
	}
	return ErrPeerGone
}
