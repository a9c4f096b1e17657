//go:build linux

package bellwire

import (
	"math/bits"
	"time"
)

// Counters of a page, by their place behind its layout.
const (
	countRequests = iota
	countAnswered
	countRefused
	countFailed
	countErrors
	countLate
	countDropped
	countUnsent
	countPanics
	countLaneFull
	countHighWater
	countPeerHighWater
	countGrows
	countShrinks
	countAttaches
	countLane
	countPosted
	countsInPage
)

// export writes the counters that changed since the last time into the own page.
func (e *end) export() {
	if e.own == nil {
		return
	}
	e.counters[countLane] = e.tx.epoch.id()
	e.counters[countHighWater], e.counters[countPeerHighWater] = e.tx.high, e.rx.high
	for i, value := range e.counters {
		e.own.note(countersAt+8+8*i, value)
	}
	if e.exported != nil {
		e.exported()
	}
}

// timed adds a call that took so long, and counts for so many, to the latency histogram.
func (e *end) timed(took time.Duration, counts uint64) {
	at := latencyAt + 8*latencyBucket(uint64(max(took, 0)))
	e.own.note(at, e.own.load(at)+counts)
}

// latencyBucket is the bucket of so many nanoseconds: the first that ends above it, four to each doubling from 64.
func latencyBucket(ns uint64) int {
	if ns < 64 {
		return 0
	}
	exp := bits.Len64(ns) - 7 // 64 is 1.00 · 2^6
	quarter := ns >> (uint(exp) + 4) & 3
	return min(4*exp+int(quarter), latencyCount-1)
}
