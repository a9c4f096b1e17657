//! The accepting edge: runs the server's half of the handshake over a real channel.

use bellwire_core::handshake::{Admission, Rejection, ServerHandshake, ServerStep, SessionTerms};
use bellwire_core::lane::Lanes;
use bellwire_core::wire::{
    Doorbell, Hello, Message, PAGE_SIZE, Refuse, RefuseCode, Role, SAMPLES, STATS_VERSION, Welcome,
};
use bellwire_core::{Instant, ServiceName};
use bellwire_probes as probes;

use super::ServerConfig;
use super::fd_budget::FdBudget;
use super::handler::Caller;
use super::incidents::IncidentCause;
#[cfg(feature = "netipc")]
use super::netipc;
use super::quotas::{Quotas, UserHandle};
use super::reactor::Peers;
use super::watch::Watch;
use crate::connect::{
    client_lane, lane_size, make_memory, memory_name, page_header, server_lane, start_page,
};
use crate::control::{self, ControlMessage};
use crate::learned;
use crate::trace::{self, ServerTrace};
use crate::transport::doorbell::WakeEvent;
use crate::transport::link::{Link, OwnEnd, Parts, PeerEnd};
use crate::transport::object::Borrowed;
use crate::transport::pass::{Channel, SendError};
use crate::transport::peer::{Credentials, Process, User};
use crate::transport::region::{PeerRegion, RegionError};
use crate::transport::{Os, prelude::*};

/// A client in the handshake. Allocates nothing for it before its HELLO is admitted.
pub(super) struct PendingHandshake {
    channel: Channel,
    credentials: Credentials,
    machine: ServerHandshake,
    pub(super) session: u64,
    fd_budget: FdBudget,
    /// What the sessions of its user hold.
    user_handle: UserHandle,
    /// When its HELLO may be answered: later than now if its user opens sessions too fast.
    pub(super) begins: Instant,
    own: Option<Own>,
}

/// The memory that the server created for the client, between WELCOME and JOIN.
struct Own {
    end: OwnEnd,
    event: Option<WakeEvent>,
    doorbell: Doorbell,
}

/// A client that completed the handshake.
pub(super) struct Admitted {
    pub(super) link: Link,
    pub(super) lanes: Lanes,
    pub(super) user_handle: UserHandle,
    pub(super) caller: Caller,
    pub(super) service: ServiceName,
    /// The client's doorbell.
    pub(super) rings_by: Doorbell,
    /// Whether it requests counters.
    pub(super) is_stats_client: bool,
    pub(super) trace: ServerTrace,
    /// Reports the death of this thread to a client parked on a futex.
    pub(super) life: Option<<Os as Platform>::LifeLock>,
    /// Its process, if it is not watched yet.
    pub(super) process: Option<Process>,
}

/// How far a client has got.
pub(super) enum Progress {
    Waiting(Box<PendingHandshake>),
    Admitted(Box<Admitted>),
    /// It speaks netipc, and this is its first message.
    #[cfg(feature = "netipc")]
    Netipc(Box<(PendingHandshake, ControlMessage)>),
    Failed(Box<FailedHandshake>),
}

/// A client that was not let in.
pub(super) struct FailedHandshake {
    /// The channel to drop and then close where closing may block: the client may have queued descriptors on it.
    /// `None` when it is closed already.
    pub(super) channel: Option<Channel>,
    pub(super) caller: Option<Caller>,
    /// `None` when the client merely went away.
    pub(super) cause: Option<IncidentCause>,
}

