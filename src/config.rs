//! The configuration of clients and servers.

use std::time::Duration;

use bellwire_core::call::MAX_WINDOW;
use bellwire_core::end::SHRINK_AFTER;
use bellwire_core::wire::Doorbell;
use bellwire_core::{Backend, Geometry, Limits, SpinPolicy};

use crate::transport::admission::Admission;
use crate::transport::peer::User;
use crate::{Backpressure, Token};

/// Defines a configuration: its fields with their defaults, and a setter for each.
macro_rules! config {
    (
        $(#[doc = $about:literal])*
        pub struct $Config:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[cfg($($cfg:tt)*)])?
                $field:ident: $Type:ty = $default:expr,
            )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub struct $Config {
            $(
                $(#[doc = $doc])*
                $(#[cfg($($cfg)*)])?
                pub $field: $Type,
            )*
        }

        impl Default for $Config {
            fn default() -> Self {
                Self {
                    $(
                        $(#[cfg($($cfg)*)])?
                        $field: $default,
                    )*
                }
            }
        }

        impl $Config {
            $(
                #[doc = concat!("Sets [`", stringify!($Config), "::", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                $(#[cfg($($cfg)*)])?
                #[must_use]
                pub fn $field(mut self, $field: $Type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

config! {
    /// The lane that one end writes, and how its messages use it. Clients and servers share it: a client's lane carries
    /// requests, a server's answers.
    ///
    /// ```
    /// use bellwire::{ClientConfig, LaneConfig};
    ///
    /// let config = ClientConfig::default().lane(LaneConfig::default().attach_from(Some(1 << 20)));
    /// assert_eq!(config.lane.attach_from, Some(1 << 20));
    /// ```
    pub struct LaneConfig {
        /// The initial and idle size. Default: 16 KiB, which carries messages of up to 8 144 bytes; a longer one makes
        /// the lane grow.
        size: Geometry = Geometry::DEFAULT,
        /// The largest size with which a new session opens after earlier ones had to grow. Default: 256 KiB.
        max_learned: Geometry = LEARNED_LANE,
        /// The limits of this end for each session; the peer's own limits apply too.
        limits: Limits = Limits::default(),
        /// Messages of at least this many bytes are attached, whatever the lane's size. `None`, the default: only those
        /// that no lane within the limits carries, and [`Payload`](crate::Payload)s that were built in a memfd.
        attach_from: Option<usize> = None,
        /// Messages longer than this many bytes are sent in parts, through a lane that need not hold all of them, which
        /// is faster; requests only by blocking calls. `None`: never. Default: 48 KiB.
        stream_from: Option<usize> = Some(STREAM_FROM),
        /// How long the lane may use less than a quarter of its ring before it shrinks, at the next send. A busy and
        /// deep lane keeps its size. Default: 30 s.
        shrink_after: Duration = SHRINK_AFTER,
    }
}

config! {
    /// The configuration of a client.
    ///
    /// ```
    /// use bellwire::{Backpressure, ClientConfig};
    /// use std::time::Duration;
    ///
    /// let config = ClientConfig::default().timeout(Duration::from_millis(500));
    /// assert_eq!(config.backpressure(Backpressure::Fail).timeout, Duration::from_millis(500));
    /// ```
    pub struct ClientConfig {
        /// How long a call waits for its answer. Default: 5 s.
        timeout: Duration = Duration::from_secs(5),
        /// How long opening a session may take. Default: 2 s.
        connect_timeout: Duration = Duration::from_secs(2),
        /// What to do with a request when the lane is full. Default: [`Backpressure::Adapt`]. For single calls:
        /// [`Session::backpressure`](crate::Session::backpressure).
        backpressure: Backpressure = Backpressure::default(),
        /// The most requests of a session in flight, counted from the oldest unanswered one: 1 to 65 536, the default.
        /// Any more find no room. A small number keeps latency low and caches warm during
        /// [`Session::call_many`](crate::Session::call_many). The provider has its own limit:
        /// [`ServerConfig::max_in_flight`](crate::ServerConfig::max_in_flight).
        max_in_flight: usize = MAX_WINDOW,
        /// The lane that this end writes, and its limits.
        lane: LaneConfig = LaneConfig::default(),
        /// How long the provider may stall, taking nothing of what this end has published, before a
        /// [`Client`](crate::Client) closes the session and reconnects: the provider is stopped, hangs, or has slower
        /// handlers. Checked when a call ends at its deadline and by [`Client::refresh`](crate::Client::refresh);
        /// counted from the first check that finds it so. `None`, the default: never; calls still end at their own
        /// deadlines.
        stall_timeout: Option<Duration> = None,
        /// How long to spin for an answer before parking. Default: adaptive, at most 60 µs.
        spin: SpinPolicy = SpinPolicy::default(),
        /// The doorbell on which the provider wakes this end. Default: a futex. For an event loop, use
        /// [`Doorbell::Eventfd`], which costs one more descriptor, or two once it is polled. On Windows, it is always
        /// an event.
        doorbell: Doorbell = Doorbell::Futex,
        /// The token to present; a server that has a token accepts only the same one. Default: the environment variable
        /// `BELLWIRE_TOKEN`, if it is set.
        token: Option<Token> = Token::by_default(),
        /// Users, besides this one and root or the system, whose providers are trusted. A client of root also trusts
        /// the owner of the run directory, if only root and that owner can replace what is in it, unless its program is setuid:
        /// then the user that starts it chooses that directory. Default: none.
        ///
        /// A user who can create files in the run directory can take a service's name before its provider does. Such a
        /// squatter could answer in its place and read the requests. So, before it sends anything, a client checks who
        /// owns the socket and as which user the process behind it runs. List the user of a provider, not users that
        /// merely share the run directory; a user that the user namespace does not map is never trusted, listed or not.
        /// On the other side, [`ServerConfig::admission`](crate::ServerConfig::admission) decides.
        trusted: Vec<User> = Vec::new(),
        /// How long to wait before reconnecting.
        backoff: Backoff = Backoff::default(),
    }
}

config! {
    /// How long a client waits before reconnecting: for a random time below a bound that doubles with each failure.
    ///
    /// ```
    /// use bellwire::{Backoff, ClientConfig};
    /// use std::time::Duration;
    ///
    /// let backoff = Backoff::default().max(Duration::from_millis(100));
    /// assert_eq!(ClientConfig::default().backoff(backoff).backoff.max, Duration::from_millis(100));
    /// ```
    pub struct Backoff {
        /// The bound after the first failure. Default: 20 ms.
        initial: Duration = Duration::from_millis(20),
        /// The largest bound. Default: 1 s.
        max: Duration = Duration::from_secs(1),
    }
}

impl Copy for Backoff {}

config! {
    /// The configuration of a server.
    ///
    /// ```
    /// use bellwire::{Admission, ServerConfig};
    ///
    /// let config = ServerConfig::default().workers(4).admission(Admission::Any);
    /// assert_eq!((config.workers, config.max_in_flight), (4, 1024));
    /// ```
    pub struct ServerConfig {
        /// Threads that run handlers. Default: 0, which runs handlers on the reactor thread: fastest, and right if none
        /// of them blocks. With workers, a slow handler delays only its own session.
        ///
        /// The reactor thread finishes a batch before another session has its turn: one of
        /// [`max_batch`](ServerConfig::max_batch) items that take 10 µs each delays all sessions for 1.3 s.
        workers: usize = 0,
        /// The lane that this end writes, and its limits.
        lane: LaneConfig = LaneConfig::default(),
        /// How long to spin for requests before sleeping. Default: adaptive, at most 60 µs.
        spin: SpinPolicy = SpinPolicy::default(),
        /// The doorbell on which clients wake a sleeping reactor. Default: an eventfd per session while less than half
        /// of this process's descriptors (`RLIMIT_NOFILE`) are in use, and the control socket above that:
        /// [`ServerStats::socket_rung`](crate::ServerStats::socket_rung) counts those sessions. [`Doorbell::Socket`]
        /// never spends a descriptor on it. A futex cannot wake the reactor and is treated as an eventfd.
        doorbell: Doorbell = Doorbell::Eventfd,
        /// How the reactor waits. If it is unavailable, the server falls back to what is available, and
        /// [`Server::backend`](crate::Server::backend) reports that. Default: the one that measures better.
        backend: Backend = Backend::Auto,
        /// The token that clients must have; `None` admits any client. Default: the environment variable
        /// `BELLWIRE_TOKEN`, if it is set.
        token: Option<Token> = Token::by_default(),
        /// The users to admit besides this one and root or the system. Default: none. On Linux, this sets the group and
        /// mode of the socket at each start, and of the run dir if the server creates it; an existing run dir must let
        /// them pass.
        admission: Admission = Admission::SameUser,
        /// Whether to accept an existing run dir that its group may write, such as Netdata's of mode 0775. The members of that
        /// group can then keep clients away from the services, and take their names, which clients notice: they check who
        /// provides a service. Default: no. On Windows it has no effect.
        group_run_dir: bool = false,
        /// The most sessions at once; more are refused. Default: 16 384, or as many as the kernel's limit of mappings
        /// allows: 15 358 with the usual `vm.max_map_count` of Linux.
        max_sessions: usize = 16_384,
        /// The most sessions of one user at once; more are refused. Default: three quarters of `max_sessions`.
        max_sessions_per_user: Option<usize> = None,
        /// How many sessions a second the clients of one user may open on average, after a first 16 seconds' worth at
        /// once. A session that violates the protocol counts as 16. A session beyond the rate waits for up to a second,
        /// and is refused if it would have to wait longer. Not for this process's user and root or the system, who can
        /// stop the server anyway. At least 1. Default: 16, after 256 at once.
        max_session_rate_per_user: u32 = 16,
        /// The most memory that all clients together may make this process hold, in bytes. It covers pages and lanes
        /// for them; snapshots and messages passed to them, even after the session for as long as a client keeps them;
        /// requests that arrive in parts or wait for a worker; and answers that wait for room. The server refuses what
        /// exceeds it: the session, the larger lane, the request or the answer. It lowers the limits of a session that
        /// would leave nothing for others. Default: a quarter of the memory available to this process, by its memory
        /// cgroup, its limit of address space or data (`RLIMIT_AS`, `RLIMIT_DATA`), or the machine.
        max_memory: Option<u64> = None,
        /// The same for the clients of one user. Default: three quarters of `max_memory`.
        max_memory_per_user: Option<u64> = None,
        /// Requests of one session that may be in flight. Default: 1 024.
        max_in_flight: usize = 1024,
        /// Requests of all sessions that may wait for a worker. Beyond that, each session has at most one waiting; its
        /// other requests stay in its lane. Default: 65 536.
        max_queued: usize = 65_536,
        /// The most items in one batch. Clients learn it in the handshake and send no more:
        /// [`Session::max_batch`](crate::Session::max_batch). A batch is decoded as a whole and its answer assembled as
        /// a whole, so each worker, or the reactor, holds this many requests and answers in memory. Default: 131 072: 1
        /// MiB for items of 8 bytes, 38 MiB for answers of 300; longer batches are no faster.
        max_batch: usize = 131_072,
        /// How long a client may stall, taking nothing of what was published for it, before the server closes its
        /// session with [`CloseReason::Stalled`](bellwire_core::wire::CloseReason::Stalled). Taking one record is enough.
        /// The time counts from when the reactor first notices and is checked in steps of a quarter; a client that has
        /// taken everything is never closed for this. `None`: never. Default: 60 s.
        ///
        /// What was published stays readable if the client resumes; answers that found no room are dropped.
        stall_timeout: Option<Duration> = Some(Duration::from_secs(60)),
        /// Clients that may wait to be accepted at each endpoint; any more find it full and retry. Default: 4 096,
        /// which Linux cuts to `net.core.somaxconn`. [`ServerStats::backlog_peak`](crate::ServerStats::backlog_peak) is
        /// the most that have waited.
        backlog: u32 = 4096,
        /// How long a client may take for the handshake. Default: 2 s.
        handshake_timeout: Duration = Duration::from_secs(2),
        /// How long [`Server::stop`](crate::Server::stop) waits for handlers, and for clients to make room for their
        /// last answers. After that, [`Caller::is_abandoned`](crate::Caller::is_abandoned) returns true to a handler
        /// that still runs, and a batch ends with its current item. Default: 1 s.
        drain_timeout: Duration = Duration::from_secs(1),
        /// How often to log the counters of each service: a line of level *info* and target `bellwire` that begins with
        /// `[STATS]`, through the [`log`](https://docs.rs/log) facade. Default: `None`, never, which wakes no thread.
        #[cfg(feature = "log")]
        stats_every: Option<Duration> = None,
        /// Whether clients that speak netipc, the protocol of Netdata's plugin-ipc, are served at the same endpoints: those of
        /// services that say [how](crate::netipc). Default: no. On Windows a service is then refused.
        #[cfg(feature = "netipc")]
        netipc: bool = false,
        /// The token that clients of netipc must have; `None` admits any. Default: that of the environment variable
        /// `NETDATA_INVOCATION_ID`, or of `INVOCATION_ID`, if one is a UUID.
        #[cfg(feature = "netipc")]
        netipc_token: Option<crate::netipc::Token> = crate::netipc::Token::from_environment(),
    }
}

/// Messages longer than this are sent in parts: 48 KiB.
const STREAM_FROM: usize = 48 << 10;

/// The largest lane with which sessions open after earlier ones had to grow: 256 KiB.
const LEARNED_LANE: Geometry = match Geometry::new(256 << 10) {
    Ok(size) => size,
    Err(_) => Geometry::DEFAULT,
};
