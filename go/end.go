//go:build linux

package bellwire

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// retryAfter is when a reader that lacked resources tries again.
const retryAfter = 100 * time.Millisecond

// end is one end of an open session: its pages, lanes, doorbells and control socket. Any number of goroutines use it.
// One of those that wait for something leads: it reads the lane for all, and sleeps at the bell.
type end struct {
	mu sync.Mutex

	role      uint32
	service   string
	session   uint64
	peerName  string // for errors
	own, peer words  // pages
	board     words  // of the service, in a client
	tx        sender
	rx        receiver
	published uint64 // what Tail says
	taken     uint64 // what Head says

	limits, agreed, peers limits
	largest               uint64 // of the own lane

	sock     *socket
	pidfd    *os.File
	bell     bell
	peerBell int // the peer's eventfd, or -1
	box      mailbox

	spinner  spinner
	leading  bool
	leadNeed uint64 // the Head that the one who leads waits for, while it sleeps
	waiters  []*waiter
	sending  bool        // a message in parts has begun
	users    int         // goroutines between enter and leave: the maps stay
	closed   bool        // by this end
	ended    atomic.Bool // gone or broken, for those who hold no mu
	gone     error
	broken   error
	short    bool // a record waits until this process has resources

	attachment received // of the attach record that is taken

	cancels      []uint64 // that did not fit the lane yet
	rings, parks uint64
	grown, cut   uint64 // of the peer's lane
	counters     [countsInPage]uint64
	exported     func() // in a server: it adds what is new to its counters

	// take gets each record but switches, with the payload in shared memory. mu is held.
	take func(h header, payload []byte, whole bool) error
	// full reports that no record may be taken now.
	full func() bool
}

// enter keeps the session's memory mapped until leave. mu is held from it on.
func (e *end) enter() error {
	e.mu.Lock()
	if err := e.over(); err != nil && e.users == 0 && e.closed {
		e.mu.Unlock()
		return err
	}
	e.users++
	return nil
}

func (e *end) leave() {
	e.users--
	e.releaseIfUnused()
	e.mu.Unlock()
}

// over is the reason why nothing comes any more, or nil.
func (e *end) over() error {
	switch {
	case e.broken != nil:
		return e.broken
	case e.closed:
		return ErrClosed
	}
	return e.gone
}

// poll loads the peer's words, and takes what it has published.
func (e *end) poll() (took bool, err error) {
	if e.broken != nil || e.closed {
		return false, nil
	}
	if err := e.tx.checkHead(e.peer.load(wordHead), e.published); err != nil {
		return false, err
	}
	// Also where room has seen the Head before.
	for _, w := range e.waiters {
		if w.need > 0 && w.need <= e.tx.head {
			w.signal()
		}
	}
	if err := e.rx.checkTail(e.peer.load(wordTail)); err != nil {
		return false, err
	}
	for n := 0; n < 256 && e.rx.head < e.rx.tail && !e.full(); n++ {
		if err = e.takeOne(); err != nil {
			break
		}
		took = true
	}
	e.storeHead()
	if e.short = isShortage(err); e.short {
		return took, nil
	}
	return took, err
}

func (e *end) takeOne() error {
	h, ok, err := e.rx.peek()
	if err != nil || !ok {
		return err
	}
	switch h.kind {
	case kindSwitch:
		return e.followSwitch(h)
	case kindAttach:
		if e.attachment, err = e.box.take(e, &e.box.attachments, h.id); err != nil {
			return err
		}
	}
	payload := e.rx.payload(h)
	whole := e.rx.advance(h)
	if err := e.take(h, payload, whole); err != nil {
		return err
	}
	if e.rx.head-e.rx.checked >= uint64(e.rx.epoch.size)/4 || h.kind == kindAttach {
		e.storeHead()
		e.ringForSpace()
	}
	return nil
}

func (e *end) storeHead() {
	if e.taken != e.rx.head {
		e.taken = e.rx.head
		e.own.store(wordHead, e.taken)
	}
}

// ringForSpace rings a peer that waits for the room that was given back since the last check.
func (e *end) ringForSpace() {
	e.storeHead()
	from := e.rx.checked
	e.rx.checked = e.taken
	// Store Head, then load WantSpace: both sequentially consistent. Pairs with the waiter's store of WantSpace and load of Head.
	if want := e.peer.load(wordWantSpace); from <= want && want < e.taken {
		e.ring(wordHead)
	}
}

