//! Serving: one reactor thread for all sessions of all services, and a bounded pool for slow handlers.

mod batch;
mod conversation;
mod greeting;
mod handler;
mod incidents;
mod quotas;
mod reactor;
mod source;
mod thrift;
mod watch;
mod workers;

pub use batch::Answers;
pub use handler::Caller;
pub use incidents::{Incident, IncidentCounts, IncidentKind, Offence, UserIncidents};

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bellwire_core::drive::SHRINK_AFTER;
use bellwire_core::handshake;
use bellwire_core::wire::{Doorbell, STATS_METHOD};
use bellwire_core::{Backend, Geometry, InUse, Limits, ServiceName, SpinPolicy};

use crate::cache::Fetch;
use crate::connect::{LEARNED_LANE, STREAM_FROM};
use crate::publisher::{Shelf, limits_for};
use crate::stats::Published;
use crate::transport::admission::Admission;
use crate::transport::clock;
use crate::transport::doorbell::Event;
use crate::transport::endpoint::{BindError, Endpoint};
use crate::transport::fork::Home;
use crate::transport::memory;
use crate::{
    Client, HandlerError, Publisher, RunDir, ServeError, ServerStats, Service, ServiceStats,
    Snapshot, Token,
};
use batch::TypedBatch;
use handler::{Call, Handler, Typed};
use incidents::Incidents;
use quotas::Quotas;
use reactor::Reactor;
use watch::StopBy;

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Threads that run handlers. Default: 0, handlers run on the reactor thread: fastest, and right when none
    /// of them blocks. With more, a slow handler holds up nobody but its own session.
    ///
    /// On the reactor thread a batch is handled to its end before another session has its turn: one of
    /// [`max_batch`](ServerConfig::max_batch) items that take 10 µs each holds up everybody for most of a second.
    pub workers: usize,
    /// The size of the lane that answers travel in, to begin with and when it is idle. Default: 16 KiB, which carries
    /// answers of up to 8 144 bytes; a longer one makes it grow.
    pub lane: Geometry,
    /// The largest lane that a new session opens with, when earlier ones have had to grow. Default: 256 KiB.
    pub max_learned_lane: Geometry,
    /// What this end puts up with, for each session; the client's own limits hold too.
    pub limits: Limits,
    /// Answers of this many bytes or more travel in a memfd of their own, whatever lane there is. `None`, the
    /// default: only those that no lane within the limits carries, and [`Payload`](crate::Payload)s that were built
    /// in one.
    pub attach_from: Option<usize>,
    /// Answers longer than this many bytes are sent in parts, through a lane that need not hold them: faster than a lane that
    /// holds them. `None`: only through a lane that holds them. Default: 48 KiB.
    pub stream_from: Option<usize>,
    /// How long a lane may use less than a quarter of its room before it becomes small again, at the next answer.
    /// One that much goes through while much is on its way stays as it is. Default: 30 s.
    pub shrink_after: Duration,
    /// How long to spin for requests before sleeping. Default: adaptive, at most 60 µs.
    pub spin: SpinPolicy,
    /// What clients ring when the reactor sleeps. Default: an eventfd per session, as long as less than half of the
    /// descriptors are taken that the process may have (`RLIMIT_NOFILE`), and its socket from there on:
    /// [`ServerStats::socket_rung`] counts those. [`Doorbell::Socket`] spends no descriptor on it from the beginning. A
    /// futex wakes no reactor: it is taken for an eventfd.
    pub doorbell: Doorbell,
    /// What the reactor waits with. Where that cannot be had it takes what can, and [`Server::backend`] says so.
    /// Default: what measures better.
    pub backend: Backend,
    /// Clients that do not have this token are refused; `None` admits any. Default: the environment variable
    /// `BELLWIRE_TOKEN`, if it is set.
    pub token: Option<Token>,
    /// Who is admitted besides this user and root or the system. Default: nobody. On Linux this decides the group and the
    /// mode of the socket, and of the run dir if it is made, at each start; one that is there must let them pass.
    pub admission: Admission,
    /// Sessions at once; one more is refused. Default: 16 384, or what this process has maps for: 15 358 with the usual
    /// `vm.max_map_count` of Linux.
    pub max_sessions: usize,
    /// Sessions of one user at once; one more is refused. Default: three quarters of `max_sessions`.
    pub max_sessions_per_user: Option<usize>,
    /// Memory that all clients together may make this process hold, in bytes: pages and lanes that were made for them,
    /// snapshots and messages that they were passed, also of sessions that are over as long as a client keeps them;
    /// requests that arrive in parts or wait for a worker, and answers that wait for room. What is above is refused: the
    /// session, the larger lane, the request or the answer. Limits of a session that would leave others nothing are lowered.
    /// Default: a quarter of what this process may have, by its memory cgroup or the machine.
    pub max_memory: Option<u64>,
    /// The same for the clients of one user. Default: three quarters of `max_memory`.
    pub max_memory_per_user: Option<u64>,
    /// Requests of one session that are taken and not yet answered. Default: 1 024.
    pub max_in_flight: u64,
    /// Requests that wait for a worker, of all sessions together. Beyond that a session has one waiting at most: the rest
    /// stays in its lane. Default: 65 536.
    pub max_queued: usize,
    /// Items in one batch; clients are told, and send no more: [`Session::max_batch`](crate::Session::max_batch). A
    /// batch is decoded as a whole, and so is its answer put together: this many requests and answers are in memory
    /// for each worker, or the reactor. Default: 131 072. That is 1 MiB of items of 8 bytes, and 38 MiB of answers of
    /// 300; longer batches are no faster.
    pub max_batch: u32,
    /// How long a client may take nothing of what was published for it before its session is closed with
    /// [`CloseReason::Unread`](bellwire_core::wire::CloseReason::Unread): it is stopped, hangs, or never reads. Taking
    /// one record is enough. Counted from when the reactor first finds it so, and looked at in steps of a quarter;
    /// who has taken everything is waited for without end. `None`: never. Default: 60 s.
    ///
    /// What was published stays readable to the client, should it go on; answers that found no room are dropped.
    pub unread_timeout: Option<Duration>,
    /// Clients that may wait to be accepted at each endpoint; one more finds it full, and tries again. Default: 4 096,
    /// which Linux cuts to `net.core.somaxconn`. [`ServerStats::backlog_peak`] tells how many did.
    pub backlog: u32,
    /// How long a client may take for the handshake. Default: 2 s.
    pub handshake_timeout: Duration,
    /// How long [`Server::stop`] waits for handlers, and for clients to make room for their last answers. A handler that
    /// runs for longer is told so by [`Caller::is_abandoned`], and a batch ends with the item at hand. Default: 1 s.
    pub drain_timeout: Duration,
    /// How often to log the counters of each service: a line of level *info* of the target `bellwire`, that begins with
    /// `[STATS]`, by the [`log`](https://docs.rs/log) facade. Default: `None`, never, which wakes nobody.
    #[cfg(feature = "log")]
    pub stats_every: Option<Duration>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            workers: 0,
            lane: Geometry::DEFAULT,
            max_learned_lane: LEARNED_LANE,
            limits: Limits::default(),
            attach_from: None,
            stream_from: Some(STREAM_FROM),
            shrink_after: SHRINK_AFTER,
            spin: SpinPolicy::default(),
            doorbell: Doorbell::Eventfd,
            backend: Backend::Auto,
            token: Token::by_default(),
            admission: Admission::SameUser,
            max_sessions: 16_384,
            max_sessions_per_user: None,
            max_memory: None,
            max_memory_per_user: None,
            max_in_flight: 1024,
            max_queued: 65_536,
            max_batch: 131_072,
            unread_timeout: Some(Duration::from_secs(60)),
            backlog: 4096,
            handshake_timeout: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(1),
            #[cfg(feature = "log")]
            stats_every: None,
        }
    }
}

