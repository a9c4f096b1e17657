//! The server: one reactor thread for all sessions of all services, and a bounded worker pool for slow handlers.

#[cfg(feature = "tokio")]
mod async_handler;
mod batch;
mod builder;
mod fd_budget;
mod handler;
mod handshake;
mod incidents;
#[cfg(feature = "netipc")]
mod netipc;
mod outbox;
mod own_thread;
mod quotas;
mod reactor;
mod session;
mod source;
mod tasks;
mod watch;
mod workers;

pub use batch::BatchAnswers;
pub use builder::ServerBuilder;
pub use handler::Caller;
pub use incidents::{Incident, IncidentCause, IncidentCounts, IncidentKind, UserIncidents};

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bellwire_core::{BackendStatus, ServiceName};
use bellwire_shm::lock;

use crate::publication::Publication;
use crate::stats::StatsTable;
use crate::transport::doorbell::WakeEvent;
use crate::transport::endpoint::Endpoint;
use crate::transport::fork::OwnerProcess;
use crate::transport::{Os, prelude::*};
use crate::{RunDir, ServeError, ServerConfig, ServerStats, ServiceStats};
use handler::Handler;
use incidents::Incidents;
use watch::StopBy;

/// The callbacks for incidents.
#[derive(Default)]
struct IncidentHook(Option<Box<IncidentCallback>>);

type IncidentCallback = dyn Fn(&Incident) + Send + Sync;

/// One endpoint with its service and its admission.
struct Listener {
    run_dir: RunDir,
    endpoint: Endpoint,
    admission: bellwire_core::handshake::Admission,
    handler: Handler,
    store: Arc<Publication>,
    /// Clients accepted since the backlog was last empty.
    queued: u64,
    /// Whether one of them was accepted since the last check.
    is_waited_at: bool,
    /// Whether its name was lost and could not be taken again yet.
    is_displaced: bool,
    /// How clients of netipc are served, if they are.
    #[cfg(feature = "netipc")]
    netipc: Option<bellwire_netipc::server::Translation>,
}

/// A running server. Dropping it stops it like [`Server::stop`].
///
/// ```
/// use bellwire::{Client, Server};
/// # use bellwire::{RunDir, Service};
/// # struct Increment;
/// # impl Service for Increment {
/// #     const NAME: &'static str = "increment";
/// #     type Request = u64;
/// #     type Response = u64;
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let run_dir = RunDir::new(dir.path());
/// let mut builder = Server::builder(&run_dir);
/// builder.serve::<Increment>(|_, number| Ok(number + 1))?;
/// let server = builder.start()?;
/// Client::<Increment>::new(&run_dir).call(&41)?;
/// assert_eq!(server.stop().answered, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    drain_timeout: Duration,
    reactor: Option<JoinHandle<()>>,
    owner_process: OwnerProcess,
}

/// The state that the reactor and the server's handle share.
#[derive(Debug)]
struct Shared {
    stop: Arc<StopBy>,
    /// Wakes the reactor.
    bell: Arc<WakeEvent>,
    stats: Mutex<StatsTable>,
    /// What each service publishes, in the order of their rows.
    publications: Vec<Arc<Publication>>,
    incidents: Mutex<Incidents>,
    on_incident: IncidentHook,
}

impl Server {
    /// Returns a builder of a server whose endpoints are in `run_dir`.
    pub fn builder(run_dir: &RunDir) -> ServerBuilder {
        ServerBuilder::new(run_dir, ServerConfig::default())
    }

    /// Returns a builder with a configuration other than the default.
    pub fn builder_with_config(run_dir: &RunDir, config: ServerConfig) -> ServerBuilder {
        ServerBuilder::new(run_dir, config)
    }

    /// Returns the counters as of the reactor's last sleep, or half a millisecond ago while it is busy.
    pub fn stats(&self) -> ServerStats {
        self.shared.current_stats().total()
    }

