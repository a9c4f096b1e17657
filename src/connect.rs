//! The connecting edge: runs the client's half of the handshake over a real channel.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::time::Duration;

use bellwire_core::drive::CallDriver;
use bellwire_core::handshake::{ClientHandshake, ClientStep, HandshakeError};
use bellwire_core::lane::{LaneTerms, Lanes};
use bellwire_core::wire::{
    Doorbell, Hello, Message, PAGE_SIZE, PROTOCOL, PageHeader, RefuseCode, Role, SAMPLES, Welcome,
};
use bellwire_core::{Geometry, Instant, Limits, ServiceName, Spin, SpinPolicy};
use bellwire_probes as probes;
use zerocopy::IntoBytes;

use crate::board::Board;
use crate::control::{self, ControlMessage};
use crate::error::of_transport;
use crate::trace::{self, ClientTrace};
use crate::transport::doorbell::WakeEvent;
use crate::transport::endpoint::{self, Endpoint};
use crate::transport::link::{Link, OwnEnd, Parts, PeerEnd};
use crate::transport::memory::LoanAccount;
use crate::transport::object::{Borrowed, Owned};
use crate::transport::pass::{Channel, ReceiveError, SendError};
use crate::transport::peer::{Credentials, Process, User};
use crate::transport::region::{OwnRegion, PeerRegion, RegionError, VerifyError};
use crate::transport::{Os, prelude::*};
use crate::{ClientConfig, ConnectError, LaneConfig, RunDir, Token, learned};

/// The calling end of a session.
pub(crate) type Driver = CallDriver<Link, ClientTrace>;

/// The result of opening a session.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) driver: Driver,
    pub(crate) service: ServiceName,
    pub(crate) board: Board,
    pub(crate) pid: Option<u32>,
    /// The most items that the provider accepts in one batch.
    pub(crate) max_batch: u32,
}

/// A session that is being opened. Does not block by itself.
#[derive(Debug)]
pub(crate) struct Connecting {
    channel: Channel,
    machine: ClientHandshake,
    credentials: Credentials,
    spin: SpinPolicy,
    hello: Hello,
    shrink_after: Duration,
    /// What this end made of its own, until it is passed.
    made: Option<LocalMemory>,
    mapped: Option<Mapped>,
}

const MAKE_EVENT: &str = "create an event to be rung by";

/// This end's memory, what to pass of it, and its doorbell.
#[derive(Debug)]
struct LocalMemory {
    memory: (OwnEnd, Owned, Owned),
    event: Option<WakeEvent>,
}

/// How far a session has got.
#[derive(Debug)]
pub(crate) enum Progress {
    Waiting(Box<Connecting>),
    Open(Box<Opened>),
}

/// Connects to the endpoint, and checks who listens there, before anything is sent. Blocks only for room, as
/// [`Connecting::start`] does.
pub(crate) fn dial(
    run_dir: &RunDir,
    service: ServiceName,
    config: &ClientConfig,
    until: Instant,
) -> Result<(Channel, Credentials), ConnectError> {
    let dir = run_dir.path();
    let mut trusted = Cow::Borrowed(&config.trusted[..]);
    if let Some(owner) = Os::owner_trusted_by_root(dir) {
        trusted.to_mut().push(owner);
    }
    let channel = Endpoint::connect(dir, service, &trusted, Some(until))?;
    let credentials =
        Credentials::of(&channel).map_err(system("read the provider's credentials"))?;
    check_provider(&credentials, &trusted)?;
    Ok((channel, credentials))
}

/// The memory of both ends, mapped between WELCOME and READY.
#[derive(Debug)]
struct Mapped {
    own: OwnEnd,
    peer: PeerEnd,
    board: Board,
    own_event: Option<WakeEvent>,
    peer_event: Option<WakeEvent>,
}