/// Collects what a [`Server`] will serve.
///
/// ```
/// use bellwire::{RunDir, Server, Service};
///
/// struct Increment;
/// impl Service for Increment {
///     const NAME: &'static str = "increment";
///     type Request = u64;
///     type Response = u64;
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let run_dir = RunDir::new(dir.path());
/// let mut builder = Server::builder(&run_dir);
/// builder.serve::<Increment>(|_, number| Ok(number + 1))?;
/// let server = builder.start()?;
/// server.stop();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServerBuilder {
    run_dir: RunDir,
    config: ServerConfig,
    quotas: Quotas,
    stations: Vec<Station>,
    listener: Listener,
    home: Home,
}

/// Hears of incidents when they happen.
#[derive(Default)]
struct Listener(Option<Box<Hear>>);

type Hear = dyn Fn(&Incident) + Send + Sync;

/// One endpoint, what it serves, and whom it admits.
struct Station {
    run_dir: RunDir,
    endpoint: Endpoint,
    admission: handshake::Admission,
    handler: Handler,
    shelf: Arc<Shelf>,
    /// Clients accepted since none was found waiting.
    queued: u64,
    /// One of them was accepted since the last look.
    is_waited_at: bool,
    /// Its name was lost, and could not be taken again yet.
    is_displaced: bool,
}

