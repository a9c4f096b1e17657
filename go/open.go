//go:build linux

package bellwire

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// prepare makes this end's own memory, whose names end in a number, and its bell. It returns the descriptors for the other end:
// page, lane, and the eventfd if it is rung by one, which the bell keeps. startPage follows before they are sent.
func (e *end) prepare(doorbell Doorbell, lane uint32, number uint64) ([]int, error) {
	pageFD, page, err := newShared(e.memfdName("page", number), pageSize)
	if err != nil {
		return nil, err
	}
	e.own = page
	laneFD, mem, err := newShared(e.memfdName("lane", number), int(lane))
	if err != nil {
		closeOwn(pageFD)
		return nil, err
	}
	e.tx.mem, e.tx.epoch = mem, epoch{1, lane}
	fds := []int{pageFD, laneFD}
	if doorbell != DoorbellEventfd {
		e.bell = make(socketBell, 1)
		return fds, nil
	}
	bell, fd, err := newEventBell()
	if err != nil {
		closeOwn(fds...)
		return nil, err
	}
	e.bell = bell
	return append(fds, fd), nil
}

// startPage writes the header of the own page.
func (e *end) startPage(session uint64) {
	e.session = session
	pageHeader{
		role: e.role, session: session, pid: uint32(os.Getpid()), laneSize: e.tx.epoch.size,
		created: uint64(time.Now().UnixNano()), name: e.service,
	}.write(e.own)
}

// join checks and maps the page and the lane of the other end. prepare and startPage come before it.
func (e *end) join(own, peers limits, peerLane uint32, pageFD, laneFD int) error {
	e.limits, e.peers, e.agreed = own, peers, own.agree(peers)
	e.largest = uint64(max(e.agreed.maxLane, e.tx.epoch.size))
	expected := pageHeader{role: roleClient + roleServer - e.role, session: e.session, laneSize: peerLane, name: e.service}
	peer, err := mapChecked(pageFD, pageSize, expected.check)
	if err != nil {
		return err
	}
	e.peer = peer
	lane, err := mapPeers(laneFD, uint64(peerLane), false)
	if err != nil {
		return err
	}
	e.rx.mem, e.rx.epoch, e.rx.toServer = lane, epoch{1, peerLane}, e.role == roleServer
	e.rx.least, e.rx.largest = uint64(peers.leastLane), uint64(max(e.agreed.maxLane, peerLane))
	e.rx.maxMessage = e.agreed.maxMessage
	return nil
}

// discard gives back what an end that did not open has.
func (e *end) discard() {
	e.release()
	_ = e.pidfd.Close() // of nil, too
}

// isEventfd checks a descriptor that came in the place of an eventfd.
func isEventfd(fd int) error {
	// Only an eventfd says so here; reading the link touches no object of the peer's.
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err == nil && link != "anon_inode:[eventfd]" {
		return controlFault("eventfd: the descriptor is another object")
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		return controlFault("eventfd: it blocks")
	}
	return nil
}
