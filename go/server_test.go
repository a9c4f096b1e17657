//go:build linux

package bellwire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

func TestOneProcessServesAName(t *testing.T) {
	dir := t.TempDir()
	if _, err := Dial(t.Context(), dir, "echo"); !errors.Is(err, ErrAbsent) {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := Await(t.Context(), dir, "echo")
		if err == nil {
			_, err = s.Call(t.Context(), nil)
		}
		opened <- err
	}()
	server, err := Listen(dir, "echo", echo)
	check(t, err)
	if _, err := Listen(dir, "echo", echo); !errors.Is(err, ErrInUse) {
		t.Fatal(err)
	}
	check(t, <-opened)
	server.Close()
	server, err = Listen(dir, "echo", echo)
	check(t, err)
	server.Close()
}

func TestAClosingServerAnswersAcceptedRequests(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	server, s := pair(t, func(ctx context.Context, request, answer []byte) ([]byte, error) {
		if len(request) > 0 {
			close(running)
			<-release
		}
		return append(answer, request...), nil
	})
	done := make(chan error, 1)
	go func() {
		_, err := s.Call(t.Context(), []byte("a"))
		done <- err
	}()
	<-running
	closed := make(chan error, 1)
	go func() { closed <- server.Close() }()
	close(release)
	check(t, <-done)
	check(t, <-closed)
	_, err := s.Call(t.Context(), nil)
	if !errors.Is(err, ErrStopping) || ExecutedOf(err) != ExecutedNo {
		t.Fatal(err)
	}
}

func TestACloseOfTheSessionHasTheErrorOfItsReason(t *testing.T) {
	reasons := map[closeReason]error{
		closeNormal: ErrPeerGone, closePoisoned: ErrProtocol, closeStopping: ErrStopping, closeStalled: ErrStalled,
	}
	for reason, want := range reasons {
		for _, isRead := range []bool{true, false} {
			server, s := pair(t, echo)
			peer := theirs(server)
			peer.mu.Lock()
			if isRead {
				peer.sendClose(reason)
			} else {
				peer.shut(reason)
			}
			peer.mu.Unlock()
			var err error
			if isRead {
				_, err = s.Call(t.Context(), nil)
			}
			for err == nil {
				// The end of the socket says so, and nobody reads the record.
				time.Sleep(time.Millisecond)
				err = s.Err()
			}
			for _, other := range reasons {
				if errors.Is(err, other) != (other == want) {
					t.Errorf("%v, read: %v: %v is not %v alone", reason, isRead, err, want)
				}
			}
		}
	}
}

func TestAServersViolationIsNotCountedAsItsClients(t *testing.T) {
	server, s := pair(t, echo)
	peer := theirs(server)
	s.mu.Lock()
	s.shut(closePoisoned)
	s.mu.Unlock()
	<-peer.ctx.Done()
	check(t, server.Close())
	if server.stats.poisoned.Load() != 0 {
		t.Error("counted")
	}
}

func TestASessionIsRefusedWithTheReason(t *testing.T) {
	dir := t.TempDir()
	listening(t, dir, echo, Token([16]byte{1}), Schema("u64 -> u64"), MaxSessions(1))
	// Also at once: one that was refused holds no place.
	for code, list := range map[RefuseCode][]Option{
		RefusedToken:   {Token([16]byte{2})},
		RefusedService: {Token([16]byte{1}), ServiceVersion(9)},
		RefusedSchema:  {Token([16]byte{1}), Schema("u64 -> u32")},
	} {
		_, err := Dial(t.Context(), dir, "echo", list...)
		if !isRefusal(err, code) {
			t.Fatal(code, err)
		}
	}
	dialed(t, dir, "echo", Token([16]byte{1}), Schema("u64 -> u64"))
	_, err := Dial(t.Context(), dir, "echo", Token([16]byte{1}))
	if !isRefusal(err, RefusedQuota) {
		t.Fatal(err)
	}
}

