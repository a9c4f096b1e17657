//go:build linux

package bellwire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	sealsOfOwner  = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	sealsConstant = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL

	sysCachestat = 451 // on every processor that this package supports
	hugetlbfs    = 0x958458f6
)

// shortage is a lack of descriptors, memory or maps in this process.
type shortage struct{ err error }

func (s shortage) Error() string { return "this process lacks resources: " + s.err.Error() }
func (s shortage) Unwrap() error { return s.err }

func isShortage(err error) bool {
	var s shortage
	return errors.As(err, &s)
}

func asShortage(call string, err error) error {
	wrapped := os.NewSyscallError(call, err)
	switch err {
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOSPC, unix.EAGAIN, unix.ENOBUFS, unix.ETOOMANYREFS:
		return shortage{wrapped}
	}
	return wrapped
}

// newMemfd makes a memfd whose pages are all allocated.
func newMemfd(name string, size int64) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		// Linux before 6.3.
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, asShortage("memfd_create", err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		unix.Close(fd)
		return -1, asShortage("ftruncate", err)
	}
	for {
		err := unix.Fallocate(fd, 0, 0, size)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			unix.Close(fd)
			return -1, asShortage("fallocate", err)
		}
	}
}

// newShared makes memory that this process alone can write: mapped, then sealed. The descriptor is for the peer.
func newShared(name string, size int) (int, []byte, error) {
	fd, err := newMemfd(name, int64(size))
	if err != nil {
		return -1, nil, err
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return -1, nil, asShortage("mmap", err)
	}
	// A child must not write what this process says.
	_ = unix.Madvise(mem, unix.MADV_DONTFORK)
	if err := addSeals(fd, sealsOfOwner); err != nil {
		unix.Close(fd)
		unmap(mem)
		return -1, nil, err
	}
	return fd, mem, nil
}

// roundedUp is the length of a constant memfd with so many bytes in it.
func roundedUp(bytes uint64) uint64 {
	page := uint64(os.Getpagesize())
	return max(page, (bytes+page-1)&^(page-1))
}

// newConstant makes a memfd with these bytes that nobody can write any more, this process neither.
func newConstant(name string, bytes []byte) (int, error) {
	fd, err := newMemfd(name, int64(roundedUp(uint64(len(bytes)))))
	if err != nil {
		return -1, err
	}
	for at := 0; at < len(bytes); {
		n, err := unix.Pwrite(fd, bytes[at:], int64(at))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			unix.Close(fd)
			return -1, asShortage("pwrite", err)
		}
		at += n
	}
	if err := addSeals(fd, sealsConstant); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func addSeals(fd, seals int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	return nil
}

// mapPeers checks memory from a peer in the order of docs/wire.md, and maps it read-only.
func mapPeers(fd int, size uint64, constant bool) ([]byte, error) {
	if err := verify(fd, size, constant); err != nil {
		return nil, err
	}
	if size > uint64(^uint(0)>>1) {
		return nil, shortage{unix.ENOMEM}
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err == unix.EPERM && constant {
		// Kernels before 6.7 refuse a shared map of memory that is sealed against writing.
		mem, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	}
	if err != nil {
		return nil, asShortage("mmap", err)
	}
	return mem, nil
}

// mapChecked maps memory from a peer whose header, of which this gets a copy, is as it should be.
func mapChecked(fd int, size uint64, check func(header []byte) error) ([]byte, error) {
	mem, err := mapPeers(fd, size, false)
	if err != nil {
		return nil, err
	}
	var header [memoryHeaderSize]byte
	copy(header[:], mem)
	if err := check(header[:]); err != nil {
		unmap(mem)
		return nil, err
	}
	return mem, nil
}

func verify(fd int, size uint64, constant bool) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return memoryFault("object: it has no seals")
	}
	wanted := sealsOfOwner
	if constant || seals&unix.F_SEAL_WRITE != 0 {
		wanted = sealsConstant
	}
	if seals&wanted != wanted {
		return memoryFault("seals")
	}
	var stat unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return memoryFault("object: it is no regular file")
	}
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if uint32(fs.Type) == hugetlbfs {
		return memoryFault("object: it has huge pages")
	}
	if uint64(stat.Size) != size {
		return memoryFault(fmt.Sprintf("size: %d in place of %d bytes", stat.Size, size))
	}
	return verifyAllocated(fd, size)
}

