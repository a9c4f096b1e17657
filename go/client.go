//go:build linux

package bellwire

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Encoder is what encodes a request or an answer; encoding.BinaryAppender has this method, and so has Bytes.
type Encoder interface {
	AppendBinary(b []byte) ([]byte, error)
}

// Decoder is a pointer to what is decoded; encoding.BinaryUnmarshaler is one. The bytes are not to be kept.
type Decoder[T any] interface {
	*T
	UnmarshalBinary(b []byte) error
}

// Bytes are a request or an answer as they are.
type Bytes []byte

// AppendBinary appends the bytes.
func (b Bytes) AppendBinary(to []byte) ([]byte, error) { return append(to, b...), nil }

// UnmarshalBinary copies the bytes.
func (b *Bytes) UnmarshalBinary(from []byte) error {
	*b = append((*b)[:0], from...)
	return nil
}

// Client calls a service by its name, whichever process provides it: it opens a session when it needs one, and another one
// when the provider has restarted. Any number of goroutines may use it at once.
type Client[Req Encoder, Resp any, P Decoder[Resp]] struct {
	dir, service string
	o            options

	mu      sync.Mutex
	session *Session
	dialing chan struct{} // holds one token while somebody dials
	ctx     context.Context
	close   context.CancelFunc
	buffers sync.Pool
}

// NewClient makes a client of a service in a run directory. It does not connect yet.
func NewClient[Req Encoder, Resp any, P Decoder[Resp]](dir, service string, list ...Option) (*Client[Req, Resp, P], error) {
	o, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	c := &Client[Req, Resp, P]{dir: dir, service: service, o: o, dialing: make(chan struct{}, 1)}
	c.ctx, c.close = context.WithCancel(context.Background())
	return c, nil
}

// Call sends a request and returns its answer. A request whose handler did not run, or of a service that is Idempotent, is
// sent once more if the provider was restarted. It fails with ErrAbsent if there is no provider.
func (c *Client[Req, Resp, P]) Call(ctx context.Context, request Req) (response Resp, err error) {
	buffer, _ := c.buffers.Get().(*[2][]byte)
	if buffer == nil {
		buffer = new([2][]byte)
	}
	defer c.buffers.Put(buffer)
	if buffer[0], err = request.AppendBinary(buffer[0][:0]); err != nil {
		return response, err
	}
	tried, ran := false, ExecutedNo
	for {
		var s *Session
		if s, err = c.Session(ctx); err != nil {
			return response, atLeast(ran, err)
		}
		var answer []byte
		answer, err = s.AppendCall(ctx, buffer[1][:0], buffer[0])
		if err == nil {
			buffer[1] = answer
			if err = P(&response).UnmarshalBinary(answer); err != nil {
				err = &ended{err, ExecutedYes}
			}
			return response, err
		}
		again := errors.Is(err, ErrPeerGone) && (c.o.idempotent || ExecutedOf(err) == ExecutedNo)
		if !again || tried || ctx.Err() != nil {
			return response, atLeast(ran, err)
		}
		tried, ran = true, ExecutedOf(err)
	}
}

// Session returns the session that is open, or opens one.
func (c *Client[Req, Resp, P]) Session(ctx context.Context) (*Session, error) {
	if s, err := c.open(); s != nil || err != nil {
		return s, err
	}
	select {
	case c.dialing <- struct{}{}:
		defer func() { <-c.dialing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, ErrClosed
	}
	if s, err := c.open(); s != nil || err != nil {
		return s, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	s, err := dial(ctx, c.dir, c.service, c.o)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		if err == nil {
			s.Close()
		}
		return nil, ErrClosed
	}
	if err == nil {
		c.session = s
	}
	return s, err
}

// open returns the session that is open, if there is one.
func (c *Client[Req, Resp, P]) open() (*Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if c.session != nil && c.session.Err() != nil {
		c.session.Close()
		c.session = nil
	}
	return c.session, nil
}

// Close ends the client's session.
func (c *Client[Req, Resp, P]) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close()
	if c.session != nil {
		c.session.Close()
	}
	return nil
}

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
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		arrivals, watchErr := watchDir(dir)
		s, err := dial(ctx, dir, service, o)
		var refused *Refused
		switch {
		case err == nil:
		case errors.Is(err, ErrAbsent) && watchErr == nil:
			err = arrivals.wait(ctx)
			arrivals.close()
			if err != nil {
				return nil, err
			}
			wait = 10 * time.Millisecond
			continue
		case errors.Is(err, ErrAbsent), errors.Is(err, ErrPeerGone), noAnswer(ctx, err):
		case errors.As(err, &refused) && (refused.Code == RefusedQuota || refused.Code == RefusedStopping || refused.Code == RefusedResources):
		default:
			arrivals.close()
			return nil, err
		}
		arrivals.close()
		if err == nil {
			return s, nil
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// noAnswer reports whether a handshake took longer than HandshakeTimeout.
func noAnswer(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded)
}

// arrivals tells that something changed in a run directory.
type arrivals struct{ file *os.File }

// watchDir begins to watch a run directory, or the one that it will be made in.
func watchDir(dir string) (*arrivals, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	const changes = unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	if _, err = unix.InotifyAddWatch(fd, dir, changes); err != nil {
		_, err = unix.InotifyAddWatch(fd, filepath.Dir(dir), changes)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &arrivals{os.NewFile(uintptr(fd), "inotify")}, nil
}

// wait returns after the next change.
func (a *arrivals) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var events [4096]byte
	_, err := a.file.Read(events[:])
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (a *arrivals) close() {
	if a != nil {
		a.file.Close()
	}
}