impl PendingHandshake {
    /// Checks the peer of a new connection. A rejected peer was already sent the reason. `has_room` is whether there is room for
    /// another session, `held` the approximate number of descriptors that the server holds.
    pub(super) fn begin(
        channel: Channel,
        session: u64,
        admission: Admission,
        config: &ServerConfig,
        (has_room, held): (bool, usize),
        quotas: &mut Quotas,
    ) -> Result<Self, Box<FailedHandshake>> {
        let credentials = match Credentials::of(&channel) {
            Ok(credentials) if config.admission.admits(&credentials, &channel) => credentials,
            found => {
                let reason = match &found {
                    Ok(credentials) => format!(
                        "{} is not admitted: run the client as {}, or have the provider admit it (bellwire provide --admit); it admits {} besides",
                        credentials.user(),
                        User::own(),
                        config.admission,
                    ),
                    Err(error) => {
                        format!("the provider cannot determine the client's user: {error}")
                    }
                };
                let caller = found.ok().map(|credentials| caller(&credentials, session));
                let refusal = Refuse::new(RefuseCode::Credentials, &reason);
                return Err(FailedHandshake::refused(channel, caller, &refusal));
            }
        };
        let (user, now) = (credentials.user(), Os::now());
        // The pending `close` of descriptors that this user sent cannot be completed, so accept no more from it.
        let admitted = if Os::has_blocked_close(user) {
            Err(format!(
                "what clients of {user} sent earlier cannot be closed: end the programs whose files do not answer"
            ))
        } else if !has_room {
            let most = config.max_sessions;
            Err(format!("all {most} sessions are in use: close some, or raise max_sessions"))
        } else {
            quotas.admit(user, now)
        };
        let (user_handle, begins) = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => {
                let caller = Some(caller(&credentials, session));
                let refusal = Refuse::new(RefuseCode::Quota, &reason);
                return Err(FailedHandshake::refused(channel, caller, &refusal));
            }
        };
        let machine = ServerHandshake::new(admission);
        let fd_budget = FdBudget::now(channel.arrived(), held);
        Ok(Self {
            channel,
            credentials,
            machine,
            session,
            fd_budget,
            user_handle,
            begins,
            own: None,
        })
    }

    /// Returns the channel, which is readable when a message has arrived.
    pub(super) fn arrived(&self) -> Borrowed<'_> {
        self.channel.arrived()
    }

    /// Advances as far as possible without blocking.
    pub(super) fn advance(
        mut self,
        config: &ServerConfig,
        board: Borrowed<'_>,
        peers: &Peers,
    ) -> Progress {
        loop {
            let incoming = match ControlMessage::receive(&self.channel) {
                Ok(Some(incoming)) => incoming,
                Ok(None) => return Progress::Waiting(Box::new(self)),
                Err(_) => return self.drop_out(),
            };
            #[cfg(feature = "netipc")]
            if self.is_silent() && netipc::is_netipc(incoming.bytes()) {
                return Progress::Netipc(Box::new((self, incoming)));
            }
            let step = self.machine.on_message(incoming.bytes(), incoming.objects());
            let refusal = match step {
                Ok(ServerStep::Admit(hello)) => match self.welcome(&hello, config, board) {
                    Ok(()) => continue,
                    Err(refusal) => refusal,
                },
                Ok(ServerStep::Map(hello, welcome)) => {
                    match self.map_memory(&hello, &welcome, incoming) {
                        Ok((peer, event)) => {
                            return self.arrive(&hello, &welcome, peer, event, peers);
                        }
                        Err(refusal) => refusal,
                    }
                }
                Err(Rejection { refuse, .. }) => refuse,
            };
            return Progress::Failed(self.refuse(&refusal));
        }
    }

    /// Rejects a client that went away or sent an unreadable message.
    fn drop_out(self) -> Progress {
        let (caller, channel) = (Some(self.caller()), Some(self.channel));
        Progress::Failed(Box::new(FailedHandshake { channel, caller, cause: None }))
    }

    /// Rejects a client, and tells it why.
    #[must_use]
    pub(super) fn refuse(self, refusal: &Refuse) -> Box<FailedHandshake> {
        let caller = Some(self.caller());
        FailedHandshake::refused(self.channel, caller, refusal)
    }

    /// Takes apart what a client of netipc needs of it.
    #[cfg(feature = "netipc")]
    pub(super) fn into_parts(self) -> (Channel, Caller, UserHandle) {
        let caller = self.caller();
        (self.channel, caller, self.user_handle)
    }

    /// Returns whether the client's HELLO has not been admitted yet.
    pub(super) fn is_silent(&self) -> bool {
        self.own.is_none()
    }

    pub(super) fn caller(&self) -> Caller {
        caller(&self.credentials, self.session)
    }

    fn welcome(
        &mut self,
        hello: &Hello,
        config: &ServerConfig,
        board: Borrowed<'_>,
    ) -> Result<(), Refuse> {
        // Some systems identify a peer reliably only after it has sent something.
        let confirmed = self.credentials.confirm(&mut self.channel);
        self.credentials =
            confirmed.map_err(|error| Refuse::new(RefuseCode::Credentials, &error.to_string()))?;
        let by_event = config.doorbell != Doorbell::Socket
            && hello.rings_eventfd
            && self.fd_budget.makes_events();
        // Falls back to the socket when there is no event.
        let event = if by_event { WakeEvent::create().ok() } else { None };
        let wanted = if event.is_some() { Doorbell::Eventfd } else { Doorbell::Socket };
        let ringer = event.as_ref().map(WakeEvent::for_peer).transpose();
        let ringer = ringer.map_err(|error| lacking(&error))?;
        let lane = learned::opening(hello.service, Role::Server, &config.lane);
        let terms = SessionTerms {
            session: self.session,
            lane,
            least_lane: config.lane.size,
            doorbell: wanted,
            max_batch: u32::try_from(config.max_batch).unwrap_or(u32::MAX),
        };
        let Some(welcome) = self.machine.welcome(terms) else {
            return Err(Refuse::new(RefuseCode::Protocol, "WELCOME out of order"));
        };
        let account = self.user_handle.account(self.fd_budget);
        let (role, service, number) = (Role::Server, hello.service, self.session);
        let made = make_memory(role, service, number, welcome.lane, Some(&account));
        let (end, page, lane) = made.map_err(|error| match error {
            RegionError::Quota(error) => Refuse::new(RefuseCode::Quota, &error.to_string()),
            error => lacking(&error),
        })?;
        start_page(&end.page, role, number, service, welcome.lane);
        let mut objects = vec![page.as_object(), lane.as_object(), board];
        objects.extend(ringer.as_ref().map(AsObject::as_object));
        let message = Message::Welcome(welcome);
        // JOIN brings the first ones. A client of netipc passes none.
        self.channel.accept_objects();
        match control::send(&self.channel, &message, &objects) {
            // The client has left; the next receive reports that.
            Ok(()) | Err(SendError::Gone) => {}
            Err(error) => return Err(lacking(&error)),
        }
        self.own = Some(Own { end, event, doorbell: welcome.doorbell });
        Ok(())
    }

    fn arrive(
        mut self,
        hello: &Hello,
        welcome: &Welcome,
        peer: PeerEnd,
        peer_event: Option<WakeEvent>,
        peers: &Peers,
    ) -> Progress {
        let (Some(own), Some(ready)) = (self.own.take(), self.machine.ready()) else {
            return self.drop_out();
        };
        let caller = self.caller();
        // Without the life word, the client notices this process's death only by polling descriptors. The word's list
        // holds addresses of this process, which other users must not learn. It is set before READY, because the
        // client may park immediately, and one that finds it unset does not check it again for a whole slice.
        let is_kin = caller.user.is_own() || caller.user.is_system();
        let life = if is_kin { <Os as Platform>::LifeLock::hold(&own.end.page) } else { None };
        if control::send(&self.channel, &ready, &[]).is_err() {
            return self.drop_out();
        }
        let pid = caller.pid;
        let is_watched = pid.is_some_and(|pid| peers.watches(pid));
        let spares = is_watched || !self.fd_budget.watches_processes();
        let process = if spares { None } else { Process::watch(&self.channel) };
        // A process without a pid here cannot be recognized again: its session watches it alone.
        let (process, own_process) = if pid.is_some() { (process, None) } else { (None, process) };
        let created = own.end.created();
        let parts = Parts {
            own: own.end,
            peer,
            channel: self.channel,
            doorbell: own.doorbell,
            own_event: own.event,
            peer_event,
            process: own_process,
            limits: welcome.limits,
            lane_name: memory_name("lane", Role::Server, hello.service, self.session),
            trusts_peer: self.credentials.is_among(&[]),
        };
        // Without the resources for it, the client sees the socket close.
        let account = self.user_handle.account(self.fd_budget);
        let Ok(link) = Link::new(parts).map(|link| link.on_quota_of(account)) else {
            let (channel, caller, cause) = (None, Some(caller), None);
            let failed = FailedHandshake { channel, caller, cause };
            return Progress::Failed(Box::new(failed));
        };
        let lanes = Lanes::with_terms(server_lane(hello, welcome), client_lane(hello, welcome));
        let number = self.session;
        let session = trace::session(hello.service, number, created, Role::Server, pid);
        probes::session_opened(&session);
        let trace = ServerTrace::new(session, welcome.features & SAMPLES != 0);
        let (service, is_stats_client) = (hello.service, hello.service_version == STATS_VERSION);
        Progress::Admitted(Box::new(Admitted {
            link,
            lanes,
            user_handle: self.user_handle,
            caller,
            service,
            rings_by: hello.doorbell,
            is_stats_client,
            trace,
            life,
            process,
        }))
    }

    fn map_memory(
        &self,
        hello: &Hello,
        welcome: &Welcome,
        incoming: ControlMessage,
    ) -> Result<(PeerEnd, Option<WakeEvent>), Refuse> {
        let mut objects = incoming.received.into_objects();
        let mut region = |size| {
            let missing = || Refuse::new(RefuseCode::Protocol, "a descriptor is missing");
            let memory = objects.next().ok_or_else(missing)?;
            PeerRegion::verify_and_map(memory, size).map_err(|error| broken(&error))
        };
        let page = region(PAGE_SIZE)?;
        let lane = region(lane_size(hello.lane))?;
        let size = crate::connect::lane_field(hello.lane);
        let checked = page_header(&page).check(Role::Client, welcome.session, size, hello.service);
        checked.map_err(|error| broken(&error))?;
        let ringer = objects.next();
        let event = if WakeEvent::may_ring(&self.credentials) {
            ringer.map(WakeEvent::from_peer).transpose().map_err(|error| broken(&error))?
        } else {
            Os::reap(ringer);
            None
        };
        Ok((PeerEnd { page, lane }, event))
    }
}

