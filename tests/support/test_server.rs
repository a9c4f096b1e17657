use std::ops::Deref;
use std::sync::Arc;

use bellwire::{
    Caller, Client, ClientConfig, Geometry, HandlerError, IncidentCause, LaneConfig, Publisher,
    RunDir, ServeError, Server, ServerConfig, ServerStats, Service,
};
use tempfile::TempDir;

use super::gate::{Arrivals, Gate, OpenAtEnd};
use super::guard::{TEST_TIMEOUT, scaled, until};
use super::services::{AsRequested, Echo, Hold, Numbers, as_requested, echo};

/// A run dir of its own.
pub(crate) struct Dir {
    _dir: TempDir,
    pub(crate) run_dir: RunDir,
}

/// A server that stops when this is dropped, at the end of a test at the latest. Its counters reconcile then.
pub(crate) struct Reconciled(Option<Server>);

/// A server in this process that provides everything, in a run dir of its own.
pub(crate) struct TestServer {
    /// Before the server, which waits for its handlers: fields are dropped in their order.
    gate: OpenAtEnd,
    pub(crate) server: Reconciled,
    dir: Dir,
    pub(crate) numbers: Publisher<Numbers>,
    pub(crate) arrivals: Arrivals,
}

impl Dir {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let run_dir = RunDir::new(dir.path());
        Self { _dir: dir, run_dir }
    }
}

impl Reconciled {
    /// The final counters.
    pub(crate) fn stop(mut self) -> ServerStats {
        let stats = self.0.take().unwrap().stop();
        reconcile(&stats);
        stats
    }

    /// The server, for tests that end it in another way.
    pub(crate) fn into_inner(mut self) -> Server {
        self.0.take().unwrap()
    }
}

impl From<Server> for Reconciled {
    fn from(server: Server) -> Self {
        Self(Some(server))
    }
}

impl Deref for Reconciled {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Reconciled {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            let stats = server.stop();
            // Once a test has failed, it is its own failure that is to be read.
            if !std::thread::panicking() {
                reconcile(&stats);
            }
        }
    }
}

impl TestServer {
    pub(crate) fn open() -> Self {
        Self::with(ServerConfig::default())
    }

    pub(crate) fn with(config: ServerConfig) -> Self {
        Self::in_dir(Dir::new(), config)
    }

    pub(crate) fn in_dir(dir: Dir, config: ServerConfig) -> Self {
        let (gate, arrivals) = Gate::with_channel();
        // All tests of this process provide the same services: one must not learn from another.
        let lane = config.lane.clone().max_learned(config.lane.size);
        let config = config.lane(lane);
        let mut builder = Server::builder_with_config(&dir.run_dir, server_config(config));
        let numbers = serve_all(&mut builder, &gate);
        let server = builder.start().unwrap().into();
        Self { gate: OpenAtEnd(Some(gate)), server, dir, numbers, arrivals }
    }

    pub(crate) fn run_dir(&self) -> &RunDir {
        &self.dir.run_dir
    }

    /// A client with an open session.
    pub(crate) fn client<S: Service>(&self) -> Client<S> {
        self.client_with(client_config())
    }

    pub(crate) fn client_with<S: Service>(&self, config: ClientConfig) -> Client<S> {
        let mut client = Client::with_config(self.run_dir(), config);
        client.connect().expect("the server is open");
        client
    }

    /// Releases all held handlers.
    pub(crate) fn release(&self) {
        self.gate().open();
    }

    pub(crate) fn stats(&self) -> ServerStats {
        self.server.stats()
    }

    /// What clients did that the server did not put up with.
    pub(crate) fn recorded_incidents(&self) -> Vec<IncidentCause> {
        self.server.incidents().into_iter().map(|incident| incident.cause).collect()
    }

    /// The counters of one service.
    pub(crate) fn service<S: Service>(&self) -> ServerStats {
        let rows = self.server.service_stats();
        rows.iter().find(|row| row.service == Client::<S>::SERVICE).expect("it is served").stats
    }

