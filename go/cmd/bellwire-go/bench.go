//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	bellwire "bellwire.dev/go"
	"golang.org/x/sys/unix"
)

// The figures of docs/go.md: two processes, and each measure once in each round.

const (
	benchService = "bench"
	benchClock   = "bench-clock"
	benchMessage = 32
	benchRounds  = 11
)

// measure is one row: what an operation takes, in nanoseconds, of each round.
type measure struct {
	name string
	run  func() (float64, error)
	took []float64
}

func bench(ctx context.Context, end string, list []bellwire.Option) error {
	if end == "serve" {
		return benchServe(ctx, bellwire.RunDir(), list)
	}
	dir, err := os.MkdirTemp("", "bellwire-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server := exec.Command("/proc/self/exe", "bench", "serve")
	server.Env = append(os.Environ(), "BELLWIRE_RUN_DIR="+dir)
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if _, err = server.StdinPipe(); err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() { _, _ = server.Process.Kill(), server.Wait() }()
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		return err
	}
	return benchClient(ctx, dir, list)
}

// benchServe answers calls and a Unix socket with what was sent.
func benchServe(ctx context.Context, dir string, list []bellwire.Option) error {
	server, err := bellwire.Listen(dir, benchService, echo, list...)
	if err != nil {
		return err
	}
	defer server.Close()
	clock, err := bellwire.Publish(dir, benchClock, list...)
	if err != nil {
		return err
	}
	defer clock.Close()
	if _, err := clock.Publish(make([]byte, 1000)); err != nil {
		return err
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "plain"))
	if err != nil {
		return err
	}
	ready()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			message := make([]byte, benchMessage)
			for {
				if _, err := io.ReadFull(conn, message); err != nil {
					return
				}
				if _, err := conn.Write(message); err != nil {
					return
				}
			}
		}()
	}
}

func benchClient(ctx context.Context, dir string, list []bellwire.Option) error {
	session, err := bellwire.Dial(ctx, dir, benchService, list...)
	if err != nil {
		return err
	}
	defer session.Close()
	reader, err := bellwire.NewSnapshotReader(dir, benchClock, list...)
	if err != nil {
		return err
	}
	defer reader.Close()
	if _, err := reader.Next(ctx); err != nil {
		return err
	}
	conn, err := net.Dial("unix", filepath.Join(dir, "plain"))
	if err != nil {
		return err
	}
	defer conn.Close()
	request, answer := bytes.Repeat([]byte{7}, benchMessage), make([]byte, 0, 2*benchMessage)
	measures := []*measure{
		{name: "call, 32 bytes", run: func() (float64, error) {
			return timed(20_000, func(int) error {
				_, err := session.AppendCall(ctx, answer, request)
				return err
			})
		}},
		{name: "Unix socket, 32 bytes", run: func() (float64, error) {
			return timed(20_000, func(int) error {
				_, err := conn.Write(request)
				if err == nil {
					_, err = io.ReadFull(conn, answer[:benchMessage])
				}
				return err
			})
		}},
		{name: "connection, a call, its answer", run: func() (float64, error) { return benchConnect(ctx, dir, request, list) }},
		{name: "refresh, unchanged", run: func() (float64, error) {
			return onProcessor(5_000_000, func(int) error {
				_, err := reader.Refresh(ctx)
				return err
			})
		}},
	}
	for range benchRounds {
		for _, m := range measures {
			took, err := m.run()
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			m.took = append(m.took, took)
		}
	}
	fmt.Printf("%d rounds, each measure once in each; ns an operation\n%-34s %10s %10s %10s\n", benchRounds, "", "median", "least", "most")
	for _, m := range measures {
		sorted := slices.Sorted(slices.Values(m.took))
		fmt.Printf("%-34s %10.1f %10.1f %10.1f\n", m.name, sorted[benchRounds/2], sorted[0], sorted[benchRounds-1])
	}
	var ratios []float64
	for i, call := range measures[0].took {
		ratios = append(ratios, measures[1].took[i]/call)
	}
	slices.Sort(ratios)
	fmt.Printf("%-34s %10.1f %10.1f %10.1f\n", "times as fast as the Unix socket", ratios[benchRounds/2], ratios[0], ratios[benchRounds-1])
	return nil
}

// benchConnect is the median of some connections, each with one call. Both ends sleep before each.
func benchConnect(ctx context.Context, dir string, request []byte, list []bellwire.Option) (float64, error) {
	took := make([]float64, 60)
	for i := range took {
		time.Sleep(2 * time.Millisecond)
		start := time.Now()
		session, err := bellwire.Dial(ctx, dir, benchService, list...)
		if err != nil {
			return 0, err
		}
		_, err = session.Call(ctx, request)
		took[i] = float64(time.Since(start).Nanoseconds())
		session.Close()
		if err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// timed is how long an operation takes by the clock.
func timed(count int, operation func(int) error) (float64, error) {
	start := time.Now()
	for i := range count {
		if err := operation(i); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(start).Nanoseconds()) / float64(count), nil
}

// onProcessor is what an operation that never waits takes of the processor, whatever else runs there.
func onProcessor(count int, operation func(int) error) (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var start, end unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &start); err != nil {
		return 0, err
	}
	for i := range count {
		if err := operation(i); err != nil {
			return 0, err
		}
	}
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &end); err != nil {
		return 0, err
	}
	return float64(end.Nano()-start.Nano()) / float64(count), nil
}
