//go:build linux

package bellwire

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// serverSession is a server's end of a session. Its goroutine takes requests and runs handlers, or starts them.
type serverSession struct {
	end
	server   *Server
	waiter   *waiter
	ctx      context.Context
	cancel   context.CancelFunc
	forStats bool
	uid      uint32
	held     bool // it counts as a session of its user; the server's mu
	rungBy   doorbells
	attaches uint64 // that came

	parts    []byte // of a message in parts
	inbox    []job
	queued   uint64 // bytes of the requests in it
	running  int    // handlers
	handling bool   // in this goroutine, without mu
	jobs     map[uint64]context.CancelFunc
	stopping bool
	reason   closeReason
	buffers  [][]byte
	tallied  [sumCount]uint64 // what the server's counters have of this session
	kept     []byte           // of the last answer, to be used again

	watching    *job // a request that waits for a generation
	watchedFrom uint64
	watches     atomic.Bool // the same, for the publisher
}

// job is a request that was taken.
type job struct {
	id      uint64
	batch   bool
	trim    bool
	ready   bool // its answer is ok, without a payload
	request []byte
	status  Status // refused before its turn, if not ok
	reason  string
	flags   uint8
}

// run serves until the session ends, and returns why.
func (s *serverSession) run() error {
	defer func() {
		if s.handling {
			// The handler has ended its goroutine, as t.FailNow does, without mu.
			s.mu.Lock()
			s.stats().lost.Add(1)
			s.dropInbox()
			s.cancel()
			s.shut(closeNormal)
			s.leave()
		}
	}()
	s.mu.Lock()
	s.users++
	for {
		err := s.await(s.ctx, s.waiter, 0, func() bool { return len(s.inbox) > 0 || s.stopping })
		if err != nil || len(s.inbox) == 0 {
			break
		}
		for len(s.inbox) > 0 && s.broken == nil {
			j := s.inbox[0]
			s.inbox = s.inbox[1:]
			s.queued -= uint64(len(j.request))
			s.start1(j)
		}
		if s.broken != nil {
			break
		}
		s.inbox = nil
	}
	s.dropInbox()
	err := s.over()
	s.cancel()
	if s.watching != nil {
		s.unwatch()
		s.stats().lost.Add(1)
	}
	// Handlers in goroutines answer first.
	for s.running > 0 {
		if s.await(context.Background(), s.waiter, 0, func() bool { return s.running == 0 }) != nil {
			s.mu.Unlock()
			<-s.waiter.wake
			s.mu.Lock()
		}
	}
	reason := closeNormal
	if s.reason != 0 {
		reason = s.reason
	}
	s.shut(reason)
	s.dropInbox()
	s.addStats()
	s.leave()
	return err
}

// dropInbox gives up the requests that nobody will handle.
func (s *serverSession) dropInbox() {
	for _, j := range s.inbox {
		if !j.trim {
			s.stats().lost.Add(1)
		}
	}
	s.inbox, s.queued = nil, 0
}

// stop ends the session once what was taken is answered.
func (s *serverSession) stop() {
	s.mu.Lock()
	s.stopping, s.reason = true, closeStopping
	s.wakeAll()
	s.waiter.signal()
	s.mu.Unlock()
}

// isFull leaves requests in the lane while enough are taken.
func (s *serverSession) isFull() bool {
	return s.stopping || len(s.inbox)+s.running >= s.server.o.inFlight || len(s.inbox) >= 256 ||
		s.queued >= max(s.agreed.maxMessage, 1<<20)
}

// takeRequest is what the end calls for each record.
func (s *serverSession) takeRequest(h header, payload []byte, whole bool) error {
	switch h.kind {
	case kindRequest:
		if !s.hasParts() && whole {
			s.add(job{id: h.id, flags: h.flags, request: append(s.buffer(), payload...)})
			return nil
		}
		s.parts = append(s.parts, payload...)
		if whole {
			s.add(job{id: h.id, flags: h.flags, request: s.parts})
			s.parts = nil
		}
	case kindAttach:
		s.attaches++
		j := job{id: h.id}
		var err error
		j.request, err = s.attachment.appendTo(s.buffer())
		if isShortage(err) {
			j.status = StatusBusy
		} else if err != nil {
			return faultMemory
		}
		s.add(j)
	case kindCancel:
		s.cancelJob(h.id)
	case kindTrim:
		s.add(job{trim: true})
	case kindClose:
		s.gone = &closedByPeer{closeReason(h.status)}
		s.wakeAll()
	}
	return nil
}

