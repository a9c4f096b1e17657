//go:build linux

package bellwire

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"time"
)

// open is the server's part of the handshake.
func (s *Server) open(c *candidate) (*serverSession, error) {
	_ = c.conn.SetDeadline(time.Now().Add(s.o.timeout))
	sock, err := newSocket(c.conn)
	if err != nil {
		return nil, err
	}
	c.sock = sock
	cred, pidfd, err := sock.peerOf()
	if err != nil {
		return nil, err
	}
	c.cred = cred
	session, err := s.openWith(c, pidfd)
	if err != nil {
		if pidfd != nil {
			pidfd.Close()
		}
		return nil, err
	}
	_ = c.conn.SetDeadline(time.Time{})
	return session, nil
}

// refusalFor is the REFUSE that tells a client of an error.
func refusalFor(err error) refuse {
	r := refuse{code: RefusedProtocol, min: protocol, max: protocol, reason: "the provider cannot read what the client sent"}
	var refused *Refused
	var other incompatible
	var schema schemaFault
	var wrong controlFault
	switch {
	case errors.As(err, &refused):
		r.code, r.reason = refused.Code, refused.Reason
	case errors.As(err, &other):
		r.code, r.reason = RefusedIncompatible, fmt.Sprintf("the provider speaks version %d of the protocol", protocol)
	case errors.As(err, &schema):
		r.code, r.reason = RefusedSchema, "the provider has other types: build both from the same ones"
	case isShortage(err):
		r.code, r.reason = RefusedResources, "the provider lacks memory or descriptors"
	case errors.As(err, &wrong):
		r.reason = string("the client sent a wrong message: " + wrong)
	}
	return r
}

func (s *Server) openWith(c *candidate, pidfd *os.File) (*serverSession, error) {
	sock, cred := c.sock, c.cred
	if refused := s.admits(c); refused != nil {
		return nil, refused
	}
	b, fds, err := sock.receive()
	if err != nil {
		return nil, err
	}
	closeStrange(fds...)
	h, err := s.o.readHello(b, len(fds), s.service)
	if err != nil {
		return nil, err
	}
	session := &serverSession{server: s, waiter: newWaiter(), forStats: h.method == statsMethod}
	session.take, session.full, session.exported = session.takeRequest, session.isFull, session.tally
	session.uid, session.pidfd = cred.Uid, pidfd
	session.peerName = fmt.Sprintf("client (process %d of user %d)", cred.Pid, cred.Uid)
	caller := Caller{UID: cred.Uid, GID: cred.Gid, PID: uint32(cred.Pid)}
	session.ctx, session.cancel = context.WithCancel(context.WithValue(s.ctx, callerKey{}, caller))
	if err := s.attach(session, sock, h, cred.Uid); err != nil {
		session.cancel()
		session.discard()
		return nil, err
	}
	return session, nil
}

// readHello parses the first message of a client, and compares its terms with the server's.
func (o options) readHello(b []byte, fds int, service string) (hello, error) {
	kind, err := parsePrefix(b, fds)
	if err == nil && kind != controlHello {
		err = controlFault("kind")
	}
	if err != nil {
		return hello{}, err
	}
	h, err := parseHello(b)
	switch {
	case err != nil:
		return h, err
	case h.service != service || h.method != o.method && h.method != statsMethod:
		return h, &Refused{Code: RefusedService, Reason: fmt.Sprintf("this endpoint serves %s, method %d", service, o.method)}
	case o.token != [16]byte{} && subtle.ConstantTimeCompare(o.token[:], h.token[:]) == 0:
		return h, &Refused{Code: RefusedToken, Reason: "the client's token is not the provider's"}
	case h.lane > o.limits.maxLane || uint64(h.lane) > o.limits.maxShared-pageSize:
		return h, &Refused{Code: RefusedQuota, Reason: fmt.Sprintf("the client's lane is above %d bytes", o.limits.maxLane)}
	case h.method != statsMethod && o.schema != 0 && h.schema != 0 && o.schema != h.schema:
		return h, schemaFault{}
	}
	return h, nil
}

// attach passes this end's memory, maps the client's, and answers READY.
func (s *Server) attach(session *serverSession, sock *socket, h hello, uid uint32) error {
	o := s.o
	lane := min(o.lane, h.limits.maxLane)
	for uint64(lane) > h.limits.maxShared-pageSize {
		lane /= 2
	}
	own := o.limits
	own.leastLane = min(own.leastLane, lane)
	own.maxLane = max(own.maxLane, h.lane)
	doorbell := o.doorbell
	if !h.ringsEventfd || !ringsEventfds(uid) {
		doorbell = DoorbellSocket
	}
	schema := o.schema
	if h.method == statsMethod {
		schema = 0
	}
	session.role, session.service, session.session, session.peerBell = roleServer, s.service, lastSession.Add(1), -1
	session.sock, session.tx.epoch.size = sock, lane
	fds, err := session.prepare(doorbell, lane)
	if err != nil {
		return err
	}
	w := welcome{
		version: protocol, lane: lane, session: session.session, doorbell: doorbell, maxBatch: o.maxBatch, limits: own,
		schema: schema,
	}
	passed := append([]int{fds[0], fds[1], s.boardFD}, fds[2:]...)
	err = sock.send(w.encode(len(passed)), true, passed...)
	closeOwn(fds[0])
	closeOwn(fds[1])
	if err != nil {
		return err
	}
	b, got, err := sock.receive()
	if err != nil {
		return err
	}
	defer func() { closeStrange(got...) }()
	kind, err := parsePrefix(b, len(got))
	if err == nil && kind != controlAttach || len(got) != 2+b2i(h.doorbell == DoorbellEventfd) {
		err = controlFault("kind")
	}
	if err == nil && le.Uint64(b[8:]) != session.session {
		err = controlFault("session")
	}
	if err != nil {
		return err
	}
	if err := session.join(roleServer, s.service, session.session, lane, own, h.lane, h.limits, got[0], got[1]); err != nil {
		return err
	}
	if len(got) == 3 {
		if err := isEventfd(got[2]); err != nil {
			return err
		}
		if ringsEventfds(uid) {
			session.peerBell = got[2]
			got = got[:2]
		}
	}
	session.rungBy = doorbells{doorbell, h.doorbell}
	session.start()
	if err := sock.send(opening(controlReady, 0, session.session), true); err != nil {
		session.mu.Lock()
		session.shut(closeNormal)
		session.mu.Unlock()
		return err
	}
	return nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
