//go:build linux

package bellwire

import (
	"context"
	"fmt"
	"sync"
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
				err = &ended{fmt.Errorf("%w: %w", ErrMalformed, err), ExecutedYes}
			}
			return response, err
		}
		again := peerLeft(err) && (c.o.idempotent || ExecutedOf(err) == ExecutedNo)
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
