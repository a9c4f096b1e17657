//go:build linux

package bellwire

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// newSession is the session of a client that has connected, which its handshake opens.
func (s *Server) newSession(conn *net.UnixConn) (*serverSession, error) {
	sock, err := newSocket(conn)
	if err != nil {
		return nil, err
	}
	cred := sock.peer
	session := &serverSession{
		end:    end{role: roleServer, service: s.service, sock: sock, peerBell: -1},
		server: s, waiter: newWaiter(), uid: cred.Uid,
	}
	session.take, session.full, session.exported = session.takeRequest, session.isFull, session.addStats
	session.peerName = fmt.Sprintf("client (process %d of user %d)", cred.Pid, cred.Uid)
	caller := Caller{UID: cred.Uid, GID: cred.Gid, PID: uint32(cred.Pid)}
	session.ctx, session.cancel = context.WithCancel(context.WithValue(s.ctx, callerKey{}, caller))
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
	case h.service != service || h.serviceVersion != o.serviceVersion && h.serviceVersion != statsVersion:
		return h, &Refused{Code: RefusedService, Reason: fmt.Sprintf("this endpoint serves %s, version %d", service, o.serviceVersion)}
	case o.token != [16]byte{} && subtle.ConstantTimeCompare(o.token[:], h.token[:]) == 0:
		return h, &Refused{Code: RefusedToken, Reason: "the client's token is not the provider's"}
	case h.lane > o.limits.maxLane || uint64(h.lane) > o.limits.maxShared-pageSize:
		return h, &Refused{Code: RefusedQuota, Reason: fmt.Sprintf("the client's lane is above %d bytes", o.limits.maxLane)}
	case h.serviceVersion != statsVersion && o.schema != 0 && h.schema != 0 && o.schema != h.schema:
		return h, schemaFault{}
	}
	return h, nil
}

// open reads HELLO, passes this end's memory, maps the client's, and answers READY.
func (s *serverSession) open() error {
	if refused := s.server.admits(s); refused != nil {
		if refused.Code == RefusedCredentials {
			s.sock.user = unadmittedUsers
		}
		return refused
	}
	_ = s.sock.conn.SetDeadline(time.Now().Add(s.server.o.timeout))
	b, fds, err := s.sock.receive()
	if err != nil {
		return err
	}
	s.sock.reap(fds...)
	o := s.server.o
	h, err := o.readHello(b, len(fds), s.service)
	if err != nil {
		return err
	}
	s.forStats = h.serviceVersion == statsVersion
	lane := min(o.lane, h.limits.maxLane)
	for uint64(lane) > h.limits.maxShared-pageSize {
		lane /= 2
	}
	own := o.limits
	own.leastLane = min(own.leastLane, lane)
	own.maxLane = max(own.maxLane, h.lane)
	doorbell := o.doorbell
	if !h.ringsEventfd || !ringsEventfds(s.uid) {
		doorbell = DoorbellSocket
	}
	schema := o.schema
	if s.forStats {
		schema = 0
	}
	number := lastSession.Add(1)
	passed, err := s.prepare(doorbell, lane, number)
	if err != nil {
		return err
	}
	s.startPage(number)
	w := welcome{
		version: protocol, lane: lane, session: number, doorbell: doorbell, maxBatch: o.maxBatch, limits: own, schema: schema,
	}
	s.sock.acceptDescriptors()
	err = s.sock.send(w.encode(len(passed)+1), true, slices.Insert(passed, 2, s.server.boardFD)...)
	closeOwn(passed[:2]...)
	if err != nil {
		return err
	}
	// The client maps it meanwhile.
	s.pidfd = s.sock.process()
	b, fds, err = s.sock.receive()
	if err != nil {
		return err
	}
	defer func() { s.sock.reap(fds...) }()
	kind, err := parsePrefix(b, len(fds))
	if err == nil && kind != controlAttach || len(fds) != 2+b2i(h.doorbell == DoorbellEventfd) {
		err = controlFault("kind")
	}
	if err == nil && le.Uint64(b[8:]) != number {
		err = controlFault("session")
	}
	if err == nil {
		err = s.join(own, h.limits, h.lane, fds[0], fds[1])
	}
	if err == nil && len(fds) == 3 {
		err = isEventfd(fds[2])
	}
	if err != nil {
		return err
	}
	if len(fds) == 3 && ringsEventfds(s.uid) {
		s.peerBell, fds = fds[2], fds[:2]
	}
	s.rungBy = doorbells{doorbell, h.doorbell}
	s.start()
	if err = s.sock.send(numbered(controlReady, 0, number), true); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shut(closeNormal)
	}
	_ = s.sock.conn.SetDeadline(time.Time{})
	return err
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