// commit publishes what was written, and rings a peer that waits for it.
func (e *end) commit() {
	if e.tx.written == e.published {
		return
	}
	e.published = e.tx.written
	e.tx.high = max(e.tx.high, min(e.published-e.tx.head, uint64(e.tx.epoch.size)))
	e.own.store(wordTail, e.published)
	from := e.tx.checked
	e.tx.checked = e.published
	// Store Tail, then load WantData, as above.
	if want := e.peer.load(wordWantData); from <= want && want < e.published {
		e.ring(wordTail)
	}
}

// ring wakes the peer, by the doorbell that it has chosen. word is the one that moved.
func (e *end) ring(word int) {
	e.rings++
	e.own.note(wordRungAt, now())
	e.own.note(wordRings, e.rings)
	switch bell := Doorbell(e.peer.load(wordDoorbell)); {
	case bell == DoorbellEventfd && e.peerBell >= 0:
		_, _ = unix.Write(e.peerBell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	case bell == DoorbellSocket:
		_ = e.sock.send(prefix(controlRing, 0), false)
	default:
		futexWake(e.own.at(word), 1)
	}
}

// followSwitch goes on in the epoch that a switch record names.
func (e *end) followSwitch(h header) error {
	next := epochFrom(h.id)
	lane, err := e.box.take(e, &e.box.lanes, h.id)
	if err != nil {
		return err
	}
	mem, err := mapPeers(lane.fd, uint64(next.size), false)
	if isShortage(err) {
		e.box.putBack(lane)
		return err
	}
	if err != nil {
		lane.close()
		return faultMemory
	}
	closeOwn(lane.fd)
	if next.size > e.rx.epoch.size {
		e.grown++
	} else {
		e.cut++
	}
	unmap(e.rx.follow(next, mem))
	e.ringForSpace()
	return nil
}

// poison ends a session whose peer broke a rule.
func (e *end) poison(err error) {
	if e.broken != nil || e.closed {
		return
	}
	e.broken = &Violation{Peer: e.peerName, Err: err}
	e.ended.Store(true)
	e.sendClose(closePoisoned)
	e.wakeAll()
}

// sendClose publishes the Close record; nothing is written after it.
func (e *end) sendClose(reason closeReason) {
	if e.own.load(wordState) != 1 {
		return
	}
	e.tx.put(header{kind: kindClose, status: uint16(reason)}, nil)
	e.commit()
	e.own.store(wordState, 3|uint64(reason)<<32)
	e.export()
}

// shut closes this end. Its memory stays until the last goroutine has left.
func (e *end) shut(reason closeReason) {
	if e.closed {
		return
	}
	e.sendClose(reason)
	e.closed = true
	e.sock.close()
	if e.pidfd != nil {
		e.pidfd.Close()
	}
	e.wakeAll()
	e.releaseIfUnused()
}

func (e *end) releaseIfUnused() {
	if e.closed && e.users == 0 && e.own != nil {
		e.release()
	}
}

func (e *end) release() {
	for _, mem := range [][]byte{e.own, e.peer, e.board, e.tx.mem, e.rx.mem} {
		unmap(mem)
	}
	e.own, e.peer, e.board, e.tx.mem, e.rx.mem = nil, nil, nil, nil, nil
	e.box.close()
	if e.bell != nil {
		e.bell.close()
	}
	if e.peerBell >= 0 {
		e.sock.reap(e.peerBell)
		e.peerBell = -1
	}
}

// start opens the session for use.
func (e *end) start() {
	if e.full == nil {
		e.full = func() bool { return false }
	}
	bell := DoorbellEventfd
	if _, rung := e.bell.(socketBell); rung {
		bell = DoorbellSocket
	}
	e.own.store(wordDoorbell, uint64(bell))
	e.own.note(countersAt, 1)
	go e.watchSocket()
	if e.pidfd != nil {
		go e.watchProcess()
	}
}

// note stores a word that no peer relies on, in one piece and in no order.
func (w words) note(offset int, value uint64) {
	if ^uint(0)>>32 != 0 {
		*w.at(offset) = value
		return
	}
	atomic.StoreUint64(w.at(offset), value)
}
