//! Collects the services of a server, and starts it.

use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use bellwire_core::wire::STATS_VERSION;
#[cfg(feature = "netipc")]
use bellwire_netipc::{method::Method, server::Translation};

#[cfg(feature = "tokio")]
use super::async_handler;
use super::batch::TypedBatch;
use super::handler::{Handler, Typed, Untyped};
use super::quotas::Quotas;
use super::reactor::Reactor;
use super::{
    BatchAnswers, Caller, Incident, IncidentHook, Listener, Server, Shared, own_thread, system,
};
use crate::error::of_transport;
use crate::event::LONGEST;
use crate::publication::{Publication, limits_for};
use crate::publisher::longest;
use crate::stats::StatsTable;
use crate::transport::doorbell::WakeEvent;
use crate::transport::endpoint::Endpoint;
use crate::transport::fork::OwnerProcess;
use crate::transport::{Os, prelude::*};
use crate::{
    Contract, Dynamic, Event, EventPublisher, HandlerError, Payload, Publisher, RunDir, ServeError,
    ServerConfig, Service, Snapshot, Token, trace,
};

/// Collects the services of a [`Server`].
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
    listeners: Vec<Listener>,
    /// Sockets of services that are yet to be added.
    inherited: Vec<<Os as Platform>::Inherited>,
    on_incident: IncidentHook,
    owner_process: OwnerProcess,
}

impl ServerBuilder {
    pub(super) fn new(run_dir: &RunDir, mut config: ServerConfig) -> Self {
        let on_incident = IncidentHook::default();
        config.max_sessions = Quotas::sessions(config.max_sessions, Os::max_maps());
        let quotas = Quotas::new(&config);
        Self {
            run_dir: run_dir.clone(),
            config,
            quotas,
            listeners: Vec::new(),
            inherited: Vec::new(),
            on_incident,
            owner_process: OwnerProcess::current(),
        }
    }

    /// Calls `on_incident` for each [`Incident`] as it happens, on the reactor thread: it must not block. Reports are
    /// rate-limited: at most five of one kind and user in ten seconds; the next one, or the end of the server, adds
    /// the number of suppressed ones. The log events of the feature `log` are limited in the same way.
    ///
    /// ```
    /// # use bellwire::{RunDir, Server};
    /// # use std::sync::mpsc::sync_channel;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut builder = Server::builder(&RunDir::new(dir.path()));
    /// let (report, incidents) = sync_channel(64);
    /// builder.on_incident(move |incident| drop(report.try_send(incident.clone())));
    /// std::thread::spawn(move || {
    ///     for incident in incidents {
    ///         eprintln!("{:?} {incident}", incident.at);
    ///     }
    /// });
    /// ```
    pub fn on_incident(
        &mut self,
        on_incident: impl Fn(&Incident) + Send + Sync + 'static,
    ) -> &mut Self {
        self.on_incident = IncidentHook(Some(Box::new(on_incident)));
        self
    }

    /// Takes the listening sockets that a service manager has bound and hands to this process, as systemd does for a unit with
    /// a socket (`LISTEN_FDS`, [sd_listen_fds(3)]): services that are added after this are served at theirs. Clients can connect
    /// before the provider runs, and while it restarts. Returns the number of sockets: 0 if the process was started otherwise,
    /// and on Windows. The sockets' files stay when the server stops.
    ///
    /// ```
    #[doc = include_str!("../doc/increment.txt")]
    /// let mut builder = Server::builder(&run_dir);
    /// builder.inherit_sockets()?;
    /// builder.serve::<Increment>(|_, number| Ok(number + 1))?;
    /// let server = builder.start()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [sd_listen_fds(3)]: https://man7.org/linux/man-pages/man3/sd_listen_fds.3.html
    ///
    /// # Errors
    /// [`ServeError::Inherited`] if one is no Unix socket of type `SOCK_SEQPACKET` that listens at a path;
    /// [`ServerBuilder::start`] returns it of one that is not at `{run_dir}/{service}.sock` of a service of this server.
    pub fn inherit_sockets(&mut self) -> Result<usize, ServeError> {
        let sockets = Endpoint::inherited();
        let sockets = sockets.map_err(|error| ServeError::Inherited { source: error.into() })?;
        let count = sockets.len();
        self.inherited.extend(sockets);
        Ok(count)
    }

