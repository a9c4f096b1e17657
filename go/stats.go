//go:build linux

package bellwire

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// serverStats are what `bellwire stat` asks a server for.
type serverStats struct {
	started uint64
	sessions, admitted, handshakesFailed, accepted, answered, refused, lost, errors, panics, poisoned, stalled, requestHigh, answerHigh,
	refusedClients, noDescriptors, noMemory, posted, postErrors, published atomic.Uint64
	socketRung atomic.Uint64
	rungBy     [DoorbellSocket + 1]atomic.Uint64 // sessions, by the doorbell of their clients
	sums       [sumCount]atomic.Uint64

	mu        sync.Mutex
	incidents map[uint32]*[incidentKinds]uint64
	others    [incidentKinds]uint64
}

const (
	statsCounters = 36
	// Users with incidents of their own.
	maxUsers = 16
)

// What a session counts for itself, and adds to its server's counters now and then.
const (
	sumRings = iota
	sumReceived
	sumSent
	sumAttachesReceived
	sumAttachesSent
	sumGrows
	sumShrinks
	sumLaneFull
	sumAtLimit
	sumCount
)

// Kinds of incidents.
const (
	incidentRefused = iota
	incidentPoisoned
	incidentStalled
	incidentNoDescriptors
	incidentNoMemory
	incidentAtLimit
	incidentOverQuota
	incidentDisplaced
	incidentKinds
)

// row lays the counters out as docs/wire.md says. Those of reactors, and of what this package does not do, are 0: parks,
// backlog_peak, over_quota (there is no quota of memory), displaced.
func (s *serverStats) row() (row [statsCounters]uint64) {
	for at, counter := range map[int]*atomic.Uint64{
		0: &s.sessions, 1: &s.socketRung, 2: &s.admitted, 3: &s.handshakesFailed, 4: &s.accepted, 5: &s.answered, 6: &s.refused, 7: &s.lost,
		8: &s.errors, 9: &s.panics, 10: &s.poisoned, 11: &s.stalled, 12: &s.sums[sumRings], 14: &s.sums[sumReceived],
		15: &s.sums[sumSent], 16: &s.sums[sumAttachesReceived], 17: &s.sums[sumAttachesSent], 18: &s.sums[sumGrows],
		19: &s.sums[sumShrinks], 20: &s.sums[sumLaneFull], 22: &s.requestHigh, 23: &s.answerHigh, 24: &s.rungBy[DoorbellFutex],
		25: &s.rungBy[DoorbellEventfd], 26: &s.rungBy[DoorbellSocket], 27: &s.refusedClients, 28: &s.noDescriptors, 29: &s.noMemory,
		30: &s.sums[sumAtLimit], 33: &s.posted, 34: &s.postErrors, 35: &s.published,
	} {
		row[at] = counter.Load()
	}
	return row
}

// doorbells are those of both ends, as the session opened.
type doorbells struct{ own, client Doorbell }

// opened counts a session that is open, or with -1 no longer.
func (s *serverStats) opened(d doorbells, by uint64) {
	s.sessions.Add(by)
	s.rungBy[d.client].Add(by)
	if d.own == DoorbellSocket {
		s.socketRung.Add(by)
	}
}

// lacked counts what this process had too little of, if that is what an error says.
func (s *serverStats) lacked(err error) {
	switch {
	case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE):
		s.noDescriptors.Add(1)
	case isShortage(err):
		s.noMemory.Add(1)
	}
}

// incident counts what an operator should know of a user. There may be more users than are told apart.
func (s *serverStats) incident(uid uint32, kind int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts, ok := s.incidents[uid]
	if !ok && len(s.incidents) < maxUsers {
		if s.incidents == nil {
			s.incidents = map[uint32]*[incidentKinds]uint64{}
		}
		counts = new([incidentKinds]uint64)
		s.incidents[uid] = counts
	} else if !ok {
		counts = &s.others
	}
	counts[kind]++
}

// appendIncidents is the end of layout 2.
func (s *serverStats) appendIncidents(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := len(s.incidents) + b2i(s.others != [incidentKinds]uint64{})
	b = le.AppendUint32(le.AppendUint32(b, uint32(rows)), incidentKinds)
	row := func(name string, counts [incidentKinds]uint64) {
		b = append(le.AppendUint32(b, uint32(len(name))), name...)
		for _, count := range counts {
			b = le.AppendUint64(b, count)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(s.incidents)) {
		row(fmt.Sprintf("uid %d", uid), *s.incidents[uid])
	}
	if rows > len(s.incidents) {
		row("", s.others)
	}
	return b
}

// addStats adds what this session has counted since the last time to the server's counters. mu is held.
func (s *serverSession) addStats() {
	now := [sumCount]uint64{
		sumRings: s.rings, sumReceived: s.rx.head, sumSent: s.tx.written, sumAttachesReceived: s.attaches,
		sumAttachesSent: s.counters[countAttaches], sumGrows: s.grown + s.counters[countGrows],
		sumShrinks: s.cut + s.counters[countShrinks], sumLaneFull: s.counters[countLaneFull],
	}
	if !s.closed && uint64(s.tx.epoch.size) >= s.largest {
		now[sumAtLimit] = 1
	}
	stats := s.stats()
	for i, value := range now {
		if value != s.tallied[i] {
			stats.sums[i].Add(value - s.tallied[i])
		}
	}
	s.tallied = now
	raise(&stats.requestHigh, s.rx.high)
	raise(&stats.answerHigh, s.tx.high)
}

// raise makes a counter at least this.
func raise(counter *atomic.Uint64, value uint64) {
	for {
		was := counter.Load()
		if value <= was || counter.CompareAndSwap(was, value) {
			return
		}
	}
}

// statsAnswer answers a request for the server's counters.
func (s *Server) statsAnswer(request []byte) (Status, []byte) {
	layout := uint32(1)
	switch len(request) {
	case 0:
	case 4:
		if layout = min(le.Uint32(request), 2); layout == 0 {
			return StatusMalformed, []byte("layout 0")
		}
	default:
		return StatusMalformed, []byte("a request for counters is empty, or a u32")
	}
	b := le.AppendUint32(nil, layout)
	b = le.AppendUint32(b, uint32(os.Getpid()))
	b = le.AppendUint64(b, s.stats.started)
	b = le.AppendUint32(b, uint32(runtime.GOMAXPROCS(0)))
	b = append(b, 1, 0, 0, 0) // the runtime's poller is an epoll
	b = le.AppendUint64(b, uint64(s.o.maxSessions))
	b = le.AppendUint64(b, uint64(s.o.inFlight))
	own, asked := s.stats.row(), s.observerStats.row()
	total := own
	for i := range total {
		if highest := i >= 21 && i <= 23; highest {
			total[i] = max(own[i], asked[i])
		} else {
			total[i] += asked[i]
		}
	}
	b = le.AppendUint32(b, 2)
	b = le.AppendUint32(b, statsCounters)
	b = appendRow(b, total)
	b = appendRow(append(b, paddedName(s.service)...), own)
	b = appendRow(append(b, paddedName("bellwire-stats")...), asked)
	if layout == 2 {
		b = s.stats.appendIncidents(b)
	}
	return StatusOK, b
}

func paddedName(name string) []byte { return append([]byte(name), make([]byte, 64-len(name))...) }

func appendRow(b []byte, row [statsCounters]uint64) []byte {
	for _, value := range row {
		b = le.AppendUint64(b, value)
	}
	return b
}