impl Connecting {
    /// Connects to the endpoint and sends HELLO. Blocks only for room at the endpoint, on systems with a limit, until
    /// `until`.
    pub(crate) fn start(
        run_dir: &RunDir,
        service: ServiceName,
        (version, schema): (u32, u64),
        config: &ClientConfig,
        until: Instant,
    ) -> Result<Self, ConnectError> {
        let (channel, credentials) = dial(run_dir, service, config, until)?;
        let LaneConfig { size, limits, shrink_after, .. } = config.lane;
        let lane = limits.lane_within_limit(learned::opening(service, Role::Client, &config.lane));
        let hello = Hello {
            versions: PROTOCOL,
            features: trace::FEATURES,
            service,
            service_version: version,
            token: config.token.map_or([0; 16], Token::to_bytes),
            lane,
            least_lane: size.min(lane),
            limits: Limits {
                max_lane: limits.max_lane.max(size),
                // Less is no limit that the handshake knows.
                max_shared_bytes_per_session: limits
                    .max_shared_bytes_per_session
                    .max(Limits::MIN_SHARED),
                ..limits
            },
            doorbell: WakeEvent::choose(config.doorbell, &credentials),
            rings_eventfd: WakeEvent::may_ring(&credentials),
            schema,
        };
        let machine = ClientHandshake::new(hello, Os::now().after(config.connect_timeout));
        send(&channel, &machine.hello(), &[])?;
        // Made while the provider wakes up and makes its own, which takes as long.
        let made = LocalMemory::make(&hello)?;
        Ok(Self {
            channel,
            machine,
            credentials,
            spin: config.spin,
            hello,
            shrink_after,
            made: Some(made),
            mapped: None,
        })
    }

    /// Returns the provider's process id as reported by the kernel.
    pub(crate) fn provider_pid(&self) -> Option<u32> {
        self.credentials.pid()
    }

    /// Advances as far as possible without blocking.
    pub(crate) fn advance(mut self) -> Result<Progress, ConnectError> {
        loop {
            let incoming = match ControlMessage::receive(&self.channel) {
                Ok(Some(incoming)) => incoming,
                Ok(None) => {
                    self.machine.on_time(Os::now())?;
                    return Ok(Progress::Waiting(Box::new(self)));
                }
                Err(error) => return Err(unreceived(error)),
            };
            match self.machine.on_message(incoming.bytes(), incoming.objects())? {
                ClientStep::Map(welcome) => self.map(&welcome, incoming)?,
                ClientStep::Done(welcome) => {
                    return self.open(&welcome).map(|opened| Progress::Open(Box::new(opened)));
                }
            }
        }
    }

    /// Opens the session: waits for the provider's answers.
    pub(crate) fn finish(self) -> Result<Opened, ConnectError> {
        let mut connecting = self;
        loop {
            match connecting.advance()? {
                Progress::Open(opened) => return Ok(*opened),
                Progress::Waiting(waiting) => connecting = *waiting,
            }
            connecting.wait(None, None)?;
        }
    }

    /// Waits until there may be more to do, or `cancel` is rung. Spins first: the provider makes its memory, or maps this end's,
    /// sooner than a sleeping thread wakes up.
    pub(crate) fn wait(
        &self,
        until: Option<Instant>,
        cancel: Option<Borrowed<'_>>,
    ) -> Result<(), ConnectError> {
        let deadline = self.machine.deadline();
        let until = until.map_or(deadline, |until| until.min(deadline));
        let arrived = self.channel.arrived();
        let (alone, with_cancel) = ([arrived], cancel.map(|cancel| [arrived, cancel]));
        let sources = with_cancel.as_ref().map_or(&alone[..], |sources| sources);
        let wait =
            |until| Os::wait_any(sources, Some(until)).map_err(system("wait for the provider"));
        // The first answer takes as long as the provider's wake-up, and its work.
        let max = self.spin.max.saturating_mul(2);
        let mut spin = Spin::new(SpinPolicy { max, pays_within: max });
        let began = Os::now();
        let is_over = || wait(began).map(|came| came || Os::now() >= until);
        if spin.poll(Os::now, std::thread::yield_now, is_over)? {
            return Ok(());
        }
        wait(until).map(|_| ())
    }

