//go:build linux

package bellwire

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"bellwire.dev/go/internal/vectors"
	"golang.org/x/sys/unix"
)

// casesOf are the cases of a file of vectors.
func casesOf(t testing.TB, file string) []vectors.Case {
	t.Helper()
	return vectors.Read(t, "../docs/wire/vectors/"+file)
}

// patch writes a line OFFSET BYTES into memory.
func patch(t testing.TB, memory []byte, line string) {
	offset, text, _ := strings.Cut(line, " ")
	copy(memory[vectors.Number(t, offset):], vectors.Bytes(t, text))
}

// reencode parses a control message and encodes it again.
func reencode(b []byte, fds int) ([]byte, error) {
	kind, err := parsePrefix(b, fds)
	if err != nil {
		return nil, err
	}
	switch kind {
	case controlHello:
		h, err := parseHello(b)
		return h.encode(), err
	case controlWelcome:
		w, err := parseWelcome(b, fds)
		return w.encode(fds), err
	case controlRefuse:
		r, err := parseRefuse(b)
		return r.encode(), err
	case controlAttachment:
		return parsePassed(b).encode(), nil
	case controlRing:
		return prefix(kind, fds), nil
	}
	return numbered(kind, fds, le.Uint64(b[8:])), nil
}

func TestVectorsOfControlMessages(t *testing.T) {
	for _, v := range casesOf(t, "control.txt") {
		b := v.Bytes(t, "bytes")
		again, err := reencode(b, int(v.Number(t, "fds")))
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("%s: %v\n%x\n%x", v.Name, err, b, again)
		}
	}
}

func validHello(t testing.TB) hello {
	for _, v := range casesOf(t, "control.txt") {
		if v.Name == "hello" {
			h, err := parseHello(v.Bytes(t, "bytes"))
			check(t, err)
			return h
		}
	}
	t.Fatal("no hello")
	return hello{}
}

func TestVectorsOfControlMessagesToRefuse(t *testing.T) {
	h := validHello(t)
	server := options{serviceVersion: 1, token: h.token, schema: h.schema, limits: limits{
		leastLane: 4096, maxLane: 8192, maxMessage: 1 << 26, maxShared: 1 << 28,
	}}
	for _, v := range casesOf(t, "control-bad.txt") {
		b, fds := v.Bytes(t, "bytes"), int(v.Number(t, "fds"))
		if v.Text("to") == "server" {
			_, err := server.readHello(b, fds, "increment")
			if err == nil || uint64(refusalFor(err).code) != v.Number(t, "refuse") {
				t.Errorf("%s: %v", v.Name, err)
			}
			continue
		}
		kind, err := parsePrefix(b, fds)
		switch {
		case err != nil:
		case kind == controlWelcome:
			var w welcome
			if w, err = parseWelcome(b, fds); err == nil {
				err = w.answers(h)
			}
		case kind == controlRefuse:
			_, err = parseRefuse(b)
		default:
			continue // receiveOpening refuses the kind
		}
		if err == nil {
			t.Errorf("%s was taken", v.Name)
		}
	}
}

func checkMemory(t testing.TB, v vectors.Case) error {
	b := v.Bytes(t, "bytes")
	expected := pageHeader{session: 7, laneSize: 4096, name: "increment"}
	switch v.Text("of") {
	case "client":
		expected.role = roleClient
	case "server":
		expected.role = roleServer
	default:
		return checkBoard(b, "increment")
	}
	return expected.check(b)
}

func TestVectorsOfMemory(t *testing.T) {
	for _, v := range casesOf(t, "memory.txt") {
		if err := checkMemory(t, v); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		h := v.Bytes(t, "bytes")
		page := make(words, pageSize)
		if v.Text("of") == "board" {
			writeBoard(page, le.Uint32(h[0xc:]), le.Uint64(h[0x10:]), "increment")
		} else {
			pageHeader{
				role: le.Uint32(h[0xc:]), session: 7, pid: le.Uint32(h[0x18:]), laneSize: 4096,
				created: le.Uint64(h[0x20:]), name: "increment",
			}.write(page)
		}
		if !bytes.Equal(page[:len(h)], h) {
			t.Errorf("%s: wrote %x", v.Name, page[:len(h)])
		}
	}
	for _, v := range casesOf(t, "memory-bad.txt") {
		if checkMemory(t, v) == nil {
			t.Errorf("%s was taken", v.Name)
		}
	}
}

