//go:build linux

package bellwire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors to compare with errors.Is. ErrPeerGone is a peer that died, or closed the session without another reason; ErrStalled and
// ErrProtocol may be this end's fault: errors.As finds a [Violation] in an ErrProtocol that is the peer's.
var (
	ErrAbsent    = errors.New("bellwire: no process provides the service")
	ErrClosed    = errors.New("bellwire: this session, client or server is closed")
	ErrPeerGone  = errors.New("bellwire: the peer is gone")
	ErrStopping  = errors.New("bellwire: the server is stopping")
	ErrStalled   = errors.New("bellwire: the peer closed the session, since this end read nothing for too long")
	ErrProtocol  = errors.New("bellwire: the peer violated the protocol")
	ErrMalformed = errors.New("bellwire: the message could not be decoded")
	ErrTooLarge  = errors.New("bellwire: the message is above a limit")
	ErrNotYet    = errors.New("bellwire: nothing is published yet")
	ErrBusy      = errors.New("bellwire: the server has too much to do")
	ErrCancelled = errors.New("bellwire: the request was cancelled")
	ErrInUse     = errors.New("bellwire: another process provides the service")
	ErrUntrusted = errors.New("bellwire: the provider's user is not trusted")
)

// Executed says whether the handler of a failed request ran.
type Executed int

// What is known of the handler.
const (
	ExecutedNo    Executed = iota // it did not run: the request may be sent again
	ExecutedMaybe                 // nobody here knows
	ExecutedYes                   // it ran, at least in part
)

// String returns "no", "maybe" or "yes".
func (e Executed) String() string { return [...]string{"no", "maybe", "yes"}[e] }

// RefuseCode says why a server refused a session.
type RefuseCode uint16

// The codes of REFUSE.
const (
	RefusedIncompatible RefuseCode = iota + 1 // no version of the protocol in common
	RefusedCredentials                        // the server does not admit this user
	RefusedToken                              // the token is another one
	RefusedService                            // the endpoint serves another service or version of it
	RefusedQuota                              // a limit of the server is reached
	RefusedStopping                           // the server stops
	RefusedProtocol                           // the server found a protocol violation
	RefusedResources                          // the server lacks memory or descriptors
	RefusedSchema                             // the service has other types
)

var refuseNames = [...]string{
	"", "incompatible version", "credentials", "token", "no such service or version of it", "quota", "stopping",
	"protocol violation", "lack of resources", "other types",
}

// Refused is a server's REFUSE, as an error.
type Refused struct {
	Code   RefuseCode
	Reason string // the server's sentence for the operator
	Min    uint16 // the oldest version of the protocol that it speaks
	Max    uint16 // the newest
}

func (r *Refused) Error() string {
	return fmt.Sprintf("bellwire: the provider refused the session: %s: %s", refuseNames[r.Code], r.Reason)
}

// isRefusal reports whether a server refused a session for one of these reasons.
func isRefusal(err error, codes ...RefuseCode) bool {
	var refused *Refused
	return errors.As(err, &refused) && slices.Contains(codes, refused.Code)
}

// CallError is an answer with a status other than ok. A handler that returns one with [StatusFailed] gives the caller a code
// to tell errors apart.
type CallError struct {
	Status Status
	Reason string // the handler's, if it gave one
	Code   uint32 // the handler's, or 0
}

func (e *CallError) Error() string {
	text := "bellwire: the request ended as " + e.Status.String()
	if e.Code != 0 {
		text += fmt.Sprintf(", code %d", e.Code)
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// The longest reason that is sent, and that is read.
const (
	mostSent = 1024
	mostRead = 4096
)

// appendReason appends a reason as it is sent: a text, preceded by a code if there is one.
func appendReason(dst []byte, code uint32, text string) []byte {
	if code != 0 {
		dst = le.AppendUint32(append(dst, 0), code)
	}
	text = strings.TrimLeft(text, "\x00")
	return append(dst, text[:min(len(text), mostSent)]...)
}

// parseReason makes an error of a status and the reason that a peer sent with it.
func parseReason(status Status, b []byte) *CallError {
	e := &CallError{Status: status}
	if status == StatusFailed && len(b) >= 5 && b[0] == 0 {
		e.Code, b = le.Uint32(b[1:]), b[5:]
	}
	e.Reason = string(b[:min(len(b), mostRead)])
	return e
}

// Is makes a status one of the errors of this package.
func (e *CallError) Is(target error) bool {
	switch e.Status {
	case StatusBusy, StatusShort:
		return target == ErrBusy
	case StatusStopping:
		return target == ErrStopping
	case StatusMalformed:
		return target == ErrMalformed
	case StatusCancelled:
		return target == ErrCancelled
	case StatusTooLarge:
		return target == ErrTooLarge
	case StatusNotYet:
		return target == ErrNotYet
	}
	return false
}

// Violation is what a peer did wrong. Its session is over; errors.Is finds ErrProtocol in it.
type Violation struct {
	Peer string // "server" or "client", with its process and user
	Err  error  // the rule
}

func (v *Violation) Error() string {
	return fmt.Sprintf("bellwire: the %s violated the protocol: %v; upgrade or restart it", v.Peer, v.Err)
}

// Unwrap returns ErrProtocol and the rule.
func (v *Violation) Unwrap() []error { return []error{ErrProtocol, v.Err} }

// LengthError is a message that no lane, no attachment and no series of parts may carry.
type LengthError struct {
	Length, Limit uint64 // in bytes
	Peers         bool   // the peer set the limit
}

func (e *LengthError) Error() string {
	by := "this end"
	if e.Peers {
		by = "the peer"
	}
	return fmt.Sprintf("bellwire: the message has %d bytes, and %s takes at most %d", e.Length, by, e.Limit)
}

// Is finds ErrTooLarge.
func (e *LengthError) Is(target error) bool { return target == ErrTooLarge }

// ended is the error of a request, with what is known of its handler.
type ended struct {
	err error
	ran Executed
}

func (e *ended) Error() string {
	if e.ran == ExecutedMaybe {
		return e.err.Error() + "; the handler may have run"
	}
	return e.err.Error()
}

func (e *ended) Unwrap() error { return e.err }

// ExecutedOf says whether the handler ran, of an error of this package: a request whose handler did not run can be
// sent again, also where running it twice does harm.
func ExecutedOf(err error) Executed {
	var e *ended
	if errors.As(err, &e) {
		return e.ran
	}
	var call *CallError
	if errors.As(err, &call) {
		switch call.Status {
		case StatusFailed, StatusTooLarge, StatusPanicked, StatusShort:
			return ExecutedYes
		}
	}
	return ExecutedNo
}

// atLeast is the error of a request that was sent before, when this is what was known of its handler.
func atLeast(ran Executed, err error) error {
	if ExecutedOf(err) >= ran {
		return err
	}
	return &ended{err, ran}
}

// peerLeft reports whether the peer died, closed the session for any reason, or is stopping: another session may serve.
func peerLeft(err error) bool {
	var closed *closedByPeer
	return errors.Is(err, ErrPeerGone) || errors.Is(err, ErrStopping) || errors.As(err, &closed)
}

// isContext reports whether an error is the end of a context.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
