//go:build linux

package interop

import (
	"encoding/binary"
	"net"
	"path/filepath"
	"testing"

	"bellwire.dev/go/internal/vectors"
	"golang.org/x/sys/unix"
)

// The token of the vectors' HELLO.
const token = "30313233343536373839616263646566"

// send sends a case by a socket, with memory of a page for each descriptor. It returns false if the kernel refuses those.
func send(t *testing.T, conn *net.UnixConn, c vectors.Case) bool {
	t.Helper()
	var fds []int
	for range c.Number(t, "fds") {
		fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err == nil {
			err = unix.Ftruncate(fd, 4096)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// Not by the connection, which sends no empty message.
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.Sendmsg(int(fd), c.Bytes(t, "bytes"), unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
	})
	if len(fds) > 0 && err == unix.EPERM {
		return false
	}
	if controlErr != nil || err != nil {
		t.Fatal(c.Name, controlErr, err)
	}
	return true
}

// refusesEach sends each case to a server of one language.
func refusesEach(t *testing.T, p peer, cases []vectors.Case) {
	dir := t.TempDir()
	t.Setenv("BELLWIRE_TOKEN", token)
	server := p.start(t, dir, "serve", p.serves[0])
	server.expects(t, "ready")
	path := filepath.Join(dir, "increment.sock")
	tried := 0
	for _, c := range cases {
		// Our limit is above that of the vectors.
		if c.Text("to") != "server" || c.Name == "hello-lane-above-the-servers" {
			continue
		}
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		if !send(t, conn, c) {
			// From Linux 6.16 on, no descriptor of a client that is not admitted reaches a server.
			conn.Close()
			continue
		}
		answer := make([]byte, 512)
		n, err := conn.Read(answer)
		// REFUSE is message 3, and its code is at 8.
		if err != nil || n < 16 || binary.LittleEndian.Uint16(answer[4:]) != 3 || uint64(binary.LittleEndian.Uint16(answer[8:])) != c.Number(t, "refuse") {
			t.Errorf("%s: %x, %v", c.Name, answer[:n], err)
		}
		conn.Close()
		tried++
	}
	if tried < 10 {
		t.Error("only", tried, "cases")
	}
}

// blamesEach answers a client of one language with each case.
func blamesEach(t *testing.T, p peer, cases []vectors.Case) {
	dir := t.TempDir()
	t.Setenv("BELLWIRE_TOKEN", token)
	path := filepath.Join(dir, "increment.sock")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	tried := 0
	for _, c := range cases {
		if c.Text("to") != "client" {
			continue
		}
		client := p.start(t, dir, "vectors", p.rung[0])
		conn, err := listener.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 512)); err != nil {
			t.Fatal(c.Name, err)
		}
		if !send(t, conn, c) {
			t.Fatal(c.Name)
		}
		t.Run(c.Name, func(t *testing.T) { client.expects(t, "ok") })
		conn.Close()
		tried++
	}
	if tried < 10 {
		t.Error("only", tried, "cases")
	}
}