func TestVectorsOfRecords(t *testing.T) {
	for _, v := range casesOf(t, "records.txt") {
		b := v.Bytes(t, "bytes")
		h := headerFrom(le.Uint64(b), le.Uint64(b[8:]))
		expected := header{
			uint32(v.Number(t, "len")), recordKind(v.Number(t, "kind")), uint8(v.Number(t, "flags")),
			uint16(v.Number(t, "status")), v.Number(t, "id"),
		}
		if h != expected || h.kind != kindPad && h.size() != uint64(len(b)) {
			t.Errorf("%s: %+v, %d bytes", v.Name, h, h.size())
		}
		if h.kind == kindPad {
			continue
		}
		s := sender{mem: make([]byte, 1<<20), epoch: epoch{1, 1 << 20}}
		s.put(h, b[headerSize:headerSize+h.len])
		if !bytes.Equal(s.mem[:s.written], b) {
			t.Errorf("%s: wrote %x", v.Name, s.mem[:s.written])
		}
	}
}

func TestVectorsOfBatches(t *testing.T) {
	for _, v := range casesOf(t, "batches.txt") {
		var items []Item
		for _, line := range v.Lines {
			if line[0] == "item" {
				status, bytes, _ := strings.Cut(line[1], " ")
				items = append(items, Item{Status(vectors.Number(t, status)), vectors.Bytes(t, bytes)})
			}
		}
		b := v.Bytes(t, "bytes")
		if again := appendBatch(nil, items); !bytes.Equal(again, b) {
			t.Errorf("%s: wrote %x", v.Name, again)
		}
		parsed, err := parseBatch(b)
		if err != nil || len(parsed) != len(items) {
			t.Fatalf("%s: %v, %v", v.Name, parsed, err)
		}
		for i := range items {
			if parsed[i].Status != items[i].Status || !bytes.Equal(parsed[i].Bytes, items[i].Bytes) {
				t.Errorf("%s, item %d: %v", v.Name, i, parsed[i])
			}
		}
	}
	for _, v := range casesOf(t, "batches-bad.txt") {
		if items, err := parseBatch(v.Bytes(t, "bytes")); err == nil {
			t.Errorf("%s was taken as %v", v.Name, items)
		}
	}
}

// socketPair is the control socket of an end, and the file of its peer's.
func socketPair(t testing.TB) (*socket, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	check(t, err)
	file := os.NewFile(uintptr(fds[0]), "control")
	conn, err := net.FileConn(file)
	file.Close()
	check(t, err)
	s, err := newSocket(conn.(*net.UnixConn))
	check(t, err)
	t.Cleanup(func() { conn.Close(); unix.Close(fds[1]) })
	return s, fds[1]
}

// bareEnd is an open end on private memory, whose peer is the test.
func bareEnd(t testing.TB, toServer bool) (*end, int) {
	sock, peer := socketPair(t)
	both := limits{leastLane: 4096, maxLane: 8192, maxMessage: 1024, maxShared: 1 << 28}
	e := &end{
		role: roleServer, service: "increment", session: 7, own: make(words, pageSize), peer: make(words, pageSize),
		limits: both, agreed: both, peers: both, largest: 8192, sock: sock, bell: make(socketBell, 1), peerBell: -1,
		peerName: "peer", full: func() bool { return false },
	}
	e.own.store(wordState, 1)
	e.tx = sender{mem: make([]byte, 4096), epoch: epoch{1, 4096}}
	e.rx = receiver{
		mem: make([]byte, 4096), epoch: epoch{1, 4096}, toServer: toServer, least: 4096, largest: 8192, maxMessage: 1024,
	}
	e.take = func(h header, _ []byte, _ bool) error {
		if h.kind == kindAttach {
			if _, err := e.attachment.appendTo(nil); err != nil {
				return faultMemory
			}
		}
		return nil
	}
	return e, peer
}

// memfdOf is memory of a size as a control message of this kind brings it.
func memfdOf(t testing.TB, size int, kind controlKind) int {
	t.Helper()
	var fd int
	var err error
	if kind == controlAttachment {
		fd, err = newConstant("test", make([]byte, size))
	} else {
		var mem []byte
		fd, mem, err = newShared("test", size)
		unmap(mem)
	}
	check(t, err)
	return fd
}

func sendControl(t testing.TB, socket int, line string) {
	t.Helper()
	size, text, _ := strings.Cut(line, " ")
	message := vectors.Bytes(t, text)
	var rights []byte
	if n := vectors.Number(t, size); n > 0 {
		fd := memfdOf(t, int(n), controlKind(le.Uint16(message[4:])))
		defer unix.Close(fd)
		rights = unix.UnixRights(fd)
	}
	check(t, unix.Sendmsg(socket, message, rights, nil, 0))
}