func (s *serverSession) hasParts() bool { return len(s.parts) > 0 }

func (s *serverSession) buffer() []byte {
	if n := len(s.buffers); n > 0 {
		b := s.buffers[n-1]
		s.buffers = s.buffers[:n-1]
		return b[:0]
	}
	return make([]byte, 0, 512)
}

func (s *serverSession) recycle(b []byte) {
	if cap(b) <= 1<<16 && len(s.buffers) < 256 && len(s.buffers)*cap(b) < 1<<20 {
		s.buffers = append(s.buffers, b)
	}
}

func (s *serverSession) add(j job) {
	j.batch = j.flags&flagBatch != 0
	if !j.trim {
		s.counters[countRequests]++
		s.stats().accepted.Add(1)
	}
	s.queue(j)
}

func (s *serverSession) queue(j job) {
	s.inbox = append(s.inbox, j)
	s.queued += uint64(len(j.request))
	s.waiter.signal()
}

// cancelJob gives up a request that has not begun, or ends the context of one that runs.
func (s *serverSession) cancelJob(id uint64) {
	if s.hasParts() && s.rx.message.id == id && !s.rx.inParts {
		s.parts = nil // broken off
		return
	}
	if i := slices.IndexFunc(s.inbox, func(j job) bool { return j.id == id }); i >= 0 && id != 0 {
		s.inbox[i].status = StatusCancelled
	}
	if cancel := s.jobs[id]; cancel != nil {
		cancel()
	}
	if s.watching != nil && s.watching.id == id {
		s.answer(s.unwatch(), StatusCancelled, nil)
	}
}

// start1 runs one job, or starts its goroutine. mu is held; it is released while the handler runs.
func (s *serverSession) start1(j job) {
	switch {
	case j.trim:
		s.shrink()
		s.buffers = nil
		if s.send(s.ctx, s.waiter, header{kind: kindTrim}, nil, nil) == nil {
			s.commit()
		}
	case j.status != StatusOK || j.ready:
		s.answer(j, j.status, []byte(j.reason))
	case s.forStats:
		status, answer := s.server.statsAnswer(j.request)
		s.answer(j, status, answer)
	case s.server.source != nil:
		s.serveSource(j)
	case s.server.o.concurrency == 1:
		s.handling = true
		s.mu.Unlock()
		answer, status := s.handle(s.ctx, j, s.kept)
		s.mu.Lock()
		s.handling = false
		s.answer(j, status, answer)
		if cap(answer) <= 1<<16 && !aliases(answer, j.request) {
			s.kept = answer[:0]
		}
	default:
		s.startGoroutine(j)
	}
}

func (s *serverSession) startGoroutine(j job) {
	limit := s.server.o.concurrency
	if s.running >= limit {
		if s.await(s.ctx, s.waiter, 0, func() bool { return s.running < limit }) != nil {
			s.stats().lost.Add(1)
			return
		}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	if s.jobs == nil {
		s.jobs = map[uint64]context.CancelFunc{}
	}
	if j.id != 0 {
		s.jobs[j.id] = cancel
	}
	s.running++
	go func() {
		answer, status := []byte(nil), StatusPanicked // of a handler that ends its goroutine
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.jobs, j.id)
			cancel()
			s.answer(j, status, answer)
			s.running--
			s.waiter.signal()
			s.wakeAll()
		}()
		answer, status = s.handle(ctx, j, nil)
	}()
}

// handle runs the handler for a request, or for each of a batch.
func (s *serverSession) handle(ctx context.Context, j job, buffer []byte) ([]byte, Status) {
	if !j.batch {
		return s.server.call(ctx, j.request, buffer)
	}
	count, err := batchCount(j.request)
	if err == nil && count > int(s.server.o.maxBatch) {
		err = fmt.Errorf("the batch has %d items, and the provider takes %d", count, s.server.o.maxBatch)
	}
	var items []Item
	if err == nil {
		items, err = parseBatch(j.request)
	}
	if err != nil {
		return append(buffer, err.Error()...), StatusMalformed
	}
	most := s.agreed.maxMessage - min(s.agreed.maxMessage, batchHead)
	room := most - min(most, 5*uint64(count)) // beside an end and a status for each answer
	for i := range items {
		if s.ctx.Err() != nil {
			items[i] = Item{Status: StatusStopping}
			continue
		}
		items[i].Bytes, items[i].Status = s.server.call(ctx, items[i].Bytes, nil)
		if st := items[i].Status; st != StatusOK && st != StatusFailed && st != StatusMalformed {
			items[i].Bytes = nil
		}
		// What the message has no room for fails alone, and is not held.
		n := uint64(len(items[i].Bytes))
		if i == 0 && n*uint64(count) <= most {
			room = most // answers of one length need neither
		}
		if n > room {
			items[i], n = Item{Status: StatusTooLarge}, 0
		}
		room -= n
	}
	return appendBatch(buffer, items), StatusOK
}