    /// Returns what signals that a message has arrived.
    pub(crate) fn arrived(&self) -> Borrowed<'_> {
        self.channel.arrived()
    }

    /// Returns when to continue even if no message has arrived.
    pub(crate) fn due(&self) -> Instant {
        self.machine.deadline()
    }

    fn map(&mut self, welcome: &Welcome, incoming: ControlMessage) -> Result<(), ConnectError> {
        let mut objects = incoming.received.into_objects();
        let mut region = |size| match objects.next() {
            Some(memory) => PeerRegion::verify_and_map(memory, size).map_err(unverified),
            None => Err(protocol("a descriptor is missing")),
        };
        let page = region(PAGE_SIZE)?;
        let lane = region(lane_size(welcome.lane))?;
        let board = region(bellwire_core::wire::BOARD_SIZE)?;
        let header = page_header(&page);
        header
            .check(Role::Server, welcome.session, lane_field(welcome.lane), self.hello.service)
            .map_err(protocol)?;
        let board = Board::check(board, self.hello.service).map_err(protocol)?;
        // The number of descriptors was checked: this one is present if the server's doorbell is an event.
        let peer_event =
            objects.next().map(WakeEvent::from_peer).transpose().map_err(unverified)?;
        let Some(LocalMemory { memory: (own, passed_page, passed_lane), event }) = self.made.take()
        else {
            return Err(protocol("WELCOME twice"));
        };
        start_page(&own.page, Role::Client, welcome.session, self.hello.service, self.hello.lane);
        let ringer = event.as_ref().map(WakeEvent::for_peer).transpose();
        let ringer = ringer.map_err(system(MAKE_EVENT))?;
        let mut objects = vec![passed_page.as_object(), passed_lane.as_object()];
        objects.extend(ringer.as_ref().map(AsObject::as_object));
        if let Some(join) = self.machine.join() {
            send(&self.channel, &join, &objects)?;
        }
        let peer = PeerEnd { page, lane };
        self.mapped = Some(Mapped { own, peer, board, own_event: event, peer_event });
        Ok(())
    }

    fn open(self, welcome: &Welcome) -> Result<Opened, ConnectError> {
        let mapped = self.mapped.ok_or_else(|| protocol("READY before JOIN"))?;
        let created = page_header(&mapped.peer.page).created();
        // The kernel names the process that listened when this end connected: not the one that answers, if a service
        // manager keeps the socket and has restarted the provider since.
        let process = Process::watch(&self.channel).filter(|process| !process.has_exited());
        let parts = Parts {
            own: mapped.own,
            peer: mapped.peer,
            channel: self.channel,
            doorbell: self.hello.doorbell,
            own_event: mapped.own_event,
            peer_event: mapped.peer_event,
            process,
            limits: self.hello.limits,
            lane_name: memory_name("lane", Role::Client, self.hello.service, welcome.session),
            trusts_peer: self.credentials.is_among(&[]),
        };
        let link = Link::new(parts).map_err(system("open the session"))?;
        let lanes =
            Lanes::with_terms(client_lane(&self.hello, welcome), server_lane(&self.hello, welcome));
        let (number, pid) = (welcome.session, self.credentials.pid());
        let session = trace::session(self.hello.service, number, created, Role::Client, pid);
        probes::session_opened(&session);
        probes::capped(&session);
        let seed = Os::now().as_nanos() ^ u64::from(std::process::id()).rotate_left(32);
        let trace = ClientTrace::new(session, welcome.features & SAMPLES != 0, seed);
        let mut driver = CallDriver::observed(link, lanes, self.spin, trace);
        driver.end_mut().set_shrink_after(self.shrink_after);
        let (service, board) = (self.hello.service, mapped.board);
        Ok(Opened { driver, service, board, pid, max_batch: welcome.max_batch })
    }
}

impl LocalMemory {
    /// Makes what the client passes. The number of its session is not known yet: the kernel's name of the memory has this process's.
    fn make(hello: &Hello) -> Result<Self, ConnectError> {
        let pid = std::process::id().into();
        let memory = make_memory(Role::Client, hello.service, pid, hello.lane, None)
            .map_err(of_transport)
            .map_err(system("make this end's memory"))?;
        let event = match hello.doorbell {
            Doorbell::Eventfd => Some(WakeEvent::create().map_err(system(MAKE_EVENT))?),
            _ => None,
        };
        Ok(Self { memory, event })
    }
}

/// Creates one end's page and lane, charged to a user's quota if there is one, and returns what to pass of it: page and lane.
/// [`start_page`] follows before they are passed. Their names end in `number`.
pub(crate) fn make_memory(
    role: Role,
    service: ServiceName,
    number: u64,
    lane: Geometry,
    account: Option<&LoanAccount>,
) -> Result<(OwnEnd, Owned, Owned), RegionError> {
    let region = |what, size| {
        let name = memory_name(what, role, service, number);
        match account {
            Some(account) => OwnRegion::lend(account, &name, size, |_| {}),
            None => OwnRegion::create(&name, size, |_| {}),
        }
    };
    let (page, passed_page) = region("page", PAGE_SIZE)?;
    let (lane, passed_lane) = region("lane", lane_size(lane))?;
    let own = OwnEnd { page, lane };
    Lanes::open(&own);
    Ok((own, passed_page, passed_lane))
}