// verifyAllocated sees to it that the owner has paid for each page: else reading them charges this process.
func verifyAllocated(fd int, size uint64) error {
	var asked = struct{ off, len uint64 }{0, size}
	var pages struct{ cache, dirty, writeback, evicted, recently uint64 }
	_, _, errno := unix.Syscall6(sysCachestat, uintptr(fd),
		uintptr(unsafe.Pointer(&asked)), uintptr(unsafe.Pointer(&pages)), 0, 0, 0)
	page := uint64(os.Getpagesize())
	switch errno {
	case 0:
		if pages.cache+pages.evicted < (size+page-1)/page {
			return memoryFault("pages: not all of them are allocated")
		}
		return nil
	case syscall.ENOSYS, syscall.EPERM, syscall.EINVAL, syscall.EOPNOTSUPP:
	default:
		return os.NewSyscallError("cachestat", errno)
	}
	// Without cachestat: st_blocks counts pages behind the end, too, which this frees.
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return memoryFault("descriptor: it cannot be written")
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if uint64(stat.Blocks)*512 < size {
		return memoryFault("pages: not all of them are allocated")
	}
	return nil
}

func unmap(mem []byte) {
	if mem != nil {
		_ = unix.Munmap(mem)
	}
}

// closeOwn closes descriptors whose close does not block: of this process's own, and of memory that was checked.
func closeOwn(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// maxCloses is how many closes of what one user sent run at once. One that blocks takes a thread, and a program of Go dies at
// 10 000.
const maxCloses = 16

// closeTimeout is how long a close may take before it counts as one that blocks.
const closeTimeout = 100 * time.Millisecond

// unadmittedUsers stands for all users who are not admitted, of whom there may be any number: their closes wait for each other.
// It is no user's number.
const unadmittedUsers = ^uint32(0)

// reapers has a reaper for each user of whom something is to be closed.
var (
	reapersMu sync.Mutex
	reapers   = map[uint32]*reaper{}
)

// reaper closes what peers of one user sent. That may block, so no other user's closes wait for it.
type reaper struct {
	waiting    []func()
	running    int
	progressed time.Time // when the latest close began or ended
}

// hasBlockedClose reports whether as many closes as may run of what this user sent block. What else it sends stays open.
func hasBlockedClose(user uint32) bool {
	reapersMu.Lock()
	defer reapersMu.Unlock()
	r := reapers[user]
	return r != nil && r.running == maxCloses && time.Since(r.progressed) >= closeTimeout
}

// reap closes descriptors that a peer of this user sent, and does not wait for it.
func reap(user uint32, fds ...int) {
	if len(fds) > 0 {
		fds = slices.Clone(fds)
		reapBy(user, func() { closeOwn(fds...) })
	}
}

// reapConn closes a connection, and with it the descriptors that the peer left there. The peer learns it at once.
func reapConn(user uint32, conn *net.UnixConn) {
	// Nothing comes from here on.
	_, _ = conn.CloseRead(), conn.CloseWrite()
	isEmpty := false
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { isEmpty = becomesEmpty(int(fd)) })
	}
	if isEmpty {
		go conn.Close() // it waits for a goroutine that reads, which may wait for the caller
		return
	}
	reapBy(user, func() { conn.Close() })
}

// becomesEmpty takes one message without descriptors, such as a refused client's HELLO, off a socket that is shut down, and
// reports whether there is no other: then its close does not block.
func becomesEmpty(fd int) bool {
	// A peer that has gone leaves an error before its messages. This takes it.
	_, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	peek := func() (n, flags int, err error) {
		n, _, flags, _, err = unix.Recvmsg(fd, make([]byte, 1), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return n, flags, err
	}
	// Without room for descriptors, a message that has some is cut.
	if _, flags, err := peek(); err == nil && flags&unix.MSG_CTRUNC == 0 {
		_, _, _ = unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT)
	}
	// From here on each message has its sender's credentials, an empty one, too, and the end has none.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) != nil {
		return false
	}
	n, flags, err := peek()
	return err == nil && n == 0 && flags&unix.MSG_CTRUNC == 0
}

func reapBy(user uint32, closes func()) {
	reapersMu.Lock()
	defer reapersMu.Unlock()
	r := reapers[user]
	if r == nil {
		r = &reaper{}
		reapers[user] = r
	}
	r.waiting = append(r.waiting, closes)
	if r.running < maxCloses {
		r.running++
		r.progressed = time.Now()
		go r.run(user)
	}
}

// run closes until nothing waits.
func (r *reaper) run(user uint32) {
	reapersMu.Lock()
	defer reapersMu.Unlock()
	for len(r.waiting) > 0 {
		closes := r.waiting[0]
		r.waiting = r.waiting[1:]
		reapersMu.Unlock()
		closes()
		reapersMu.Lock()
		r.progressed = time.Now()
	}
	if r.running--; r.running == 0 {
		delete(reapers, user)
	}
}
