//go:build linux

package bellwire

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// ringSize is what a publisher's broadcast ring has for records, unless Ring says otherwise.
const ringSize = 1 << 20

// Ring is how many bytes a publisher keeps for readers that fall behind: a power of two from 4096 to 2³⁰. A snapshot or an
// event of up to a quarter of it travels in it. 2²⁰ without this option.
func Ring(bytes uint32) Option { return func(o *options) { o.ring = bytes } }

// source is what a service of snapshots or events serves.
type source struct {
	mu         sync.Mutex
	events     bool
	generation uint64
	ring       ringWriter
	ringFD     int
	newestFD   int // of the newest snapshot, or -1
	newestLen  uint64
}

// Publisher publishes snapshots: each replaces the one before. Any number of processes read the newest.
type Publisher struct{ publishing }

// EventPublisher publishes events: every subscriber gets each, or learns how many it missed.
type EventPublisher struct{ publishing }

type publishing struct {
	server *Server
	from   *source
	closed bool
}

// Publish serves snapshots of a service until Close.
func Publish(dir, service string, list ...Option) (*Publisher, error) {
	p, err := newPublishing(dir, service, false, list)
	if err != nil {
		return nil, err
	}
	return &Publisher{*p}, nil
}

// PublishEvents serves events of a service until Close.
func PublishEvents(dir, service string, list ...Option) (*EventPublisher, error) {
	p, err := newPublishing(dir, service, true, list)
	if err != nil {
		return nil, err
	}
	return &EventPublisher{*p}, nil
}

func newPublishing(dir, service string, events bool, list []Option) (*publishing, error) {
	o, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	if !isLaneSize(uint64(o.ring)) {
		return nil, fmt.Errorf("bellwire: a ring of %d bytes: it takes a power of two from 4096 to 2³⁰", o.ring)
	}
	from := &source{events: events, newestFD: -1}
	fd, ring, err := newShared("bellwire-broadcast-"+service, int(broadcastStart+o.ring))
	if err != nil {
		return nil, err
	}
	ringHeader{size: o.ring, number: 1, first: 1, name: service}.write(ring)
	from.ringFD, from.ring = fd, ringWriter{mem: ring, size: uint64(o.ring), number: 1}
	server, err := listen(dir, service, nil, from, list)
	if err != nil {
		unmap(ring)
		closeOwn(fd)
		return nil, err
	}
	server.board.store(wordRing, epoch{1, o.ring}.id())
	return &publishing{server: server, from: from}, nil
}

// Publish makes the next generation of the snapshot out of these bytes, and returns its number. It waits for no reader.
func (p *Publisher) Publish(snapshot []byte) (generation uint64, err error) {
	defer p.answerWatchers()
	f := p.from
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.closed {
		return 0, ErrClosed
	}
	if uint64(len(snapshot)) > p.server.o.limits.maxMessage {
		return 0, &LengthError{uint64(len(snapshot)), p.server.o.limits.maxMessage, false}
	}
	fd, err := newConstant("bellwire-snapshot-"+p.server.service, snapshot)
	if err != nil {
		return 0, err
	}
	if f.newestFD >= 0 {
		closeOwn(f.newestFD)
	}
	f.newestFD, f.newestLen = fd, uint64(len(snapshot))
	return p.publish(snapshot), nil
}

// Send publishes an event, and returns its number. It waits for no subscriber. An event has at most a quarter of the ring,
// less 16 bytes.
func (p *EventPublisher) Send(event []byte) (number uint64, err error) {
	defer p.answerWatchers()
	f := p.from
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.closed {
		return 0, ErrClosed
	}
	if !f.ring.fits(len(event)) {
		return 0, &LengthError{uint64(len(event)), f.ring.size/4 - headerSize, false}
	}
	return p.publish(event), nil
}

// publish writes the ring and the board, and wakes the waiters.
func (p *publishing) publish(bytes []byte) uint64 {
	f, s := p.from, p.server
	f.generation++
	if f.ring.fits(len(bytes)) {
		f.ring.put(ringData, f.generation, bytes)
	}
	s.board.store(wordGeneration, f.generation)
	futexWake(s.board.at(wordGeneration), 1<<30)
	s.stats.published.Add(1)
	return f.generation
}