/// Writes the constant words of a page.
pub(crate) fn start_page(
    page: &OwnRegion,
    role: Role,
    session: u64,
    service: ServiceName,
    lane: Geometry,
) {
    let (pid, created) = (std::process::id(), Os::wall_nanos());
    let header = PageHeader::new(role, session, pid, lane_field(lane), created, service);
    page.write(0, header.as_bytes());
}

/// Returns the name of the memory of one end's page or lane, on systems where memory has names.
pub(crate) fn memory_name(what: &str, role: Role, service: ServiceName, number: u64) -> String {
    let side = match role {
        Role::Client => "client",
        Role::Server => "server",
    };
    format!("bellwire-{what}-{side}-{service}-{number}")
}

/// Returns the terms of the lane that the client writes.
pub(crate) fn client_lane(hello: &Hello, welcome: &Welcome) -> LaneTerms {
    LaneTerms::agreed(hello.lane, hello.least_lane, &hello.limits, &welcome.limits)
}

/// Returns the terms of the lane that the server writes.
pub(crate) fn server_lane(hello: &Hello, welcome: &Welcome) -> LaneTerms {
    LaneTerms::agreed(welcome.lane, welcome.least_lane, &welcome.limits, &hello.limits)
}

/// Copies the constant start of a peer's page, once.
pub(crate) fn page_header(page: &PeerRegion) -> PageHeader {
    let bytes = page.read_header::<{ size_of::<PageHeader>() }>(0);
    zerocopy::transmute!(bytes)
}

pub(crate) fn lane_size(lane: Geometry) -> usize {
    usize::try_from(lane.size()).unwrap_or(usize::MAX)
}

pub(crate) fn lane_field(lane: Geometry) -> u32 {
    u32::try_from(lane.size()).unwrap_or(Geometry::MAX)
}

/// Checks that the answering process runs as the user that the endpoint promised.
fn check_provider(credentials: &Credentials, trusted: &[User]) -> Result<(), ConnectError> {
    if credentials.is_among(trusted) {
        return Ok(());
    }
    let user = credentials.user();
    let why = format!(
        "it runs as {user}, which is neither this user, nor the system's, nor one of the trusted users"
    );
    Err(ConnectError::Impostor { source: why.into() })
}

fn protocol(source: impl Into<Box<dyn Error + Send + Sync>>) -> ConnectError {
    ConnectError::Protocol { source: source.into() }
}

pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> ConnectError {
    move |error| ConnectError::System { doing, source: error.into() }
}

fn unverified(error: VerifyError) -> ConnectError {
    match error {
        VerifyError::System { source } => system("map the provider's memory")(source),
        error => protocol(of_transport(error)),
    }
}

/// Sends a message. It is no error here if the provider has already refused and closed: its refusal can still be
/// received.
fn send(
    channel: &Channel,
    message: &Message,
    objects: &[Borrowed<'_>],
) -> Result<(), ConnectError> {
    match control::send(channel, message, objects) {
        Ok(()) | Err(SendError::Gone) => Ok(()),
        Err(error) => Err(system("send to the provider")(of_transport(error))),
    }
}

fn unreceived(error: ReceiveError) -> ConnectError {
    match error {
        ReceiveError::Closed => ConnectError::Closed,
        error if error.is_local() => system("receive from the provider")(of_transport(error)),
        error => protocol(of_transport(error)),
    }
}

impl From<HandshakeError> for ConnectError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Refused(refuse) => {
                Self::Refused { code: refuse.code, reason: refuse.reason().into() }
            }
            HandshakeError::Incompatible { ours, theirs } => Self::Incompatible { ours, theirs },
            error @ HandshakeError::Schema { .. } => {
                Self::Refused { code: RefuseCode::Schema, reason: error.to_string().into() }
            }
            HandshakeError::Deadline => Self::Deadline,
            error => protocol(error),
        }
    }
}

impl From<endpoint::ConnectError> for ConnectError {
    fn from(error: endpoint::ConnectError) -> Self {
        match error {
            endpoint::ConnectError::Absent { .. } => Self::Absent,
            endpoint::ConnectError::Busy { .. } => Self::Busy,
            error if error.is_impostor() => Self::Impostor { source: error.into() },
            error => system("connect")(of_transport(error)),
        }
    }
}
