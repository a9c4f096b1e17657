use std::time::{Duration, SystemTime};

use bellwire_core::wire::STATS_VERSION;
use bellwire_core::{Backend, ServiceName, nanos};

use crate::connect::Connecting;
use crate::stats::{ServerStats, ServiceStats, StatsTable};
use crate::transport::peer::User;
use crate::transport::{Os, prelude::*};
use crate::{
    CallError, ClientConfig, ConnectError, ErrorKind, IncidentCounts, IncidentKind, Malformed,
    Message, RunDir, ServerConfig, Service, Session, SessionTerms, UserIncidents,
};

/// The layouts of a report: the second appends the incidents, for a stats client that requests it.
const LAYOUT: u32 = 1;
const WITH_INCIDENTS: u32 = 2;
/// What comes before the counters: layout, pid, started, workers, backend, backend_requested and two bytes of 0;
/// max_sessions, max_in_flight, rows, counters in a row.
type Head = ((u32, u32, u64, u32, [u8; 4]), (u64, u64, u32, u32));
/// The most counters in a row, and the most rows, that are accepted.
const MOST: u32 = 4096;

/// What a server reports about itself when a [`StatsClient`] asks one of its endpoints for counters.
///
/// ```
/// use bellwire::{ClientConfig, StatsClient, ServerReport};
#[doc = include_str!("doc/increment_served.txt")]
/// let config = ClientConfig::default();
/// let report: ServerReport = StatsClient::open(&run_dir, "increment".parse()?, &config)?.fetch()?;
/// assert_eq!((report.pid, report.workers), (std::process::id(), 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// Its process id, as it sees itself.
    pub pid: u32,
    /// When it started.
    pub started: SystemTime,
    /// [`ServerConfig::workers`].
    pub workers: u32,
    /// How its reactor waits. `None` for a server whose version does not report it, or uses a backend that this
    /// version does not know.
    pub backend: Option<Backend>,
    /// [`ServerConfig::backend`]: the configured backend. If it differs from `backend`, it was unavailable.
    pub backend_requested: Backend,
    /// [`ServerConfig::max_sessions`]: more are refused.
    pub max_sessions: u64,
    /// [`ServerConfig::max_in_flight`], of each session.
    pub max_in_flight: u64,
    /// The total over all services.
    pub total: ServerStats,
    /// Each service of the server, and `bellwire-stats` for stats clients.
    pub services: Vec<ServiceStats>,
    /// The number of incidents by user: of those with the most, and of all others. See
    /// [`Server::incidents_by_user`](crate::Server::incidents_by_user). `None` for a server whose version does not
    /// report it.
    pub incidents: Option<Vec<UserIncidents>>,
}

/// The service that every endpoint provides besides its own: it answers with the server's counters.
///
/// The client selects it by its version when it opens the session, so a session still has one kind of request; the
/// name is the endpoint's.
#[derive(Debug)]
pub(crate) struct StatsService;

impl Service for StatsService {
    const NAME: &'static str = "bellwire-stats";
    const VERSION: u32 = STATS_VERSION;
    const IDEMPOTENT: bool = true;
    type Request = Layout;
    type Response = ServerReport;
}

/// The latest layout that the stats client understands. An empty request means the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout(u32);

impl Layout {
    pub(crate) const fn has_incidents(self) -> bool {
        self.0 >= WITH_INCIDENTS
    }
}

impl Message for Layout {
    fn encode(&self, into: &mut Vec<u8>) {
        if self.0 > LAYOUT {
            self.0.encode(into);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.is_empty() { Ok(Self(LAYOUT)) } else { u32::decode(bytes).map(Self) }
    }
}

/// Reads a provider's counters, whatever services it has.
///
/// ```
/// use bellwire::{ClientConfig, StatsClient, RunDir, Server, Service};
///
/// # struct Increment;
/// # impl Service for Increment {
/// #     const NAME: &'static str = "increment";
/// #     type Request = u64;
/// #     type Response = u64;
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let run_dir = RunDir::new(dir.path());
/// # let mut builder = Server::builder(&run_dir);
/// # builder.serve::<Increment>(|_, number| Ok(number + 1))?;
/// # let _server = builder.start()?;
/// let mut client = StatsClient::open(&run_dir, "increment".parse()?, &ClientConfig::default())?;
/// let report = client.fetch()?;
/// assert_eq!(report.total.accepted, report.total.answered + report.total.in_flight());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StatsClient {
    session: Session<StatsService>,
    took: Duration,
    asks_for: Layout,
}