func TestAdmissionAndTrust(t *testing.T) {
	dir := t.TempDir()
	server := listening(t, dir, echo, Admit(stranger+1))
	for uid, admitted := range map[uint32]bool{uint32(os.Geteuid()): true, 0: true, stranger + 1: true, stranger: false} {
		refused := server.admits(&serverSession{uid: uid})
		if (refused == nil) != admitted || refused != nil && refused.Code != RefusedCredentials {
			t.Errorf("user %d: %v", uid, refused)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("not run: whose socket is trusted, which only root can try")
		return
	}
	check(t, os.Lchown(dir+"/echo.sock", stranger, -1))
	if _, err := Dial(t.Context(), dir, "echo"); !errors.Is(err, ErrUntrusted) {
		t.Error(err)
	}
	dialed(t, dir, "echo", Trust(stranger))
}

func TestARunDirThatOthersMayWriteToIsRefused(t *testing.T) {
	dir := t.TempDir()
	for mode, refused := range map[os.FileMode]bool{0o755: false, 0o775: true, 0o757: true, 0o777 | os.ModeSticky: false} {
		check(t, os.Chmod(dir, mode))
		server, err := Listen(dir, "echo", echo)
		if (err != nil) != refused {
			t.Errorf("%v: %v", mode, err)
		}
		if err == nil {
			server.Close()
		}
	}
}

func TestAClientThatReadsNothingIsClosed(t *testing.T) {
	server, s := pair(t, func(_ context.Context, _, answer []byte) ([]byte, error) {
		return append(answer, make([]byte, 10_000)...), nil
	}, StallTimeout(50*time.Millisecond))
	// Nobody waits, so nobody reads; the answers are more than a lane that grows takes.
	for range 300 {
		submitted(t, s, make([]byte, 16))
	}
	for server.stats.stalled.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for s.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := s.Err(); !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
}

// admitted is a session that opens once another one of this user has ended.
func admitted(t *testing.T, dir, service string, list ...Option) *Session {
	t.Helper()
	for {
		s, err := Dial(t.Context(), dir, service, list...)
		if isRefusal(err, RefusedQuota) {
			continue
		}
		check(t, err)
		return s
	}
}

// counters asks a server for its counters, as `bellwire stat` does, and returns the row of its service and the answer.
func counters(t *testing.T, dir, service string, list ...Option) ([statsCounters]uint64, []byte) {
	t.Helper()
	s := admitted(t, dir, service, append(list, ServiceVersion(statsVersion))...)
	defer s.Close()
	b, err := s.Call(t.Context(), le.AppendUint32(nil, 2))
	check(t, err)
	const total = 0x30
	at := total + 8*statsCounters + 64
	var row [statsCounters]uint64
	for i := range row {
		row[i] = le.Uint64(b[at+8*i:])
	}
	return row, b
}

func TestTheCountersOfAServerAddUp(t *testing.T) {
	dir := t.TempDir()
	begun, release := make(chan struct{}), make(chan struct{})
	listening(t, dir, func(ctx context.Context, request, answer []byte) ([]byte, error) {
		if string(request) == "wait" {
			begun <- struct{}{}
			<-release
		}
		return echo(ctx, request, answer)
	}, MaxSessionsPerUser(2))
	s := dialed(t, dir, "echo", RungBy(DoorbellSocket))
	for range 200 {
		call(t, s, pattern(100))
	}
	call(t, s, pattern(5<<20))
	_, _ = s.Call(t.Context(), []byte("fail"))
	check(t, s.Post(t.Context(), []byte("fail")))
	check(t, s.Flush(t.Context()))
	row, _ := counters(t, dir, "echo")
	for name, is := range map[string][2]uint64{
		"sessions": {row[0], 1}, "socket_rung": {row[1], 0}, "accepted": {row[4], 203}, "answered": {row[5], 202}, "errors": {row[8], 1},
		"attaches_received": {row[16], 1}, "attaches_sent": {row[17], 1}, "clients_by_socket": {row[26], 1}, "posted": {row[33], 1},
		"post_errors": {row[34], 1},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: %d in place of %d", name, is[0], is[1])
		}
	}
	// Of 200 requests and as many answers of 116 bytes.
	if row[14] < 200*112 || row[15] < 200*112 || row[22] < 112 || row[23] < 112 {
		t.Error("bytes: ", row)
	}
	// One handler runs, and a request behind it is lost with its client.
	for _, request := range []string{"wait", "lost"} {
		submitted(t, s, []byte(request))
	}
	<-begun
	s.Close()
	close(release)
	for row[0] != 0 {
		row, _ = counters(t, dir, "echo")
	}
	if row[26] != 0 || row[4] != row[5]+row[6]+row[7]+row[33] {
		t.Error("after the session: ", row)
	}
	// The quota of a user, reported as an incident.
	var open []*Session
	for range 2 {
		open = append(open, admitted(t, dir, "echo"))
	}
	_, err := Dial(t.Context(), dir, "echo")
	if !isRefusal(err, RefusedQuota) {
		t.Fatal(err)
	}
	open[0].Close()
	var b []byte
	if row, b = counters(t, dir, "echo"); row[27] == 0 {
		t.Error("clients_refused: ", row)
	}
	users := b[0x30+3*8*statsCounters+2*64:]
	name := fmt.Sprint("uid ", os.Geteuid())
	if le.Uint32(users) != 1 || string(users[12:12+len(name)]) != name || le.Uint64(users[12+len(name)+8*incidentRefused:]) == 0 {
		t.Errorf("incidents: %x", users)
	}
}