    /// Serves `S` with a function, and takes its name now, so that a second provider of the name fails here. Clients find it
    /// from [`ServerBuilder::start`] on; before, it is absent.
    ///
    /// The function receives the decoded request and the caller. If it panics, the call fails and the server
    /// continues. Without workers, it runs on the reactor thread and must not block. In a batch it runs for every item; an
    /// answer that no longer fits the message becomes [`Status::TooLarge`](crate::Status::TooLarge) of that item, which always fits.
    ///
    /// # Errors
    /// [`ServeError::Name`] when this builder serves it already; [`ServeError::Taken`] when another server does; others when the
    /// endpoint cannot be created.
    pub fn serve<S: Service>(
        &mut self,
        handler: impl Fn(&Caller, S::Request) -> Result<S::Response, HandlerError>
        + Send
        + Sync
        + 'static,
    ) -> Result<&mut Self, ServeError> {
        self.serve_by::<S>(Handler::Call(Arc::new(Typed::<S, _>::new(handler))))
    }

    /// Serves a service that is known only at run time, like [`ServerBuilder::serve`]: for answers that are large, or shared.
    ///
    /// # Errors
    /// Like [`ServerBuilder::serve`].
    pub fn serve_dynamic(
        &mut self,
        contract: Contract,
        handler: impl Fn(&Caller, Payload) -> Result<Payload, HandlerError> + Send + Sync + 'static,
    ) -> Result<&mut Self, ServeError> {
        self.serve_contract(&contract, Handler::Call(Arc::new(Typed::<Dynamic, _>::new(handler))))
    }

    /// Serves a service that is known only at run time with a function that is lent the request's bytes and appends the
    /// answer's. In a steady state, neither is allocated.
    ///
    /// # Errors
    /// Like [`ServerBuilder::serve`].
    pub fn serve_bytes(
        &mut self,
        contract: Contract,
        handler: impl Fn(&Caller, &[u8], &mut Vec<u8>) -> Result<(), HandlerError>
        + Send
        + Sync
        + 'static,
    ) -> Result<&mut Self, ServeError> {
        self.serve_contract(&contract, Handler::Call(Arc::new(Untyped(handler))))
    }

    /// Serves `S` with a function that handles a whole batch: the requests of one message, and a place for the answer
    /// to each, in order. A single request is a batch of one.
    ///
    /// [`ServerBuilder::serve`] accepts batches too, item by item. Use this where many at once are cheaper: one read
    /// of `/proc`, one lock, one query. If the function panics, all requests of the batch fail.
    ///
    /// # Errors
    /// Like [`ServerBuilder::serve`].
    pub fn serve_batches<S: Service>(
        &mut self,
        handler: impl Fn(&Caller, &[S::Request], &mut BatchAnswers<'_, S::Response>)
        + Send
        + Sync
        + 'static,
    ) -> Result<&mut Self, ServeError> {
        self.serve_by::<S>(Handler::Call(Arc::new(TypedBatch::<S, _>::new(handler))))
    }

    /// Serves `S` with a function that returns a future, which runs as a task of the tokio runtime that this is called in. It may
    /// wait as long as it likes, and no thread waits with it; a function that computes for long belongs in a
    /// [worker](ServerConfig::workers) instead. The items of a batch are handled one after another.
    ///
    /// When the client cancels its request, or is gone, the future is dropped where it waits.
    /// [`Server::stop`] waits for all of them until [`ServerConfig::drain_timeout`], and then drops those that are left. If a
    /// future panics, its call fails, and the server continues.
    ///
    /// At most [`ServerConfig::max_in_flight`] of a session run at once, and [`ServerConfig::max_queued`] of all; other requests
    /// stay in their lanes. A client that reads no answers starts no more.
    ///
    /// ```
    /// # use bellwire::{AsyncClient, RunDir, Server, Service};
    /// # use std::time::Duration;
    /// # struct Later;
    /// # impl Service for Later {
    /// #     const NAME: &'static str = "later";
    /// #     type Request = u64;
    /// #     type Response = u64;
    /// # }
    /// # #[cfg(windows)]
    /// # fn main() {}
    /// # #[cfg(not(windows))]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let run_dir = RunDir::new(dir.path());
    /// let mut builder = Server::builder(&run_dir);
    /// builder.serve_async::<Later, _>(|_, millis| async move {
    ///     tokio::time::sleep(Duration::from_millis(millis)).await;
    ///     Ok(millis)
    /// })?;
    /// let server = builder.start()?;
    /// assert_eq!(AsyncClient::<Later>::new(&run_dir).call(&1).await?, 1);
    /// # server.stop();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Like [`ServerBuilder::serve`]; [`ServeError::System`] outside of a runtime.
    #[cfg(feature = "tokio")]
    pub fn serve_async<S: Service, F>(
        &mut self,
        handler: impl Fn(Caller, S::Request) -> F + Send + Sync + 'static,
    ) -> Result<&mut Self, ServeError>
    where
        F: Future<Output = Result<S::Response, HandlerError>> + Send + 'static,
    {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other);
        let runtime = runtime.map_err(system("find the tokio runtime for handlers"))?;
        let task = async_handler::AsyncHandler::<S, _>::new(handler, runtime);
        self.serve_by::<S>(Handler::Task(Arc::new(task)))
    }