/// A running server. Dropping it stops it, as [`Server::stop`] does.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    drain_timeout: Duration,
    reactor: Option<JoinHandle<()>>,
    home: Home,
}

/// What the reactor and the server's handle share.
#[derive(Debug)]
struct Shared {
    stop: Arc<StopBy>,
    /// Wakes the reactor.
    bell: Arc<Event>,
    stats: Mutex<Published>,
    incidents: Mutex<Incidents>,
    listener: Listener,
}

impl Server {
    /// A server that meets its clients in `run_dir`.
    pub fn builder(run_dir: &RunDir) -> ServerBuilder {
        ServerBuilder::new(run_dir, ServerConfig::default())
    }

    /// A server with another configuration than the default.
    pub fn builder_with(run_dir: &RunDir, config: ServerConfig) -> ServerBuilder {
        ServerBuilder::new(run_dir, config)
    }

    /// The counters, as of the reactor's last sleep, or half a millisecond ago while it is busy.
    pub fn stats(&self) -> ServerStats {
        self.shared.stats().total()
    }

    /// The counters of each service, in the order in which they were added, and of those who ask for counters, under the
    /// name `bellwire-stats`. Their sums are those of [`Server::stats`].
    pub fn service_stats(&self) -> Vec<ServiceStats> {
        self.shared.stats().services.clone()
    }

    /// What the reactor waits with, and why not with what was asked for.
    pub fn backend(&self) -> InUse {
        self.shared.stats().backend
    }

    /// The clients that were not let in, those whose sessions were closed for what they did, and what this process
    /// lacked for them, with the time, as far as they are among the latest 64: what an operator has to be told about
    /// [`ServerStats::clients_refused`], [`ServerStats::poisoned`], [`ServerStats::unread`],
    /// [`ServerStats::out_of_descriptors`], [`ServerStats::out_of_memory`] and [`ServerStats::at_limit`]. To hear of
    /// them when they happen: [`ServerBuilder::on_incident`].
    pub fn incidents(&self) -> Vec<Incident> {
        self.shared.incidents().latest()
    }

    /// How many incidents there were of each kind, by user: of the 16 users with the most, and of all others together.
    pub fn incidents_by_user(&self) -> Vec<UserIncidents> {
        self.shared.incidents().by_user()
    }

    /// Stops: takes no new client, answers what was taken, refuses what was not with a reason, says bye to every
    /// client, and waits for the threads. At the latest after [`ServerConfig::drain_timeout`], unless a handler
    /// runs longer: it is waited for, of a batch for the item at hand. Returns the final counters.
    pub fn stop(mut self) -> ServerStats {
        self.halt();
        self.shared.stats().total()
    }

    fn halt(&mut self) {
        if !self.home.is_here() {
            // The thread is the parent's: there is nothing here to stop, to wait for or to let go.
            std::mem::forget(self.reactor.take());
            return;
        }
        self.shared.stop.tell(clock::now().after(self.drain_timeout));
        // Makes the reactor look.
        self.shared.bell.ring();
        if let Some(reactor) = self.reactor.take() {
            // Handlers' panics are caught where they run; the reactor itself does not panic.
            let _ = reactor.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt();
    }
}

impl Shared {
    // No code that holds one of these locks can panic halfway through a change.

