//go:build linux

package bellwire

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// join checks and maps the page and the lane of the other end.
func (e *end) join(role uint32, service string, session uint64, ownLane uint32, own limits,
	peerLane uint32, peers limits, pageFD, laneFD int,
) error {
	e.role, e.service, e.session, e.peerBell = role, service, session, -1
	e.limits, e.peers, e.agreed = own, peers, own.agree(peers)
	e.largest = uint64(max(e.agreed.maxLane, ownLane))
	peer, err := mapPeers(pageFD, pageSize, false)
	if err != nil {
		return err
	}
	e.peer = peer
	var header [pageHeaderSize]byte
	copy(header[:], peer)
	expected := pageHeader{role: roleClient + roleServer - role, session: session, laneSize: peerLane, name: service}
	if err := expected.check(header[:]); err != nil {
		return err
	}
	lane, err := mapPeers(laneFD, uint64(peerLane), false)
	if err != nil {
		return err
	}
	e.rx.mem, e.rx.epoch, e.rx.toServer = lane, epoch{1, peerLane}, role == roleServer
	e.rx.least, e.rx.largest = uint64(peers.leastLane), uint64(max(e.agreed.maxLane, peerLane))
	e.rx.maxMessage = e.agreed.maxMessage
	return nil
}

// prepare makes this end's own memory and bell, and returns the descriptors for the other end: page, lane, and the
// eventfd if it is rung by one, which the bell keeps.
func (e *end) prepare(doorbell Doorbell, lane uint32) ([]int, error) {
	pageFD, page, err := newShared(e.memfdName("page"), pageSize)
	if err != nil {
		return nil, err
	}
	e.own = page
	pageHeader{
		role: e.role, session: e.session, pid: uint32(os.Getpid()), laneSize: lane,
		created: uint64(time.Now().UnixNano()), name: e.service,
	}.write(e.own)
	laneFD, mem, err := newShared(e.memfdName("lane"), int(lane))
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
		closeOwn(pageFD)
		closeOwn(laneFD)
		return nil, err
	}
	e.bell = bell
	return append(fds, fd), nil
}

// discard gives back what an end that did not open has.
func (e *end) discard() {
	for _, mem := range [][]byte{e.own, e.peer, e.board, e.tx.mem, e.rx.mem} {
		unmap(mem)
	}
	if e.bell != nil {
		e.bell.close()
	}
	if e.peerBell > 0 {
		closeStrange(e.peerBell)
	}
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
