//! The accepting edge: drives the server's half of the handshake over a real socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bellwire_core::handshake::{Admission, Rejection, ServerHandshake, ServerStep, Terms};
use bellwire_core::lane::Lanes;
use bellwire_core::sample::{self, Answering};
use bellwire_core::wire::{
    Doorbell, Hello, Message, PAGE_SIZE, Refuse, RefuseCode, Role, SAMPLES, Welcome,
};
use bellwire_core::{Instant, ServiceName, probes};

use super::ServerConfig;
use super::handler::Caller;
use crate::connect::{
    OwnMemoryMaker, client_lane, lane_size, memfd_name, own_uid, page_header, server_lane,
};
use crate::control::{self, Incoming};
use crate::learned;
use crate::transport::doorbell::Eventfd;
use crate::transport::link::{Link, OwnEnd, Parts, PeerEnd};
use crate::transport::peer::{self, Credentials};
use crate::transport::region::PeerRegion;
use crate::transport::{clock, reaper};

/// A client that is on its way in. Nothing is allocated for it before its HELLO is admitted.
pub(super) struct Greeting {
    socket: OwnedFd,
    credentials: Credentials,
    machine: ServerHandshake,
    pub(super) session: u64,
    own: Option<Own>,
}

/// What the server made for the client, between WELCOME and ATTACH.
struct Own {
    end: OwnEnd,
    eventfd: Option<Eventfd>,
    doorbell: Doorbell,
}

/// A client that came in.
pub(super) struct Arrived {
    pub(super) link: Link,
    pub(super) lanes: Lanes,
    pub(super) caller: Caller,
    pub(super) service: ServiceName,
    pub(super) trace: Answering,
}

/// How far a client has come.
pub(super) enum Progress {
    Waiting(Box<Greeting>),
    Arrived(Box<Arrived>),
    /// It does not come in. Forget the socket, then have it closed where closing may take its time: the client
    /// may have queued descriptors on it. `None` when it is closed already.
    TurnedAway(Option<OwnedFd>),
}