// answerWatchers answers the requests that wait for a generation.
func (p *publishing) answerWatchers() {
	s := p.server
	s.mu.Lock()
	var watching []*serverSession
	for session := range s.sessions {
		if session.watches.Load() {
			watching = append(watching, session)
		}
	}
	s.mu.Unlock()
	for _, session := range watching {
		session.published()
	}
}

// Close stops publishing. Readers keep what they have.
func (p *publishing) Close() error {
	f := p.from
	f.mu.Lock()
	first := !p.closed
	p.closed = true
	f.mu.Unlock()
	// Whoever published has left the board, and nobody comes any more.
	err := p.server.Close()
	if first {
		unmap(f.ring.mem)
		closeOwn(f.ringFD)
		if f.newestFD >= 0 {
			closeOwn(f.newestFD)
		}
	}
	return err
}

// published answers a request that waits for a generation, if it has come.
func (s *serverSession) published() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watching == nil || s.own == nil || s.server.board.load(wordGeneration) <= s.watchedFrom {
		return
	}
	j := s.unwatch()
	if _, fits := s.tx.needs(0); fits && !s.sending {
		s.answer(j, StatusOK, nil)
		return
	}
	// The session waits for room; the publisher does not.
	j.ready = true
	s.queue(j)
	s.bell.kick()
}

// serveSource answers a request to a service of snapshots or events. mu is held.
func (s *serverSession) serveSource(j job) {
	f := s.server.source
	switch {
	case len(j.request) == 0 && !j.batch:
		f.mu.Lock()
		fd, length, generation := -1, f.newestLen, f.generation
		if f.newestFD >= 0 {
			fd = duplicate(f.newestFD)
		}
		have := f.newestFD >= 0
		f.mu.Unlock()
		s.answerMemfd(j, have, fd, passed{j.id, generation, length})
	case len(j.request) == 4 && !j.batch:
		// This publisher has one ring, as long as it lives.
		fd := duplicate(f.ringFD)
		s.answerMemfd(j, true, fd, passed{j.id, epoch{f.ring.number, uint32(f.ring.size)}.id(), broadcastStart + f.ring.size})
	case len(j.request) == 8 && !j.batch:
		s.watch(j, le.Uint64(j.request))
	default:
		s.answer(j, StatusMalformed, fmt.Appendf(nil, "a request of %d bytes; this service takes 0, 4 or 8", len(j.request)))
	}
}

// answerMemfd answers with memory, whose descriptor it closes.
func (s *serverSession) answerMemfd(j job, have bool, fd int, p passed) {
	if !have {
		s.answer(j, StatusNotYet, nil)
		return
	}
	if fd < 0 {
		s.answer(j, StatusShort, nil)
		return
	}
	defer closeOwn(fd)
	if s.lengthAllowed(int(p.len)) != nil || pageSize+uint64(s.tx.epoch.size)+roundedUp(p.len) > s.agreed.maxShared {
		s.answer(j, StatusTooLarge, nil)
		return
	}
	h := header{kind: kindAttach, id: j.id}
	done, err := s.sendMemfd(s.ctx, s.waiterFor(), h, p, roundedUp(p.len), fd, nil)
	if err == nil && !done {
		s.answer(j, StatusShort, nil)
		return
	}
	s.count(StatusOK, false)
	s.recycle(j.request)
	if err == nil {
		s.commit()
	}
}

// watch keeps a request until the generation is above this one. It is in flight meanwhile.
func (s *serverSession) watch(j job, above uint64) {
	if s.watching != nil || len(s.inbox)+s.running+1 >= s.server.o.inFlight || j.id == 0 {
		s.answer(j, StatusBusy, nil)
		return
	}
	s.watching, s.watchedFrom = &j, above
	s.running++
	s.watches.Store(true)
	// Whoever publishes stores the generation first, and reads watches then.
	if s.server.board.load(wordGeneration) > above {
		s.answer(s.unwatch(), StatusOK, nil)
	}
}

// unwatch takes the request that waits for a generation.
func (s *serverSession) unwatch() job {
	j := *s.watching
	s.watching = nil
	s.watches.Store(false)
	s.running--
	return j
}

// duplicate returns another descriptor of the same memory, or -1.
func duplicate(fd int) int {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}