    fn serve_by<S: Service>(&mut self, handler: Handler) -> Result<&mut Self, ServeError> {
        const { assert!(S::VERSION != STATS_VERSION, "this version asks any server for its counters") };
        self.serve_contract(&Contract::of::<S>(), handler)?;
        #[cfg(feature = "netipc")]
        self.enable_netipc(S::netipc().map(Method::Calls))?;
        Ok(self)
    }

    fn serve_contract(
        &mut self,
        contract: &Contract,
        handler: Handler,
    ) -> Result<&mut Self, ServeError> {
        self.open(contract, 0, |_| Ok(handler))?;
        Ok(self)
    }

    /// Serves the snapshots of `T` that the returned publisher publishes.
    ///
    /// # Errors
    /// Like [`ServerBuilder::serve`].
    pub fn publish<T: Snapshot>(&mut self) -> Result<Publisher<T>, ServeError> {
        self.publish_contract(&Contract::of_snapshot::<T>())
    }

    /// Publishes snapshots that are known only at run time, like [`ServerBuilder::publish`].
    ///
    /// # Errors
    /// Like [`ServerBuilder::serve`].
    pub fn publish_dynamic(
        &mut self,
        contract: Contract,
    ) -> Result<Publisher<Dynamic>, ServeError> {
        self.publish_contract(&contract)
    }

    fn publish_contract<T: Snapshot>(
        &mut self,
        contract: &Contract,
    ) -> Result<Publisher<T>, ServeError> {
        let store =
            self.open(contract, longest::<T>(), |store| Ok(Handler::Snapshot(Arc::clone(store))))?;
        #[cfg(feature = "netipc")]
        self.enable_netipc(T::netipc().map(Method::Snapshot))?;
        Ok(Publisher::new(store))
    }

    /// Serves the events of `E` that the returned publisher publishes, of which it keeps the last `depth` bytes, rounded up to
    /// a power of two from 64 KiB to 1 GiB: how far a subscriber may fall behind. [`EventPublisher::set_depth`] raises it
    /// later.
    ///
    /// # Errors
    /// Like [`ServerBuilder::serve`].
    pub fn events<E: Event>(&mut self, depth: u64) -> Result<EventPublisher<E>, ServeError> {
        self.publish_events(&Contract::of_event::<E>(), depth)
    }

    /// Serves events that are known only at run time, like [`ServerBuilder::events`].
    ///
    /// # Errors
    /// Like [`ServerBuilder::serve`].
    pub fn events_dynamic(
        &mut self,
        contract: Contract,
        depth: u64,
    ) -> Result<EventPublisher<Dynamic>, ServeError> {
        self.publish_events(&contract, depth)
    }

    fn publish_events<E: Event>(
        &mut self,
        contract: &Contract,
        depth: u64,
    ) -> Result<EventPublisher<E>, ServeError> {
        let store = self.open(contract, LONGEST, |store| {
            let made = store.set_depth(depth).map_err(io::Error::other);
            made.map_err(system("make the memory for events"))?;
            Ok(Handler::Snapshot(Arc::clone(store)))
        })?;
        Ok(EventPublisher::new(store))
    }

