//go:build linux

// Command bellwire-go is a peer for tests and experiments: it serves and calls services by the Go package.
package main

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	bellwire "bellwire.dev/go"
)

const usage = `usage: bellwire-go [options] COMMAND SERVICE [ARGUMENT...]
  serve SERVICE              answer each request with itself, until SIGTERM
  call SERVICE HEX           send a request, print the answer in hexadecimal digits
  interop SCENARIO DOORBELL  one end of the tests between languages
  bench calls                measure, beside a Unix socket`

func main() {
	method := flag.Uint("method", 1, "the method `number` of the service")
	timeout := flag.Duration("timeout", 5*time.Second, "how long to wait")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, usage); flag.PrintDefaults() }
	flag.Parse()
	if flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	list := []bellwire.Option{
		bellwire.Method(uint32(*method)), bellwire.Log(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	}
	if err := run(ctx, flag.Arg(0), flag.Arg(1), flag.Args()[2:], *timeout, list); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command, service string, args []string, timeout time.Duration, list []bellwire.Option) error {
	dir := bellwire.RunDir()
	switch command {
	case "serve":
		return serve(ctx, dir, service, list)
	case "call":
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return call(ctx, dir, service, args, list)
	case "bench":
		return bench(ctx, service, list)
	case "interop":
		if len(args) == 1 {
			return interop(ctx, service, args[0], list)
		}
	}
	return fmt.Errorf("no command %q\n%s", command, usage)
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

func serve(ctx context.Context, dir, service string, list []bellwire.Option) error {
	server, err := bellwire.Listen(dir, service, echo, list...)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	<-ctx.Done()
	return server.Close()
}

func call(ctx context.Context, dir, service string, args []string, list []bellwire.Option) error {
	s, err := bellwire.Await(ctx, dir, service, list...)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, arg := range args {
		request, err := hex.DecodeString(arg)
		if err != nil {
			return err
		}
		answer, err := s.Call(ctx, request)
		if err != nil {
			return err
		}
		fmt.Println(hex.EncodeToString(answer))
	}
	return nil
}