impl StatsClient {
    /// Opens a session with the provider of `service`, for its counters. It counts as one of the server's sessions,
    /// under the name `bellwire-stats`.
    ///
    /// # Errors
    /// [`ConnectError`]. A provider without this feature refuses version 4 294 967 295.
    pub fn open(
        run_dir: &RunDir,
        service: ServiceName,
        config: &ClientConfig,
    ) -> Result<Self, ConnectError> {
        let begun = Os::now();
        let until = begun.after(config.connect_timeout);
        let observed = (STATS_VERSION, 0);
        let opened = Connecting::start(run_dir, service, observed, config, until)?.finish()?;
        let took = Os::now().since(begun);
        Ok(Self { session: Session::new(opened, config), took, asks_for: Layout(WITH_INCIDENTS) })
    }

    /// Returns the server's counters, as of its last sleep, or half a millisecond ago while it is busy.
    ///
    /// # Errors
    /// [`CallError`]; after the provider is gone, open another one.
    pub fn fetch(&mut self) -> Result<ServerReport, CallError> {
        match self.session.call(&self.asks_for) {
            // An older server knows only the first layout, and no request for another one.
            Err(error) if self.asks_for.has_incidents() && error.kind() == ErrorKind::Malformed => {
                self.asks_for = Layout(LAYOUT);
                self.session.call(&self.asks_for)
            }
            fetched => fetched,
        }
    }

    /// Returns how long the handshake took.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Returns the provider's process id as reported by the kernel.
    pub fn provider_pid(&self) -> Option<u32> {
        self.session.provider_pid()
    }

    /// Returns the initial terms of a session with this service.
    pub fn terms(&self) -> SessionTerms {
        SessionTerms::of(&self.session)
    }
}

impl ServerReport {
    pub(crate) fn of(
        config: &ServerConfig,
        table: &StatsTable,
        incidents: Option<Vec<UserIncidents>>,
    ) -> Self {
        Self {
            pid: std::process::id(),
            started: SystemTime::UNIX_EPOCH + Duration::from_nanos(table.started),
            workers: u32::try_from(config.workers).unwrap_or(u32::MAX),
            backend: Some(table.backend.backend),
            backend_requested: config.backend,
            max_sessions: config.max_sessions as u64,
            max_in_flight: config.max_in_flight as u64,
            total: table.total(),
            services: table.services.clone(),
            incidents,
        }
    }
}