impl Greeting {
    /// Looks who connected. `None` when it is turned away; it was told why.
    pub(super) fn begin(
        socket: OwnedFd,
        session: u64,
        admission: Admission,
        config: &ServerConfig,
        has_room: bool,
    ) -> Option<Self> {
        let credentials = peer::credentials(socket.as_fd()).ok();
        let Some(credentials) = credentials.filter(|peer| is_admitted(peer, config)) else {
            let uid = credentials.map_or(u32::MAX, |peer| peer.uid);
            let reason = format!(
                "uid {uid} is not admitted: run the client as uid {}, or list it in the provider's admitted uids",
                own_uid()
            );
            refuse(&socket, &Refuse::new(RefuseCode::Credentials, &reason));
            reaper::reap(socket);
            return None;
        };
        if !has_room {
            let reason = format!(
                "all {} sessions are in use: close some, or raise max_sessions",
                config.max_sessions
            );
            refuse(&socket, &Refuse::new(RefuseCode::Quota, &reason));
            reaper::reap(socket);
            return None;
        }
        let machine = ServerHandshake::new(admission, clock::now().after(config.handshake_timeout));
        Some(Self { socket, credentials, machine, session, own: None })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn deadline(&self) -> Instant {
        self.machine.deadline()
    }

    /// Goes as far as it can without waiting.
    pub(super) fn advance(mut self, config: &ServerConfig, board: BorrowedFd<'_>) -> Progress {
        loop {
            let incoming = match Incoming::receive(&self.socket) {
                Ok(Some(incoming)) => incoming,
                Ok(None) => return Progress::Waiting(Box::new(self)),
                Err(_) => return self.drop_out(),
            };
            let step = self.machine.on_message(incoming.bytes(), incoming.fds());
            let refusal = match step {
                Ok(ServerStep::Admit(hello)) => match self.welcome(&hello, config, board) {
                    Ok(()) => continue,
                    Err(refusal) => refusal,
                },
                Ok(ServerStep::Map(hello, welcome)) => {
                    match self.map_memory(&hello, &welcome, incoming) {
                        Ok((peer, eventfd)) => return self.arrive(&hello, &welcome, peer, eventfd),
                        Err(refusal) => refusal,
                    }
                }
                Err(Rejection { refuse, .. }) => refuse,
            };
            refuse(&self.socket, &refusal);
            return self.drop_out();
        }
    }

    /// The client was silent for too long, or went away.
    fn drop_out(self) -> Progress {
        Progress::TurnedAway(Some(self.socket))
    }

    /// The server has no more time for it.
    /// Gives the socket back, to be closed.
    pub(super) fn turn_away(self, code: RefuseCode, reason: &str) -> OwnedFd {
        refuse(&self.socket, &Refuse::new(code, reason));
        self.socket
    }

    fn welcome(
        &mut self,
        hello: &Hello,
        config: &ServerConfig,
        board: BorrowedFd<'_>,
    ) -> Result<(), Refuse> {
        let wanted = match config.doorbell {
            Doorbell::Socket => Doorbell::Socket,
            _ => Doorbell::Eventfd,
        };
        let eventfd = match wanted {
            Doorbell::Eventfd if hello.rings_eventfd => {
                Some(Eventfd::create().map_err(|error| lacking(&error))?)
            }
            _ => None,
        };
        let most = config.max_learned_lane.min(config.limits.max_lane);
        let lane = learned::opening(hello.service, Role::Server, config.lane, most);
        let terms =
            Terms { session: self.session, lane, least_lane: config.lane, doorbell: wanted };
        let Some(welcome) = self.machine.welcome(terms) else {
            return Err(Refuse::new(RefuseCode::Protocol, "WELCOME out of order"));
        };
        let maker = OwnMemoryMaker {
            role: Role::Server,
            session: self.session,
            service: hello.service,
            lane: welcome.lane,
        };
        let (end, page, lane) = maker.make().map_err(|error| lacking(&error))?;
        let mut fds = vec![page.as_fd(), lane.as_fd(), board];
        fds.extend(eventfd.as_ref().map(AsFd::as_fd));
        let message = Message::Welcome(welcome);
        control::send(&self.socket, &message, &fds).map_err(|error| lacking(&error))?;
        self.own = Some(Own { end, eventfd, doorbell: welcome.doorbell });
        Ok(())
    }

    fn arrive(
        mut self,
        hello: &Hello,
        welcome: &Welcome,
        peer: PeerEnd,
        peer_eventfd: Option<Eventfd>,
    ) -> Progress {
        let (Some(own), Some(ready)) = (self.own.take(), self.machine.ready()) else {
            return self.drop_out();
        };
        if control::send(&self.socket, &ready, &[]).is_err() {
            return self.drop_out();
        }
        let Credentials { pid, uid, gid, .. } = self.credentials;
        let caller = Caller { pid, uid, gid, session: self.session };
        let pidfd = peer::peer_pidfd(self.socket.as_fd());
        let created = own.end.created();
        let parts = Parts {
            own: own.end,
            peer,
            socket: self.socket,
            doorbell: own.doorbell,
            own_eventfd: own.eventfd,
            peer_eventfd,
            pidfd,
            limits: welcome.limits,
            lane_name: memfd_name("lane", Role::Server, hello.service, self.session),
        };
        // The parts were made to fit; should they not, the client sees the socket close.
        let Ok(link) = Link::new(parts) else { return Progress::TurnedAway(None) };
        let lanes = Lanes::with_terms(server_lane(hello, welcome), client_lane(hello, welcome));
        let number = self.session;
        let session = sample::session(hello.service, number, created, Role::Server, pid);
        probes::session_opened(&session);
        let trace = Answering::new(session, welcome.features & SAMPLES != 0);
        Progress::Arrived(Box::new(Arrived { link, lanes, caller, service: hello.service, trace }))
    }

    fn map_memory(
        &self,
        hello: &Hello,
        welcome: &Welcome,
        incoming: Incoming,
    ) -> Result<(PeerEnd, Option<Eventfd>), Refuse> {
        let mut fds = incoming.received.into_fds().into_iter();
        let mut region = |size| {
            let missing = || Refuse::new(RefuseCode::Protocol, "a descriptor is missing");
            let fd = fds.next().ok_or_else(missing)?;
            PeerRegion::verify_and_map(fd, size).map_err(|error| broken(&error))
        };
        let page = region(PAGE_SIZE)?;
        let lane = region(lane_size(hello.lane))?;
        let size = crate::connect::lane_field(hello.lane);
        let checked = page_header(&page).check(Role::Client, welcome.session, size, hello.service);
        checked.map_err(|error| broken(&error))?;
        // A client of another user could fill an eventfd that it shares, and the reactor would block.
        let trusted = self.credentials.uid == own_uid() || self.credentials.uid == 0;
        let eventfd = fds.next();
        let eventfd = if trusted {
            eventfd.map(Eventfd::from_peer)
        } else {
            reaper::reap_all(eventfd);
            None
        };
        Ok((PeerEnd { page, lane }, eventfd))
    }
}

fn is_admitted(peer: &Credentials, config: &ServerConfig) -> bool {
    !peer.overflow
        && (peer.uid == own_uid() || peer.uid == 0 || config.admitted_uids.contains(&peer.uid))
}

fn refuse(socket: &OwnedFd, refusal: &Refuse) {
    // Who does not read it learns nothing: no reason to wait.
    let _ = control::send(socket, &Message::Refuse(refusal.clone()), &[]);
}

fn lacking(error: &dyn std::error::Error) -> Refuse {
    Refuse::new(RefuseCode::Resources, &format!("the provider lacks a resource: {error}"))
}

fn broken(error: &dyn std::error::Error) -> Refuse {
    Refuse::new(
        RefuseCode::Protocol,
        &format!("the client's memory is not as it should be: {error}"),
    )
}
