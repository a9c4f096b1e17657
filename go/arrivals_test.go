//go:build linux

package bellwire

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// finds awaits a provider.
func finds(ctx context.Context, dir, service string, list ...Option) error {
	s, err := Await(ctx, dir, service, list...)
	if err == nil {
		s.Close()
	}
	return err
}

func TestAwaitOutlivesAProviderThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	listener, accepted := silent(t, dir, "clock")
	opened := make(chan error)
	go func() { opened <- finds(t.Context(), dir, "clock", HandshakeTimeout(10*time.Millisecond)) }()
	read := make(chan error)
	go func() {
		r, err := NewSnapshotReader(dir, "clock", HandshakeTimeout(10*time.Millisecond))
		if err == nil {
			_, err = r.Next(t.Context())
			r.Close()
		}
		read <- err
	}()
	for range 4 {
		select {
		case <-accepted:
		case err := <-opened:
			t.Fatal(err)
		case err := <-read:
			t.Fatal(err)
		}
	}
	listener.Close()
	p := publisher(t, dir)
	publish(t, p, []byte("tick"))
	check(t, <-opened)
	check(t, <-read)
}

// whenUnwatched waits until the inotify instances of the tests before are closed.
func whenUnwatched(t *testing.T) {
	t.Helper()
	for openFDs(t, "inotify") > 0 {
		time.Sleep(time.Millisecond)
	}
}

func TestAnAvailableProviderNeedsNoInotifyInstance(t *testing.T) {
	whenUnwatched(t)
	dir := t.TempDir()
	_, accepted := silent(t, dir, "echo")
	ctx, cancel := context.WithCancel(t.Context())
	awaited := make(chan error)
	go func() { awaited <- finds(ctx, dir, "echo", HandshakeTimeout(time.Hour)) }()
	<-accepted
	if count := openFDs(t, "inotify"); count > 0 {
		t.Error(count, "inotify instances")
	}
	cancel()
	<-awaited
}

// whenWatched waits until this process watches a directory.
func whenWatched(t *testing.T, dir string) {
	t.Helper()
	var stat unix.Stat_t
	check(t, unix.Stat(dir, &stat))
	for ; ; time.Sleep(time.Millisecond) {
		infos, err := filepath.Glob("/proc/self/fdinfo/*")
		check(t, err)
		for _, info := range infos {
			text, _ := os.ReadFile(info)
			if strings.Contains(string(text), fmt.Sprintf(" ino:%x ", stat.Ino)) {
				return
			}
		}
	}
}

// Each step reports its end only when the file that was in it is closed.
func TestAwaitNoticesThatARunDirectoryIsRemovedAndRecreated(t *testing.T) {
	above := filepath.Join(t.TempDir(), "above")
	dir := filepath.Join(above, "run")
	check(t, os.MkdirAll(dir, 0o700))
	for _, at := range []string{above, dir} {
		held, err := os.Create(filepath.Join(at, "file"))
		check(t, err)
		defer held.Close()
	}
	opened := make(chan error)
	go func() { opened <- finds(t.Context(), dir, "echo") }()
	whenWatched(t, dir)
	check(t, os.RemoveAll(above))
	whenWatched(t, filepath.Dir(above))
	check(t, os.Mkdir(above, 0o700))
	listening(t, dir, echo)
	check(t, <-opened)
}

func TestAwaitFindsAProviderInARunDirectoryThatItMayNotRead(t *testing.T) {
	dir := dirOf(t, 0)
	if dir == "" {
		return
	}
	check(t, os.Chmod(dir, 0o711))
	whenUnwatched(t)
	opened := make(chan error)
	go asUser(stranger, func() { opened <- finds(t.Context(), dir, "echo") })
	for openFDs(t, "inotify") == 0 {
		time.Sleep(time.Millisecond)
	}
	listening(t, dir, echo, Admit(stranger))
	check(t, <-opened)
}

func TestOnlyChangesThatBringOrEndARunDirectoryEndAWait(t *testing.T) {
	above := t.TempDir()
	dir, other := filepath.Join(above, "run"), filepath.Join(above, "other")
	var a arrivals
	defer a.close()
	isWoken := func() bool { return polled(uintptr(a.fd), unix.POLLIN) }
	check(t, os.WriteFile(other, nil, 0o600))
	check(t, a.watch(dir))
	check(t, os.Remove(other))
	if isWoken() {
		t.Error("what goes above a missing one is not its coming")
	}
	check(t, os.Mkdir(dir, 0o700))
	check(t, a.wait(t.Context()))
	socket := filepath.Join(dir, "echo.sock")
	check(t, os.WriteFile(socket, nil, 0o600))
	check(t, a.watch(dir))
	check(t, os.WriteFile(other, nil, 0o600))
	check(t, os.Remove(other))
	if isWoken() {
		t.Error("files go from it before it does")
	}
	// While a file that was in it is open, only the one above it tells that it goes.
	held, err := os.Open(socket)
	check(t, err)
	defer held.Close()
	check(t, os.Remove(socket))
	check(t, a.wait(t.Context()))
	check(t, a.watch(dir))
	check(t, os.Remove(dir))
	if !isWoken() {
		t.Error("it has gone")
	}
}