/// A later version may append counters to a row; this version ignores them.
impl Message for ServerReport {
    fn encode(&self, into: &mut Vec<u8>) {
        let since = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let number = |len| u32::try_from(len).unwrap_or(u32::MAX);
        let layout = if self.incidents.is_some() { WITH_INCIDENTS } else { LAYOUT };
        let backends = [code(self.backend), code(Some(self.backend_requested)), 0, 0];
        let server = (layout, self.pid, nanos(since), self.workers, backends);
        let (rows, counters) = (number(self.services.len()), number(ServerStats::COUNT));
        (server, (self.max_sessions, self.max_in_flight, rows, counters)).encode(into);
        self.total.values().encode(into);
        for ServiceStats { service, stats } in &self.services {
            (service.to_field(), stats.values()).encode(into);
        }
        let Some(incidents) = &self.incidents else { return };
        number(incidents.len()).encode(into);
        number(IncidentKind::ALL.len()).encode(into);
        for UserIncidents { user, counts, .. } in incidents {
            let user = user.map(|user| user.to_string()).unwrap_or_default();
            number(user.len()).encode(into);
            into.extend_from_slice(user.as_bytes());
            counts.iter().for_each(|(_, count)| count.encode(into));
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        let (server, limits): Head = reader.next()?;
        let (layout, pid, started, workers, [backend, requested, _, _]) = server;
        let (max_sessions, max_in_flight, rows, counters) = limits;
        if ![LAYOUT, WITH_INCIDENTS].contains(&layout) {
            return Err(reader.malformed("another layout of a report"));
        }
        let started = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(started));
        let started = started.ok_or_else(|| reader.malformed("no time"))?;
        let backend_requested = backend_of(requested).unwrap_or_default();
        if rows > MOST || counters > MOST {
            return Err(reader.malformed("more than a server counts"));
        }
        let total = reader.row(counters)?;
        let mut services = Vec::new();
        for _ in 0..rows {
            let name = ServiceName::from_field(&reader.next()?);
            let service = name.map_err(|_| reader.malformed("no service's name"))?;
            services.push(ServiceStats { service, stats: reader.row(counters)? });
        }
        let incidents = if layout == LAYOUT { None } else { Some(reader.incidents()?) };
        if reader.at != bytes.len() {
            return Err(reader.malformed("something follows"));
        }
        Ok(Self {
            pid,
            started,
            workers,
            backend: backend_of(backend),
            backend_requested,
            max_sessions,
            max_in_flight,
            total,
            services,
            incidents,
        })
    }
}

/// From code 1 on. 0 was written here before this field had a meaning.
const BACKENDS: [Backend; 3] = [Backend::Epoll, Backend::IoUring, Backend::ThreadPool];

fn code(backend: Option<Backend>) -> u8 {
    (1..).zip(BACKENDS).find(|(_, of)| Some(*of) == backend).map_or(0, |(code, _)| code)
}

fn backend_of(code: u8) -> Option<Backend> {
    (1..).zip(BACKENDS).find(|(of, _)| *of == code).map(|(_, backend)| backend)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.get(..len));
        let found = found.ok_or_else(|| self.malformed("too short"))?;
        self.at += len;
        Ok(found)
    }

    /// Parses a value of fixed length.
    fn next<M: Message>(&mut self) -> Result<M, Malformed> {
        M::decode(self.take(M::LEN.unwrap_or(0))?)
    }

    fn incidents(&mut self) -> Result<Vec<UserIncidents>, Malformed> {
        let (users, kinds) = self.next()?;
        if users > MOST || kinds > MOST {
            return Err(self.malformed("more than a server counts"));
        }
        let one = |_| {
            let (user, counts) = (self.user()?, IncidentCounts::of_values(self.counts(kinds)?));
            Ok(UserIncidents { user, counts })
        };
        (0..users).map(one).collect()
    }

    /// Parses a user as it is displayed; an empty string means all others.
    fn user(&mut self) -> Result<Option<User>, Malformed> {
        let len: u32 = self.next()?;
        let text = self.take(len as usize)?;
        if text.is_empty() {
            return Ok(None);
        }
        let text = std::str::from_utf8(text).ok();
        let user = text.and_then(|text| text.strip_prefix("uid ").unwrap_or(text).parse().ok());
        user.map(Some).ok_or_else(|| self.malformed("no user"))
    }

    /// Parses a row of `counters` counters, more or fewer than this version knows.
    fn row(&mut self, counters: u32) -> Result<ServerStats, Malformed> {
        Ok(ServerStats::of_values(self.counts(counters)?))
    }

    /// Parses at most [`MOST`] counters.
    fn counts(&mut self, count: u32) -> Result<Vec<u64>, Malformed> {
        Vec::decode(self.take(count as usize * size_of::<u64>())?)
    }

    fn malformed(&self, why: &'static str) -> Malformed {
        Malformed::new(self.at, self.bytes.len(), why)
    }
}
