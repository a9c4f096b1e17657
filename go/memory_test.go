//go:build linux

package bellwire

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemoryOfAPeerIsChecked(t *testing.T) {
	make := func(size, allocated int64, seals int) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err == nil {
			err = unix.Ftruncate(fd, size)
		}
		if err == nil && allocated > 0 {
			err = unix.Fallocate(fd, 0, 0, allocated)
		}
		if err == nil && seals > 0 {
			err = addSeals(fd, seals)
		}
		check(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	file, err := os.Create(t.TempDir() + "/file")
	check(t, err)
	defer file.Close()
	const size = 2 * pageSize
	for what, c := range map[string]struct {
		fd              int
		constant, taken bool
	}{
		"a lane":                    {make(size, size, sealsOfOwner), false, true},
		"an attachment":             {make(size, size, sealsConstant), true, true},
		"no seals":                  {make(size, size, 0), false, false},
		"writable by its peer":      {make(size, size, sealsOfOwner&^unix.F_SEAL_FUTURE_WRITE), false, false},
		"not sealed against cuts":   {make(size, size, sealsOfOwner&^unix.F_SEAL_SHRINK), false, false},
		"writable by its owner":     {make(size, size, sealsOfOwner), true, false},
		"a page too long":           {make(size+pageSize, size+pageSize, sealsOfOwner), false, false},
		"a page too short":          {make(pageSize, pageSize, sealsOfOwner), false, false},
		"a page that nobody paid":   {make(size, pageSize, sealsOfOwner), false, false},
		"an ordinary file":          {int(file.Fd()), false, false},
		"pages that nobody paid":    {make(size, 0, sealsConstant), true, false},
		"no seal against more ones": {make(size, size, sealsOfOwner&^unix.F_SEAL_SEAL), false, false},
	} {
		mem, err := mapPeers(c.fd, size, c.constant)
		if (err == nil) != c.taken {
			t.Errorf("%s: %v", what, err)
		}
		unmap(mem)
	}
	bell, fd, err := newEventBell()
	check(t, err)
	defer bell.close()
	if isEventfd(fd) != nil || isEventfd(make(size, size, 0)) == nil {
		t.Error("what is an eventfd")
	}
}

func TestAClientWhoseDoorbellIsNoEventfdIsRefused(t *testing.T) {
	dir := t.TempDir()
	listening(t, dir, echo)
	o, err := newOptions(nil)
	check(t, err)
	conn, err := connect(t.Context(), dir, "echo", o)
	check(t, err)
	defer conn.Close()
	sock, err := newSocket(conn)
	check(t, err)
	s := Session{end: end{role: roleClient, service: "echo", sock: sock, peerBell: -1}}
	defer s.discard()
	h := hello{
		min: protocol, max: protocol, serviceVersion: 1, service: "echo", lane: o.lane, doorbell: DoorbellEventfd, ringsEventfd: true,
		limits: o.limits,
	}
	check(t, sock.send(h.encode(), true))
	own, err := s.prepare(h.doorbell, h.lane, 0)
	check(t, err)
	b, fds, err := s.receiveOpening(controlWelcome)
	check(t, err)
	sock.reap(fds...)
	w, err := parseWelcome(b, len(fds))
	check(t, err)
	s.startPage(w.session)
	// The lane, where an eventfd has to be.
	check(t, sock.send(numbered(controlAttach, 3, w.session), true, own[0], own[1], own[1]))
	closeOwn(own[:2]...)
	_, _, err = s.receiveOpening(controlReady)
	if !isRefusal(err, RefusedProtocol) {
		t.Fatal(err)
	}
}
