//go:build linux

package bellwire

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// silent listens at a service's socket, accepts and says nothing.
func silent(t *testing.T, dir, service string) (*net.UnixListener, chan net.Conn) {
	t.Helper()
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, service+".sock"), Net: "unixpacket"})
	check(t, err)
	accepted := make(chan net.Conn, 64)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	t.Cleanup(func() { listener.Close() })
	return listener, accepted
}

func TestACallersContextEndsItsWaitForAnotherOnesHandshake(t *testing.T) {
	dir := t.TempDir()
	_, accepted := silent(t, dir, "echo")
	client, err := NewClient[Bytes, Bytes](dir, "echo", HandshakeTimeout(time.Hour))
	check(t, err)
	first := make(chan error)
	go func() {
		_, err := client.Call(t.Context(), nil)
		first <- err
	}()
	<-accepted
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := client.Call(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	client.Close()
	if err := <-first; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for what, option := range map[string]Option{
		"no lane of 5000 bytes": Lane(5000, 8192),
		"rung by a futex":       RungBy(DoorbellFutex),
		"no such doorbell":      RungBy(7),
	} {
		_, err := Dial(t.Context(), t.TempDir(), "echo", option)
		if err == nil || errors.Is(err, ErrAbsent) || !strings.HasPrefix(err.Error(), "bellwire: option") {
			t.Errorf("%s: %v", what, err)
		}
	}
	t.Setenv("BELLWIRE_TOKEN", "abc")
	if _, err := Dial(t.Context(), t.TempDir(), "echo"); err == nil || strings.Contains(err.Error(), "control message") {
		t.Error(err)
	}
}

func TestACallOutlivesTheCloseOfItsSession(t *testing.T) {
	for reason := closeNormal; reason.isKnown(); reason++ {
		dir := t.TempDir()
		server := listening(t, dir, echo)
		client, err := NewClient[Bytes, Bytes](dir, "echo", Idempotent())
		check(t, err)
		_, err = client.Session(t.Context())
		check(t, err)
		peer := theirs(server)
		peer.mu.Lock()
		peer.sendClose(reason)
		peer.mu.Unlock()
		if _, err := client.Call(t.Context(), Bytes("again")); err != nil {
			t.Errorf("%v: %v", reason, err)
		}
		client.Close()
	}
}

// undecodable is an answer that cannot be decoded.
type undecodable struct{}

var errUndecodable = errors.New("undecodable")

func (*undecodable) UnmarshalBinary([]byte) error { return errUndecodable }

func TestAnAnswerThatCannotBeDecodedIsMalformed(t *testing.T) {
	dir := t.TempDir()
	listening(t, dir, echo)
	client, err := NewClient[Bytes, undecodable](dir, "echo")
	check(t, err)
	defer client.Close()
	_, err = client.Call(t.Context(), nil)
	if !errors.Is(err, ErrMalformed) || !errors.Is(err, errUndecodable) || ExecutedOf(err) != ExecutedYes {
		t.Error(err)
	}
}

func TestReaderOfACallServiceGetsAnError(t *testing.T) {
	dir := t.TempDir()
	listening(t, dir, echo)
	r := snapshotReader(t, dir, "echo")
	if _, err := r.Next(t.Context()); err == nil {
		t.Error("a snapshot")
	}
	s, err := Subscribe(t.Context(), dir, "echo", false)
	if err == nil {
		_, err = s.Next(t.Context())
		s.Close()
	}
	if err == nil {
		t.Error("an event")
	}
}

func TestExecutedIsKnownAfterARetry(t *testing.T) {
	dir := t.TempDir()
	handler, begun, release := pausing()
	listening(t, dir, handler)
	defer close(release)
	client, err := NewClient[Bytes, Bytes](dir, "echo", Idempotent())
	check(t, err)
	defer client.Close()
	failed := make(chan error)
	go func() {
		_, err := client.Call(t.Context(), Bytes("wait"))
		failed <- err
	}()
	<-begun
	// The first provider is gone, and there is no second one.
	check(t, os.Remove(filepath.Join(dir, "echo.sock")))
	s, err := client.Session(t.Context())
	check(t, err)
	s.peerDied()
	if err := <-failed; !errors.Is(err, ErrAbsent) || ExecutedOf(err) != ExecutedMaybe {
		t.Error(err, ExecutedOf(err))
	}
}

func TestARunDirectoryWithALongPathIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 107))
	_, listens := Listen(dir, "echo", echo)
	_, dials := Dial(t.Context(), dir, "echo")
	for _, err := range []error{listens, dials} {
		if err == nil || !strings.Contains(err.Error(), "shorter run directory") {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Listen(t.TempDir(), "echo", nil); err == nil {
		t.Error("a server without a handler")
	}
}
