//go:build linux

package bellwire

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asAnotherProcess runs a part of a test in a process of its own.
func asAnotherProcess(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	// Another processor's program starts under its emulator only.
	program := append(strings.Fields(os.Getenv("BELLWIRE_TEST_EMULATOR")), os.Args[0], "-test.run=^"+name+"$")
	command := exec.Command(program[0], program[1:]...)
	command.Env = append(os.Environ(), "BELLWIRE_TEST_PROCESS="+strings.Join(args, " "))
	command.Stderr = os.Stderr
	return command
}

// A process whose child holds its socket dies: nobody hangs up.
func TestAServerSeesTheProcessOfAClientDie(t *testing.T) {
	if args := os.Getenv("BELLWIRE_TEST_PROCESS"); args != "" {
		s, err := Dial(t.Context(), args, "echo")
		check(t, err)
		file, err := s.sock.conn.File()
		check(t, err)
		child := exec.Command("cat")
		child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{file}
		check(t, child.Start())
		os.Stdout.WriteString("open\n")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	dir := t.TempDir()
	server := listening(t, dir, echo)
	client := asAnotherProcess(t, t.Name(), dir)
	stdin, ends, err := os.Pipe()
	check(t, err)
	defer ends.Close() // and with it the child
	client.Stdin = stdin
	stdout, err := client.StdoutPipe()
	check(t, err)
	check(t, client.Start())
	stdin.Close()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	_ = client.Wait()
	for server.stats.sessions.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// asUser runs a function as another user; only this thread is one.
func asUser(uid uintptr, run func()) {
	become := func(uid uintptr) {
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0)); errno != 0 {
			panic(errno)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become(uid)
	defer become(0)
	run()
}

// dirOf is a run directory of another user; "" if this process cannot make one.
func dirOf(t *testing.T, owner int) string {
	if os.Geteuid() != 0 {
		t.Log("not run: only root can be two users")
		return ""
	}
	// Nobody else can change anything above it.
	dir, err := os.MkdirTemp("/run", "bellwire-test")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, owner, -1))
	}
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

const stranger = 4242

func TestRootTrustsTheOwnerOfARunDir(t *testing.T) {
	dir := dirOf(t, stranger)
	if dir == "" {
		return
	}
	asUser(stranger, func() { listening(t, dir, echo) })
	s := dialed(t, dir, "echo")
	for range 200 {
		call(t, s, []byte("hello"))
	}
	s.Close()
	check(t, os.Chmod(dir, 0o777|os.ModeSticky))
	if _, err := Dial(t.Context(), dir, "echo"); !errors.Is(err, ErrUntrusted) {
		t.Error(err)
	}
}

func TestAClientOfAServerOfRootIsRung(t *testing.T) {
	dir := dirOf(t, 0)
	if dir == "" {
		return
	}
	listening(t, dir, func(_ context.Context, request, answer []byte) ([]byte, error) {
		time.Sleep(time.Millisecond) // the client sleeps
		return append(answer, request...), nil
	}, Admit(stranger))
	var s *Session
	asUser(stranger, func() { s = dialed(t, dir, "echo") })
	for range 20 {
		call(t, s, []byte("hello"))
	}
}
