//go:build linux

package bellwire

import (
	"encoding/hex"
	"errors"
	"hash/fnv"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Option changes how a client, server or publisher works.
type Option func(*options)

type options struct {
	serviceVersion uint32
	token          [16]byte
	schema         uint64
	lane           uint32
	limits         limits
	doorbell       Doorbell
	timeout        time.Duration
	stall          time.Duration
	inFlight       int
	concurrency    int
	maxBatch       uint32
	ring           uint32
	maxSessions    int
	perUser        int
	idempotent     bool
	trusted        []uint32
	admitted       []uint32
	log            *slog.Logger
}

func newOptions(list []Option) (options, error) {
	o := options{
		serviceVersion: 1, lane: 16384, doorbell: DoorbellEventfd, timeout: 2 * time.Second, stall: time.Minute,
		inFlight: 1024, concurrency: 1, maxBatch: 1 << 17, ring: ringSize, maxSessions: 1024, perUser: 1024, log: slog.New(slog.DiscardHandler),
		limits: limits{leastLane: 16384, maxLane: 1 << 26, maxMessage: 1 << 26, maxShared: 1 << 28},
	}
	if text := os.Getenv("BELLWIRE_TOKEN"); text != "" {
		bytes, err := hex.DecodeString(text)
		if err != nil || len(bytes) != 16 || [16]byte(bytes) == [16]byte{} {
			return o, errors.New("bellwire: BELLWIRE_TOKEN needs 32 hexadecimal digits, not all of them 0")
		}
		o.token = [16]byte(bytes)
	}
	for _, option := range list {
		option(&o)
	}
	o.limits.leastLane = min(o.limits.leastLane, o.lane)
	if o.doorbell != DoorbellEventfd && o.doorbell != DoorbellSocket {
		return o, errors.New("bellwire: option RungBy: it takes DoorbellEventfd or DoorbellSocket")
	}
	var wrong controlFault
	if errors.As(o.limits.check(o.lane), &wrong) {
		return o, errors.New("bellwire: options Lane and MaxShared: wrong " + string(wrong))
	}
	return o, nil
}

// ServiceVersion is the version of the service's types; 1 without this option.
func ServiceVersion(number uint32) Option { return func(o *options) { o.serviceVersion = number } }

// Token sets the token that all processes of a deployment share, in place of that in BELLWIRE_TOKEN.
func Token(token [16]byte) Option { return func(o *options) { o.token = token } }

// Schema describes the types of request and answer; ends with different ones refuse each other. Without this option, any
// are accepted.
func Schema(text string) Option {
	return func(o *options) {
		h := fnv.New64a()
		h.Write([]byte(text))
		o.schema = max(h.Sum64(), 1)
	}
}

// Fingerprint is Schema by its number, for a service whose description is not at hand; 0 accepts any types.
func Fingerprint(schema uint64) Option { return func(o *options) { o.schema = schema } }

// Lane is the size with which the own lane opens, and the largest size of both, in bytes: powers of two from 4096 to 2³⁰.
// 16384 and 2²⁶ without this option.
func Lane(size, largest uint32) Option {
	return func(o *options) { o.lane, o.limits.leastLane, o.limits.maxLane = size, min(size, 16384), largest }
}

// MaxMessage is the length of the longest message, in bytes; 2²⁶ without this option.
func MaxMessage(bytes uint64) Option { return func(o *options) { o.limits.maxMessage = bytes } }

// MaxShared is how much shared memory each end of a session may have in use, in bytes; 2²⁸ without this option.
func MaxShared(bytes uint64) Option { return func(o *options) { o.limits.maxShared = bytes } }

// RungBy is how this end is woken: DoorbellEventfd, or DoorbellSocket where descriptors are short.
func RungBy(doorbell Doorbell) Option { return func(o *options) { o.doorbell = doorbell } }

// HandshakeTimeout is how long a session may take to open; 2 s without this option.
func HandshakeTimeout(limit time.Duration) Option { return func(o *options) { o.timeout = limit } }

// StallTimeout is after how long a server closes a session whose client reads nothing; 1 min without this option.
func StallTimeout(limit time.Duration) Option { return func(o *options) { o.stall = limit } }

// Concurrency is how many requests of one session run at once, each in a goroutine. With 1, the default, they run one after
// the other in the session's own goroutine, which is the fastest for handlers that do not block.
func Concurrency(limit int) Option { return func(o *options) { o.concurrency = max(limit, 1) } }

// MaxInFlight is how many requests of one session are taken and not answered; 1024 without this option.
func MaxInFlight(limit int) Option { return func(o *options) { o.inFlight = max(limit, 1) } }

// MaxSessions is how many sessions a server has at once; 1024 without this option.
func MaxSessions(limit int) Option { return func(o *options) { o.maxSessions = limit } }

// MaxSessionsPerUser is how many of them the clients of one user have at once; as many as all without this option.
func MaxSessionsPerUser(limit int) Option { return func(o *options) { o.perUser = limit } }

// Idempotent lets a client send a request again whose handler may have run.
func Idempotent() Option { return func(o *options) { o.idempotent = true } }

// Trust makes a client accept providers of these users, besides its own and root.
func Trust(uids ...uint32) Option { return func(o *options) { o.trusted = append(o.trusted, uids...) } }

// Admit makes a server admit clients of these users, besides its own and root; the socket's mode becomes 0666.
func Admit(uids ...uint32) Option {
	return func(o *options) { o.admitted = append(o.admitted, uids...) }
}

// Log sets the logger for what an operator should know: refused clients, protocol violations, panics. Without this option, nothing
// is logged.
func Log(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// RunDir is where providers listen by default: BELLWIRE_RUN_DIR, bellwire in XDG_RUNTIME_DIR, or /run/bellwire.
func RunDir() string {
	if dir := os.Getenv("BELLWIRE_RUN_DIR"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "bellwire")
	}
	return "/run/bellwire"
}
