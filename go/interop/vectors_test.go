//go:build linux

package interop

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The token of the vectors' HELLO.
const token = "30313233343536373839616263646566"

// firstMessage is a case of control-bad.txt.
type firstMessage struct {
	name, to string
	fds      int
	refuse   uint16
	bytes    []byte
}

func firstMessages(t *testing.T) (cases []firstMessage) {
	t.Helper()
	text, err := os.ReadFile("../../docs/wire/vectors/control-bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key == "case" {
			cases = append(cases, firstMessage{name: value})
		}
		if len(cases) == 0 {
			continue
		}
		last := &cases[len(cases)-1]
		number, _ := strconv.Atoi(value)
		switch key {
		case "to":
			last.to = value
		case "fds":
			last.fds = number
		case "refuse":
			last.refuse = uint16(number)
		case "bytes":
			b, err := hex.DecodeString(value)
			if err != nil {
				t.Fatal(err)
			}
			last.bytes = append(last.bytes, b...)
		}
	}
	return cases
}

// send sends the case by a socket, with memory of a page for each descriptor.
func (m firstMessage) send(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	var fds []int
	for range m.fds {
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
		err = unix.Sendmsg(int(fd), m.bytes, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
	})
	if controlErr != nil || err != nil {
		t.Fatal(m.name, controlErr, err)
	}
}

// refusesEach sends each case to a server of one language.
func refusesEach(t *testing.T, p peer, cases []firstMessage) {
	dir := t.TempDir()
	t.Setenv("BELLWIRE_TOKEN", token)
	server := p.start(t, dir, "serve", p.serves[0])
	server.says(t, "ready")
	path := filepath.Join(dir, "increment.sock")
	tried := 0
	for _, c := range cases {
		// Our limit is above that of the vectors.
		if c.to != "server" || c.name == "hello-lane-above-the-servers" {
			continue
		}
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		c.send(t, conn)
		answer := make([]byte, 512)
		n, err := conn.Read(answer)
		// REFUSE is message 3, and its code is at 8.
		if err != nil || n < 16 || binary.LittleEndian.Uint16(answer[4:]) != 3 || binary.LittleEndian.Uint16(answer[8:]) != c.refuse {
			t.Errorf("%s: %x, %v", c.name, answer[:n], err)
		}
		conn.Close()
		tried++
	}
	if tried < 10 {
		t.Error("only", tried, "cases")
	}
}

// blamesEach answers a client of one language with each case.
func blamesEach(t *testing.T, p peer, cases []firstMessage) {
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
		if c.to != "client" {
			continue
		}
		client := p.start(t, dir, "vectors", p.rung[0])
		conn, err := listener.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 512)); err != nil {
			t.Fatal(c.name, err)
		}
		c.send(t, conn)
		t.Run(c.name, func(t *testing.T) { client.says(t, "ok") })
		conn.Close()
		tried++
	}
	if tried < 10 {
		t.Error("only", tried, "cases")
	}
}