impl FailedHandshake {
    fn refused(channel: Channel, caller: Option<Caller>, refusal: &Refuse) -> Box<Self> {
        #[cfg(feature = "netipc")]
        if netipc::refuse(&channel, refusal.code) {
            return Self::refused_for(channel, caller, refusal);
        }
        // A client that does not read it learns nothing, but that is no reason to wait.
        let _ = control::send(&channel, &Message::Refuse(refusal.clone()), &[]);
        Self::refused_for(channel, caller, refusal)
    }

    /// Returns a client that has been sent the reason.
    pub(super) fn refused_for(
        channel: Channel,
        caller: Option<Caller>,
        refusal: &Refuse,
    ) -> Box<Self> {
        let (code, reason) = (refusal.code, refusal.reason().into());
        let cause = Some(IncidentCause::Refused { code, reason });
        Box::new(Self { channel: Some(channel), caller, cause })
    }
}

fn caller(credentials: &Credentials, session: u64) -> Caller {
    Caller { pid: credentials.pid(), user: credentials.user(), session, watch: Watch::Nothing }
}

fn lacking(error: &dyn std::error::Error) -> Refuse {
    Refuse::new(RefuseCode::Resources, &format!("the provider lacks a resource: {error}"))
}

fn broken(error: &dyn std::error::Error) -> Refuse {
    Refuse::new(RefuseCode::Protocol, &format!("the client's memory is invalid: {error}"))
}