    /// Returns the counters of each service, in the order in which they were added, then those of stats clients, under
    /// the name `bellwire-stats`. They add up to [`Server::stats`].
    pub fn service_stats(&self) -> Vec<ServiceStats> {
        self.shared.current_stats().services.clone()
    }

    /// Returns how the reactor waits, and why not as configured.
    pub fn backend(&self) -> BackendStatus {
        self.shared.stats().backend
    }

    /// Returns the latest 64 incidents, with the time: clients that were refused, clients whose sessions were closed
    /// for their behavior, resources that this process lacked for them, and names that others displaced. They explain
    /// [`ServerStats::clients_refused`], [`ServerStats::poisoned`], [`ServerStats::stalled`],
    /// [`ServerStats::out_of_descriptors`], [`ServerStats::out_of_memory`], [`ServerStats::at_limit`],
    /// [`ServerStats::over_quota`] and [`ServerStats::displaced`] to an operator. [`ServerBuilder::on_incident`] reports
    /// them as they happen.
    pub fn incidents(&self) -> Vec<Incident> {
        self.shared.incidents().latest()
    }

    /// Returns the number of incidents of each kind by user: for the 16 users with the most, and for all others
    /// together.
    pub fn incidents_by_user(&self) -> Vec<UserIncidents> {
        self.shared.incidents().by_user()
    }

    /// Stops the server: accepts no new client, answers the requests that were taken, refuses the others with a
    /// reason, closes every lane, and joins the threads. This ends at the latest after
    /// [`ServerConfig::drain_timeout`], unless a handler runs longer: then it waits for the handler, in a batch for
    /// the current item. Returns the final counters. A handler of this server, and [`ServerBuilder::on_incident`], may call it,
    /// too: then it returns at once, and the server stops as soon as that has returned.
    pub fn stop(mut self) -> ServerStats {
        self.halt();
        self.shared.current_stats().total()
    }

    fn halt(&mut self) {
        if !self.owner_process.is_owner_process() {
            // After a fork, the thread belongs to the parent: there is nothing to stop, join or release here.
            std::mem::forget(self.reactor.take());
            return;
        }
        self.shared.stop.set(Os::now().after(self.drain_timeout));
        // Wakes the reactor.
        self.shared.bell.ring();
        // A handler that stops its own server would wait for itself.
        if let Some(reactor) =
            self.reactor.take().filter(|_| !own_thread::is_handler_thread(&self.shared.bell))
        {
            // Handler panics are caught where they run; the reactor itself does not panic.
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
    /// Records an incident, counts it by user and reports it. The caller counts it for the service.
    fn note(&self, service: ServiceName, caller: Option<Caller>, cause: IncidentCause) {
        // The lock is released before the report.
        let due = self.incidents().add(service, caller, cause);
        if let Some(incident) = due {
            self.report(&incident);
        }
    }

    /// Reports suppressed incidents before the end.
    fn report_suppressed(&self) {
        let held = self.incidents().take_held();
        held.iter().for_each(|incident| self.report(incident));
    }

    fn report(&self, incident: &Incident) {
        #[cfg(feature = "log")]
        incident.log();
        if let Some(on_incident) = &self.on_incident.0 {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| on_incident(incident))) {
                handler::discard(payload);
            }
        }
    }

    fn incidents(&self) -> MutexGuard<'_, Incidents> {
        lock(&self.incidents)
    }

    /// Returns the counters, with those of what was published, which its publishers count.
    fn current_stats(&self) -> MutexGuard<'_, StatsTable> {
        let mut stats = self.stats();
        for (row, publication) in stats.services.iter_mut().zip(&self.publications) {
            row.stats.published = publication.generation();
        }
        stats
    }

    fn stats(&self) -> MutexGuard<'_, StatsTable> {
        lock(&self.stats)
    }
}

impl std::fmt::Debug for IncidentHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IncidentHook").field(&self.0.is_some()).finish()
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("service", &self.admission.service).finish_non_exhaustive()
    }
}

fn system<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> ServeError {
    move |error| ServeError::System { doing, source: error.into() }
}