func TestVectorsOfLanesThatPoison(t *testing.T) {
	for _, v := range casesOf(t, "lanes-bad.txt") {
		t.Run(v.Name, func(t *testing.T) {
			e, socket := bareEnd(t, v.Text("reader") == "server")
			waiting := map[uint64]bool{}
			e.rx.waits = func(id uint64) bool { return waiting[id] }
			take := e.take
			e.take = func(h header, payload []byte, whole bool) error {
				delete(waiting, h.id)
				return take(h, payload, whole)
			}
			var found error
			poll := func() {
				if _, err := e.poll(); err != nil && found == nil {
					found = err
				}
			}
			for _, line := range v.Lines {
				switch line[0] {
				case "sent":
					for id := range vectors.Number(t, line[1]) {
						waiting[id+1] = true
						e.tx.put(header{kind: kindRequest, id: id + 1}, nil)
					}
					e.commit()
				case "tail":
					e.peer.store(wordTail, vectors.Number(t, line[1]))
				case "head":
					e.peer.store(wordHead, vectors.Number(t, line[1]))
					poll()
				case "lane":
					patch(t, e.rx.mem, line[1])
				case "control":
					sendControl(t, socket, line[1])
				case "poll":
					poll()
					if found != nil {
						t.Fatal("too early: ", found)
					}
				}
			}
			poll()
			if found == nil {
				_ = e.fetch(func() bool { return false })
				var violation *Violation
				if errors.As(e.broken, &violation) {
					found = violation.Err
				}
			}
			var wrong fault
			if !errors.As(found, &wrong) {
				t.Fatal("no fault: ", found)
			}
			if uint64(wrong) != v.Number(t, "code") {
				t.Errorf("fault %d, %v", int(wrong), wrong)
			}
		})
	}
}

// replay reads one direction of the vectors' session, and writes the same records.
type replay struct {
	lanes  map[string][]byte
	side   string
	reader receiver
	writer sender
}

func (r *replay) step(t *testing.T, name string, page words) {
	if err := r.reader.checkTail(page.load(wordTail)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for {
		h, ok, err := r.reader.peek()
		if err != nil {
			t.Fatalf("%s: %+v: %v", name, h, err)
		}
		if !ok {
			break
		}
		payload := bytes.Clone(r.reader.payload(h))
		if h.kind == kindSwitch {
			next := epochFrom(h.id)
			r.writer.switchTo(next, make([]byte, next.size))
			r.reader.follow(next, r.lane(next))
			continue
		}
		before := r.reader.head - r.reader.base
		r.reader.advance(h)
		r.writer.put(h, payload)
		at := int(before % uint64(r.reader.epoch.size))
		end := at + headerSize + len(payload)
		if !bytes.Equal(r.writer.mem[at:end], r.reader.mem[at:end]) {
			t.Errorf("%s: wrote %x in place of %x", name, r.writer.mem[at:end], r.reader.mem[at:end])
		}
	}
	if r.writer.written != page.load(wordTail) {
		t.Errorf("%s: at %d in place of %d", name, r.writer.written, page.load(wordTail))
	}
}

func (r *replay) lane(e epoch) []byte {
	key := r.side + "-lane-" + strconv.Itoa(int(e.number))
	if r.lanes[key] == nil {
		r.lanes[key] = make([]byte, e.size)
	}
	return r.lanes[key]
}

func TestVectorsOfASession(t *testing.T) {
	lanes := map[string][]byte{}
	pages := map[string]words{"client": make(words, pageSize), "server": make(words, pageSize)}
	sides := map[string]*replay{}
	for _, side := range []string{"client", "server"} {
		first := epoch{1, 4096}
		r := &replay{lanes: lanes, side: side}
		r.reader = receiver{
			epoch: first, toServer: side == "client", least: 4096, largest: 8192, maxMessage: 1 << 26,
			waits: func(id uint64) bool { return id != 0 },
		}
		r.reader.mem = r.lane(first)
		r.writer = sender{mem: make([]byte, 4096), epoch: first}
		sides[side] = r
	}
	for _, v := range casesOf(t, "session.txt") {
		for _, line := range v.Lines {
			switch side, of, _ := strings.Cut(line[0], "-"); {
			case of == "page":
				patch(t, pages[side], line[1])
			case strings.HasPrefix(of, "lane-"):
				number, _ := strconv.Atoi(strings.TrimPrefix(of, "lane-"))
				// Its size is known from its switch: large enough for all of them here.
				r := sides[side]
				patch(t, r.lane(epoch{uint32(number), 8192}), line[1])
			case line[0] == "sends":
				fds, text, _ := strings.Cut(line[1], " ")
				b := vectors.Bytes(t, text)
				if again, err := reencode(b, int(vectors.Number(t, fds))); err != nil || !bytes.Equal(again, b) {
					t.Errorf("%s: %v\n%x\n%x", v.Name, err, b, again)
				}
			}
		}
		for side, r := range sides {
			r.step(t, v.Name+", of the "+side, pages[side])
		}
	}
}