// call runs the handler once.
func (s *Server) call(ctx context.Context, request, buffer []byte) (answer []byte, status Status) {
	defer func() {
		if cause := recover(); cause != nil {
			s.stats.panics.Add(1)
			s.o.log.Error("a handler panicked", "service", s.service, "cause", cause, "stack", string(debug.Stack()))
			answer, status = nil, StatusPanicked
		}
	}()
	answer, err := s.handler(ctx, request, buffer)
	if err == nil {
		return answer, StatusOK
	}
	var given *CallError
	if errors.As(err, &given) && given.Status != StatusOK && given.Status.known() {
		code := given.Code
		if given.Status != StatusFailed {
			code = 0
		}
		return appendReason(buffer[:0], code, given.Reason), given.Status
	}
	return appendReason(buffer[:0], 0, err.Error()), StatusFailed
}

// answer sends the answer to a request. mu is held.
func (s *serverSession) answer(j job, status Status, answer []byte) {
	defer s.recycle(j.request) // which the answer may lie in
	s.count(status, j.id == 0)
	if j.id == 0 {
		return
	}
	if s.lengthAllowed(len(answer)) != nil {
		status, answer = StatusTooLarge, nil
	}
	h := header{kind: kindResponse, status: uint16(status), id: j.id}
	if s.over() == nil && s.answerWithin(h, answer) == nil {
		s.commit()
	}
}

// drainFor is how long a server that closes waits for a client to read.
const drainFor = time.Second

// answerWithin gives up a client that reads nothing.
func (s *serverSession) answerWithin(h header, answer []byte) error {
	n := uint64(len(answer))
	if _, fits := s.tx.needs(n); fits && n <= maxPayload(uint64(s.tx.epoch.size)) && !s.sending {
		s.tx.put(h, answer)
		return nil
	}
	head := s.tx.head
	for {
		ctx, cancel := context.WithTimeout(context.Background(), s.server.o.stall)
		closing := context.AfterFunc(s.server.ctx, func() { time.AfterFunc(drainFor, cancel) })
		err := s.send(ctx, s.waiterFor(), h, answer, nil)
		closing()
		cancel()
		if err == nil || !isContext(err) {
			return err
		}
		if s.tx.head == head || s.server.ctx.Err() != nil {
			s.reason, s.stopping = closeStalled, true
			s.server.stats.stalled.Add(1)
			s.server.stats.incident(s.uid, incidentStalled)
			s.shut(closeStalled)
			return err
		}
		head = s.tx.head
	}
}

func (s *serverSession) waiterFor() *waiter {
	if s.waiter.at < 0 && s.server.o.concurrency == 1 {
		return s.waiter
	}
	return newWaiter()
}

// stats are the counters of the service, or of the sessions that ask for counters.
func (s *serverSession) stats() *serverStats {
	if s.forStats {
		return &s.server.observerStats
	}
	return &s.server.stats
}

// count adds an answer to the counters of the page and of the server.
func (s *serverSession) count(status Status, posted bool) {
	stats := s.stats()
	if posted {
		s.counters[countPosted]++
		stats.posted.Add(1)
		if status != StatusOK {
			stats.postErrors.Add(1)
		}
		return
	}
	switch status {
	case StatusOK:
		s.counters[countAnswered]++
		stats.answered.Add(1)
	case StatusFailed, StatusTooLarge, StatusPanicked, StatusShort:
		s.counters[countAnswered]++
		s.counters[countErrors]++
		stats.answered.Add(1)
		stats.errors.Add(1)
	default:
		s.counters[countRefused]++
		stats.refused.Add(1)
	}
	if status == StatusPanicked {
		s.counters[countPanics]++
	}
	if s.counters[countAnswered]&63 == 1 {
		s.export()
	}
}

// aliases reports whether two slices end in the same array.
func aliases(a, b []byte) bool {
	return cap(a) > 0 && cap(b) > 0 && &a[:cap(a)][cap(a)-1] == &b[:cap(b)][cap(b)-1]
}