    /// Keeps, counts by user, and tells what happened; the service's counters are the caller's to count in.
    fn note(&self, service: ServiceName, caller: Option<Caller>, offence: Offence) {
        // The lock is not held while it is told.
        let told = self.incidents().add(service, caller, offence);
        if let Some(incident) = told {
            self.tell(&incident);
        }
    }

    /// Tells what was held back, before the end.
    fn tell_rest(&self) {
        let held = self.incidents().take_held();
        held.iter().for_each(|incident| self.tell(incident));
    }

    fn tell(&self, incident: &Incident) {
        #[cfg(feature = "log")]
        incident.log();
        if let Some(listener) = &self.listener.0
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| listener(incident)))
        {
            handler::discard(payload);
        }
    }

    fn incidents(&self) -> MutexGuard<'_, Incidents> {
        self.incidents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> MutexGuard<'_, Published> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerBuilder {
    fn new(run_dir: &RunDir, mut config: ServerConfig) -> Self {
        let listener = Listener::default();
        config.max_sessions = Quotas::sessions(config.max_sessions, memory::most_maps());
        let quotas = Quotas::new(&config);
        Self {
            run_dir: run_dir.clone(),
            config,
            quotas,
            stations: Vec::new(),
            listener,
            home: Home::here(),
        }
    }

    /// Has `listener` hear of each [`Incident`] when it happens, on the reactor thread: it must not block. A flood is
    /// told in part: at most five of one kind and user in ten seconds, and how many there were besides with the next,
    /// or when the server stops. The log events of the feature `log` are told alike.
    ///
    /// ```
    /// # use bellwire::{RunDir, Server};
    /// # use std::sync::mpsc::sync_channel;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut builder = Server::builder(&RunDir::new(dir.path()));
    /// let (told, incidents) = sync_channel(64);
    /// builder.on_incident(move |incident| drop(told.try_send(incident.clone())));
    /// std::thread::spawn(move || {
    ///     for incident in incidents {
    ///         eprintln!("{:?} {incident}", incident.at);
    ///     }
    /// });
    /// ```
    pub fn on_incident(
        &mut self,
        listener: impl Fn(&Incident) + Send + Sync + 'static,
    ) -> &mut Self {
        self.listener = Listener(Some(Box::new(listener)));
        self
    }

    /// Serves `S` by a function, and takes its name now: two providers of one name cannot both come so far.
    ///
    /// The function gets what was decoded, and who calls. It may panic: then the call fails, and the server goes
    /// on. With no workers it runs on the reactor thread and must not block.
    ///
    /// # Errors
    /// [`ServeError::Taken`] when another process provides the service; others when the endpoint cannot be made.
    pub fn serve<S: Service>(
        &mut self,
        handler: impl Fn(&Caller, S::Request) -> Result<S::Response, HandlerError>
        + Send
        + Sync
        + 'static,
    ) -> Result<&mut Self, ServeError> {
        self.serve_by::<S>(Arc::new(Typed::<S, _>::new(handler)))
    }

    /// Serves `S` by a function that sees a batch as a whole: the requests of one message, and where to put an answer
    /// for each, in their order. A request that comes alone is a batch of one.
    ///
    /// [`ServerBuilder::serve`] takes batches too, item by item. A function for whole batches is for what is
    /// cheaper for many at once: one look at `/proc`, one lock, one query. When it panics, all requests of the batch fail.
    ///
    /// # Errors
    /// As [`ServerBuilder::serve`].
    pub fn serve_batches<S: Service>(
        &mut self,
        handler: impl Fn(&Caller, &[S::Request], &mut Answers<'_, S::Response>) + Send + Sync + 'static,
    ) -> Result<&mut Self, ServeError> {
        self.serve_by::<S>(Arc::new(TypedBatch::<S, _>::new(handler)))
    }

    fn serve_by<S: Service>(&mut self, handler: Arc<dyn Call>) -> Result<&mut Self, ServeError> {
        const { assert!(S::METHOD != STATS_METHOD, "this method asks any server for its counters") };
        let shelf = shelf(Client::<S>::SERVICE)?;
        let handler = Handler::Call(handler);
        let limits = self.quotas.bound(self.config.limits);
        self.open(Client::<S>::SERVICE, S::METHOD, handler, shelf, limits)?;
        Ok(self)
    }

    /// Serves the snapshots of `T` that the returned publisher is given.
    ///
    /// # Errors
    /// As [`ServerBuilder::serve`].
    pub fn publish<T: Snapshot>(&mut self) -> Result<Publisher<T>, ServeError> {
        let name = Client::<Fetch<T>>::SERVICE;
        let shelf = shelf(name)?;
        let limits = limits_for::<T>(self.quotas.bound(self.config.limits));
        let handler = Handler::Snapshot(Arc::clone(&shelf));
        self.open(name, T::METHOD, handler, Arc::clone(&shelf), limits)?;
        Ok(Publisher::new(shelf))
    }

    /// Starts the reactor thread and the workers.
    ///
    /// # Errors
    /// [`ServeError::System`] when a thread or a descriptor cannot be had.
    pub fn start(self) -> Result<Server, ServeError> {
        let home = self.home;
        if !home.is_here() {
            return Err(ServeError::Forked);
        }
        let bell = Arc::new(Event::create().map_err(system("create an event"))?);
        let started = clock::wall_nanos();
        let stats = Mutex::new(Published { started, ..Published::default() });
        let (stop, incidents) = (Arc::default(), Mutex::default());
        let Self { config, quotas, stations, listener, .. } = self;
        let shared = Arc::new(Shared { stop, bell, stats, incidents, listener });
        let drain_timeout = config.drain_timeout;
        let (started, has_started) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        // Made on its own thread: it holds what tells clients that this very thread died.
        let serve = move || match Reactor::new(config, stations, quotas, theirs) {
            Ok(reactor) => {
                let _ = started.send(Ok(()));
                reactor.run();
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
        let thread = thread::Builder::new().name("bellwire-reactor".into());
        let reactor = thread.spawn(serve).map_err(system("start the reactor thread"))?;
        let ended = || io::Error::other("the reactor thread ended at once");
        has_started.recv().unwrap_or_else(|_| Err(system("start the reactor")(ended())))?;
        Ok(Server { shared, drain_timeout, reactor: Some(reactor), home })
    }

    fn open(
        &mut self,
        service: ServiceName,
        method: u32,
        handler: Handler,
        shelf: Arc<Shelf>,
        limits: Limits,
    ) -> Result<(), ServeError> {
        if !self.home.is_here() {
            return Err(ServeError::Forked);
        }
        let failed = |error: BindError| match error {
            BindError::Taken { .. } => ServeError::Taken { service },
            error => ServeError::Endpoint { service, why: error.to_string().into() },
        };
        let (dir, admission) = (self.run_dir.path(), &self.config.admission);
        let endpoint = Endpoint::bind_admitting(dir, service, admission).map_err(failed)?;
        endpoint.set_backlog(self.config.backlog).map_err(system("listen for clients"))?;
        let token = self.config.token.map(Token::bytes);
        let admission = handshake::Admission { service, method, token, limits };
        let run_dir = self.run_dir.clone();
        self.stations.push(Station {
            run_dir,
            endpoint,
            admission,
            handler,
            shelf,
            queued: 0,
            is_waited_at: false,
            is_displaced: false,
        });
        Ok(())
    }
}

impl Station {
    /// Whether its publisher has published since the reactor looked.
    fn has_news(&self) -> bool {
        self.shelf.has_news()
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listener").field(&self.0.is_some()).finish()
    }
}

impl std::fmt::Debug for Station {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Station").field("service", &self.admission.service).finish_non_exhaustive()
    }
}

fn shelf(service: ServiceName) -> Result<Arc<Shelf>, ServeError> {
    let made = Shelf::create(service).map_err(|error| io::Error::other(error.to_string()));
    made.map(Arc::new).map_err(system("make the service's board"))
}

fn system<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> ServeError {
    move |error| ServeError::System { doing, source: error.into() }
}