    pub(crate) fn gate(&self) -> Gate {
        self.gate.0.clone().expect("the server is here")
    }

    /// The server alone, and the run dir that it needs.
    pub(crate) fn into_server(self) -> (Server, Dir) {
        let (server, dir, _) = self.into_publisher();
        (server, dir)
    }

    /// The server, its run dir, and the publisher of its numbers.
    pub(crate) fn into_publisher(mut self) -> (Server, Dir, Publisher<Numbers>) {
        // Its handlers are the test's to release.
        self.gate.0 = None;
        (self.server.into_inner(), self.dir, self.numbers)
    }

    /// Stops, and gives the final counters, which reconcile.
    pub(crate) fn close(self) -> ServerStats {
        self.release();
        self.server.stop()
    }
}

/// A server of one service.
pub(crate) fn provide<S: Service>(
    run_dir: &RunDir,
    handler: impl Fn(&Caller, S::Request) -> Result<S::Response, HandlerError> + Send + Sync + 'static,
) -> Reconciled {
    provide_with::<S>(run_dir, ServerConfig::default(), handler)
}

pub(crate) fn provide_with<S: Service>(
    run_dir: &RunDir,
    config: ServerConfig,
    handler: impl Fn(&Caller, S::Request) -> Result<S::Response, HandlerError> + Send + Sync + 'static,
) -> Reconciled {
    let mut builder = Server::builder_with_config(run_dir, config);
    let handler = Arc::new(handler);
    // A process that another test forked holds the lock of a server that has stopped until it executes its program.
    until("the endpoint is free", || {
        let handler = Arc::clone(&handler);
        let served = builder.serve::<S>(move |caller, request| handler(caller, request));
        if !matches!(served, Err(ServeError::Taken { .. })) {
            served.unwrap();
            return true;
        }
        false
    });
    builder.start().unwrap().into()
}

/// Everything that the tests call.
pub(crate) fn serve_all(builder: &mut bellwire::ServerBuilder, gate: &Gate) -> Publisher<Numbers> {
    let gate = gate.clone();
    builder.serve::<Echo>(echo).unwrap();
    builder.serve::<AsRequested>(as_requested).unwrap();
    builder
        .serve::<Hold>(move |_, who| {
            gate.pass(who);
            Ok(who)
        })
        .unwrap();
    builder.publish::<Numbers>().unwrap()
}

/// The counters of a server that has stopped.
#[track_caller]
pub(crate) fn reconcile(stats: &ServerStats) {
    assert_eq!(
        stats.accepted,
        stats.answered + stats.refused + stats.posted + stats.in_flight() + stats.lost,
        "{stats:?}"
    );
    assert_eq!((stats.sessions, stats.in_flight()), (0, 0), "{stats:?}");
}

/// The counters of a client.
#[track_caller]
pub(crate) fn reconcile_session<S: Service>(session: &bellwire::Session<S>) {
    let stats = session.stats();
    let posted = stats.posts_taken + stats.posts_lost;
    let ended = stats.answered + stats.refused + stats.failed + posted;
    assert_eq!(stats.made, ended + stats.in_flight, "{stats:?}");
}

/// Leaves clients time for the handshake on any machine, unless the test sets a time for it: one that is emulated, or Wine, may
/// keep a client from running for seconds.
pub(crate) fn server_config(config: ServerConfig) -> ServerConfig {
    match config.handshake_timeout == ServerConfig::default().handshake_timeout {
        true => config.handshake_timeout(scaled(TEST_TIMEOUT)),
        false => config,
    }
}

/// A client's configuration that no busy machine upsets, and that learns from no other test.
pub(crate) fn client_config() -> ClientConfig {
    let max_learned_lane = Geometry::DEFAULT;
    let (timeout, connect_timeout) = (scaled(TEST_TIMEOUT), scaled(TEST_TIMEOUT));
    ClientConfig::default()
        .timeout(timeout)
        .connect_timeout(connect_timeout)
        .lane(LaneConfig::default().max_learned(max_learned_lane))
}
