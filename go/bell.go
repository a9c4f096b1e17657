//go:build linux

package bellwire

import (
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bell is where a goroutine of an end sleeps until the peer rings.
type bell interface {
	// wait returns when ready does, or after a kick. It may return early.
	wait(ready func() bool)
	// kick ends the wait that is under way, or the next one.
	kick()
	// rearm forgets kicks. Check afterwards what a kick may have announced.
	rearm()
	close()
}

// eventBell is an eventfd in the runtime's poller. It is edge-triggered and never read: the peer shares the eventfd, and
// could make a read block.
type eventBell struct {
	file   *os.File
	raw    syscall.RawConn
	kicked atomic.Bool
}

func newEventBell() (*eventBell, int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, -1, asShortage("eventfd", err)
	}
	file := os.NewFile(uintptr(fd), "bellwire eventfd")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, -1, err
	}
	return &eventBell{file: file, raw: raw}, fd, nil
}

func (b *eventBell) wait(ready func() bool) {
	_ = b.raw.Read(func(uintptr) bool { return ready() })
}

func (b *eventBell) kick() {
	// The flag after the deadline: a rearm between them finds the deadline again next time.
	_ = b.file.SetReadDeadline(time.Unix(1, 0))
	b.kicked.Store(true)
}

func (b *eventBell) rearm() {
	if b.kicked.Swap(false) {
		_ = b.file.SetReadDeadline(time.Time{})
	}
}

func (b *eventBell) close() { b.file.Close() }

// socketBell is rung by a message that the goroutine of the control socket takes.
type socketBell chan struct{}

func (b socketBell) wait(ready func() bool) {
	if !ready() {
		<-b
	}
}

func (b socketBell) kick() {
	select {
	case b <- struct{}{}:
	default:
	}
}

func (b socketBell) rearm() {}
func (b socketBell) close() {}

// spinFor is about what it takes to wake a sleeping process on another processor.
const spinFor = 40 * time.Microsecond

// spinner decides whether to poll before sleeping: not on one processor, and less often the more often it was in vain.
type spinner struct {
	misses uint // in a row, at most 8
	skip   uint // so many more times
}

// spin polls moved for so long, and reports whether it returned true. It reads the clock after each burst of polls.
func (s *spinner) spin(limit time.Duration, burst int, moved func() bool) bool {
	if s.skip > 0 {
		s.skip--
		return false
	}
	if runtime.GOMAXPROCS(0) == 1 || runtime.NumCPU() == 1 {
		return false
	}
	for start := time.Now(); ; runtime.Gosched() {
		for range burst {
			if moved() {
				s.misses = 0
				return true
			}
		}
		if time.Since(start) > limit {
			break
		}
	}
	s.misses = min(s.misses+1, 8)
	s.skip = 1<<s.misses - 2
	return false
}

// futexWake wakes waiters on the low half of a word in shared memory.
func futexWake(word *uint64, waiters int) {
	const wake = 1 // FUTEX_WAKE, shared
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), wake, uintptr(waiters), 0, 0, 0)
}

var started, startedAt = time.Now(), monotonic()

func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}

// now is CLOCK_MONOTONIC in nanoseconds, without a system call.
func now() uint64 { return uint64(startedAt + int64(time.Since(started))) }
