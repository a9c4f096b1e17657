//go:build linux

package bellwire

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Await dials until a provider has come that can be used, or the context ends. It sleeps until the run directory changes,
// and backs off, with jitter, from a provider that does not answer, or refuses for a reason that passes.
func Await(ctx context.Context, dir, service string, list ...Option) (*Session, error) {
	o, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	return await(ctx, dir, service, o)
}

func await(ctx context.Context, dir, service string, o options) (*Session, error) {
	const least = 10 * time.Millisecond
	var a arrivals
	defer a.close()
	for wait, first := least, true; ; first = false {
		var unwatched error
		if !first {
			unwatched = a.watch(dir)
		}
		s, err := dial(ctx, dir, service, o)
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, ErrAbsent) && first:
			// A provider that is there needs no inotify instance, of which a user has few.
			continue
		case errors.Is(err, ErrAbsent) && unwatched == nil:
			if err := a.wait(ctx); err != nil {
				return nil, err
			}
			wait = least
			continue
		case errors.Is(err, ErrAbsent), peerLeft(err), noAnswer(ctx, err):
		case isRefusal(err, RefusedQuota, RefusedStopping, RefusedResources):
		default:
			return nil, err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		wait = min(2*wait, time.Second)
	}
}

// noAnswer reports whether a handshake took longer than HandshakeTimeout.
func noAnswer(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded)
}

// arrivals is an inotify instance, once it watches, which says that a provider may have come.
type arrivals struct {
	fd    int
	file  *os.File // of fd; nil before
	woken bool     // something has changed since the first watch
}

// What happens in a directory when the next one on the path goes, and when it comes.
const (
	goes  = unix.IN_DELETE | unix.IN_MOVED_FROM
	comes = unix.IN_CREATE | unix.IN_MOVED_TO
)

// watch watches a run directory, or its nearest ancestor that exists, and the one above that: a directory that was removed
// reports its end only when the last file that was in it is closed. Files are removed before their directory: until something
// has changed, the run directory is watched alone, and until it has no files, nothing is awaited that is removed above it.
func (a *arrivals) watch(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if a.file == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return os.NewSyscallError("inotify_init1", err)
		}
		a.fd, a.file = fd, os.NewFile(uintptr(fd), "inotify")
	}
	// A directory below the nearest may be made before the watch begins: repeat until the nearest is the same.
	for before := ""; ; {
		nearest := dir
		err := a.add(nearest, comes|goes|unix.IN_ATTRIB)
		for (err == unix.ENOENT || err == unix.ENOTDIR) && nearest != "/" {
			nearest = filepath.Dir(nearest)
			err = a.add(nearest, comes)
		}
		if err != nil || nearest == before || nearest == dir && !a.woken {
			return err
		}
		if above := filepath.Dir(nearest); above != nearest {
			events := uint32(goes)
			if nearest == dir && endsWithEvents(dir) {
				events = 0
			}
			// Without the right to watch it, the end of the nearest goes unnoticed until its files are closed.
			_ = a.add(above, events)
		}
		before = nearest
	}
}

// endsWithEvents reports whether something happens in a directory before it can go: it is no link, and there are files in it.
func endsWithEvents(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	file, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer file.Close()
	names, _ := file.Readdirnames(1)
	return len(names) > 0
}

// add watches a directory for these events, and for its own end.
func (a *arrivals) add(dir string, events uint32) error {
	_, err := unix.InotifyAddWatch(a.fd, dir, events|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_ONLYDIR)
	return err
}

// wait returns after the next change.
func (a *arrivals) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var events [4096]byte
	_, err := a.file.Read(events[:])
	a.woken = true
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// close waits for nobody: the kernel takes some 20 ms.
func (a *arrivals) close() {
	if a.file != nil {
		go a.file.Close()
	}
}