    /// Starts the reactor thread and the workers, and listens: clients that wait for a provider connect.
    ///
    /// # Errors
    /// [`ServeError::System`] when the system has no thread or descriptor left.
    pub fn start(self) -> Result<Server, ServeError> {
        let owner_process = self.owner_process;
        if !owner_process.is_owner_process() {
            return Err(ServeError::Forked);
        }
        if let Some(unused) = self.inherited.first() {
            let (path, dir) = (unused.path().display(), self.run_dir.path().display());
            let why = format!("{path} is not {dir}/NAME.sock of a service that was added after it");
            return Err(ServeError::Inherited { source: why.into() });
        }
        let bell = Arc::new(WakeEvent::create().map_err(system("create an event"))?);
        let started = Os::wall_nanos();
        let stats = Mutex::new(StatsTable { started, ..StatsTable::default() });
        let (stop, incidents) = (Arc::default(), Mutex::default());
        let Self { config, quotas, listeners, on_incident, .. } = self;
        let publications = listeners.iter().map(|listener| Arc::clone(&listener.store)).collect();
        let shared = Arc::new(Shared { stop, bell, stats, publications, incidents, on_incident });
        let drain_timeout = config.drain_timeout;
        let (started, has_started) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        // Created on its own thread, because it holds the life word that reports the death of exactly this thread.
        let serve = move || {
            own_thread::mark_handler_thread(&theirs.bell);
            match Reactor::new(config, listeners, quotas, theirs) {
                Ok(reactor) => {
                    let _ = started.send(Ok(()));
                    reactor.run();
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        };
        let thread = thread::Builder::new().name("bellwire-reactor".into());
        let reactor = thread.spawn(serve).map_err(system("start the reactor thread"))?;
        let ended = || io::Error::other("the reactor thread ended at once");
        has_started.recv().unwrap_or_else(|_| Err(system("start the reactor")(ended())))?;
        Ok(Server { shared, drain_timeout, reactor: Some(reactor), owner_process })
    }

    /// Opens an endpoint, and returns what its service publishes. `passed` is how many bytes of that its sessions pass at
    /// once, and `handler` makes its handler.
    fn open(
        &mut self,
        &Contract { service, version, schema, .. }: &Contract,
        passed: u64,
        handler: impl FnOnce(&Arc<Publication>) -> Result<Handler, ServeError>,
    ) -> Result<Arc<Publication>, ServeError> {
        if !self.owner_process.is_owner_process() {
            return Err(ServeError::Forked);
        }
        if self.listeners.iter().any(|listener| listener.admission.service == service) {
            let why = "this builder serves it already: give each service a name of its own".into();
            return Err(ServeError::Name { name: service.to_string(), why });
        }
        let store = Publication::create(service).map_err(of_transport);
        let store = Arc::new(store.map_err(system("make the service's board"))?);
        let handler = handler(&store)?;
        let (dir, admission) = (self.run_dir.path(), &self.config.admission);
        let group_may_write = self.config.group_run_dir;
        let inherited = self.inherited.iter().position(|socket| socket.is_of(dir, service));
        let socket = inherited.and_then(|at| self.inherited.get(at));
        let endpoint = Endpoint::reserve(dir, service, admission, group_may_write, socket);
        let endpoint = endpoint.map_err(|error| ServeError::unbound(service, error))?;
        inherited.map(|at| self.inherited.swap_remove(at));
        let token = self.config.token.map(Token::to_bytes);
        let features = trace::FEATURES;
        let limits = limits_for(passed, self.quotas.bound(self.config.lane.limits));
        let admission = bellwire_core::handshake::Admission {
            service,
            service_version: version,
            token,
            limits,
            features,
            schema,
        };
        let run_dir = self.run_dir.clone();
        self.listeners.push(Listener {
            run_dir,
            endpoint,
            admission,
            handler,
            store: Arc::clone(&store),
            queued: 0,
            is_waited_at: false,
            is_displaced: false,
            #[cfg(feature = "netipc")]
            netipc: None,
        });
        Ok(store)
    }

    /// Has clients of netipc served at the endpoint that was opened last.
    #[cfg(feature = "netipc")]
    fn enable_netipc(&mut self, method: Option<Method>) -> Result<(), ServeError> {
        if !self.config.netipc || method.is_none() {
            return Ok(());
        }
        if !crate::transport::pass::Channel::CARRIES_NETIPC {
            let unsupported = io::Error::from(io::ErrorKind::Unsupported);
            return Err(system("serve clients of netipc on this system")(unsupported));
        }
        if let Some(listener) = self.listeners.last_mut() {
            listener.netipc = method.map(Translation::new);
        }
        Ok(())
    }
}
