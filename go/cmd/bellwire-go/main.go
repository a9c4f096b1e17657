//go:build linux

// Command bellwire-go is the Go end of tests between languages and of measurements.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	bellwire "bellwire.dev/go"
)

const usage = `usage: bellwire-go COMMAND ARGUMENT...
  call SERVICE HEX           send a request, print the answer in hexadecimal digits
  interop SCENARIO DOORBELL  one end of the tests between languages
  bench calls                measure, beside a Unix socket`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := bellwire.Log(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(ctx, os.Args[1:], []bellwire.Option{log}); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, list []bellwire.Option) error {
	switch {
	case len(args) == 3 && args[0] == "call":
		return call(ctx, args[1], args[2], list)
	case len(args) == 3 && args[0] == "interop":
		return interop(ctx, args[1], args[2], list)
	case len(args) == 2 && args[0] == "bench":
		return bench(ctx, args[1], list)
	}
	return errors.New(usage)
}

// echo answers each request with itself.
func echo(_ context.Context, request, answer []byte) ([]byte, error) {
	return append(answer, request...), nil
}

// ready tells the program that has started this one, and ends this one with it.
func ready() {
	fmt.Println("ready")
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
}

func call(ctx context.Context, service, text string, list []bellwire.Option) error {
	request, err := hex.DecodeString(text)
	if err != nil {
		return err
	}
	s, err := bellwire.Await(ctx, bellwire.RunDir(), service, list...)
	if err != nil {
		return err
	}
	defer s.Close()
	answer, err := s.Call(ctx, request)
	if err == nil {
		fmt.Println(hex.EncodeToString(answer))
	}
	return err
}
