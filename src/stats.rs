use bellwire_core::lane::LaneStats;
use bellwire_core::wire::Doorbell;
use bellwire_core::{BackendStatus, ServiceName};

/// Counters of a session's calling end. Invariant: `made = answered + refused + failed + posts_taken + posts_lost + in
/// flight`.
///
/// Once no request is in flight, `answered + refused + errors + dropped` equals what the server answered and refused
/// in this session.
///
/// ```
/// use bellwire::Client;
#[doc = include_str!("doc/increment_served.txt")]
/// let mut client = Client::<Increment>::new(&run_dir);
/// let session = client.connect()?;
/// session.call(&41)?;
/// let stats = session.stats();
/// assert_eq!((stats.made, stats.answered, stats.in_flight), (1, 1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Requests sent; a batch counts as one.
    pub made: u64,
    /// Requests answered by their handler, without an error.
    pub answered: u64,
    /// Requests answered without running a handler.
    pub refused: u64,
    /// Requests that ended in any other way.
    pub failed: u64,
    /// Requests that wait for an answer, answers that wait to be taken, and one-way requests that the provider has not
    /// taken.
    pub in_flight: u64,
    /// One-way requests that the provider has taken: [`Session::post`](crate::Session::post).
    pub posts_taken: u64,
    /// One-way requests that it had not taken when the session ended: no handler runs for them.
    pub posts_lost: u64,
    /// Of `failed`, requests that the handler failed or whose answer could not be sent.
    pub errors: u64,
    /// Of `failed`, requests whose deadline passed.
    pub late: u64,
    /// Answers that were useless when they arrived: their request had been abandoned, or they could not be read.
    pub dropped: u64,
    /// Calls that ended before their request was sent: no room in time, too large, no provider any more, or a dropped
    /// future.
    pub unsent: u64,
    /// How often this end rang the provider; each ring is one system call.
    pub rings: u64,
    /// How often this end had to wait, for an answer or for room. What is not in `parks` ended while it spun.
    pub waits: u64,
    /// How often this end slept.
    pub parks: u64,
    /// The doorbell of this end.
    pub doorbell: Doorbell,
    /// The lane that requests travel in.
    pub requests: LaneStats,
    /// The lane that answers travel in.
    pub answers: LaneStats,
}

/// Declares a struct of counters with access by name.
macro_rules! counters {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl $name {
            /// The number of counters.
            pub const COUNT: usize = [$(stringify!($field)),*].len();
            /// The names of the counters, in order.
            pub const NAMES: [&str; Self::COUNT] = [$(stringify!($field)),*];

            /// Returns the values in the same order.
            pub fn values(&self) -> [u64; Self::COUNT] {
                [$(self.$field),*]
            }

            fn values_mut(&mut self) -> [&mut u64; Self::COUNT] {
                [$(&mut self.$field),*]
            }
        }
    };
}

counters! {
    /// Counters of a server: over all its services, or of one. Invariant: `accepted = answered + refused + posted +
    /// lost + in flight`.
    ///
    /// ```
    /// use bellwire::Client;
    #[doc = include_str!("doc/increment_served.txt")]
    /// Client::<Increment>::new(&run_dir).call(&41)?;
    /// let stats = server.stop();
    /// assert_eq!((stats.accepted, stats.answered, stats.in_flight()), (1, 1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub struct ServerStats {
        /// Open sessions.
        sessions,
        /// Of `sessions`, those whose clients ring on the control socket, because of
        /// [`ServerConfig::doorbell`](crate::ServerConfig::doorbell) or because half of the process's descriptors are
        /// in use.
        socket_rung,
        /// Clients admitted so far.
        admitted,
        /// Clients that were refused or did not finish the handshake. [`Server::incidents`](crate::Server::incidents)
        /// has the reasons.
        handshakes_failed,
        /// Requests taken, one-way ones included; a batch counts as one.
        accepted,
        /// Requests that a handler answered or failed.
        answered,
        /// Requests answered without running a handler.
        refused,
        /// Requests whose client went away before they were answered.
        lost,
        /// Of `answered`, requests that the handler failed or whose answer could not be sent.
        errors,
        /// Of `errors` and `post_errors`, handlers that panicked.
        panics,
        /// Sessions closed because the client violated the protocol.
        poisoned,
        /// Sessions closed because the client took nothing of what was published for it for too long.
        stalled,
        /// How often a client was rung; each ring is one system call.
        rings,
        /// How often the reactor slept; 0 for a single service.
        parks,
        /// Bytes of records received, including headers and padding.
        bytes_received,
        /// Bytes of records sent, including headers and padding.
        bytes_sent,
        /// Attachments received.
        attaches_received,
        /// Attachments sent.
        attaches_sent,
        /// How often a lane grew, in either direction.
        grows,
        /// How often a lane shrank.
        shrinks,
        /// Answers that found the lane full.
        lane_full,
        /// The most clients accepted in a row at one endpoint without emptying its backlog: never more were waiting
        /// at once. While it does not exceed [`ServerConfig::backlog`](crate::ServerConfig::backlog), or the value to
        /// which the system cuts that, no client has found the endpoint full.
        backlog_peak,
        /// The most bytes of requests in one session's lane at once.
        request_high_water,
        /// The most bytes of answers in one session's lane at once.
        answer_high_water,
        /// Of `sessions`, those whose client's doorbell is a futex.
        clients_by_futex,
        /// Those whose client's doorbell is an eventfd, or an event on Windows.
        clients_by_eventfd,
        /// Those whose client's doorbell is the socket, or the pipe on Windows.
        clients_by_socket,
        /// Of `handshakes_failed`, clients that were refused with a reason; the others went away.
        clients_refused,
        /// How often this process had no descriptor left to accept a client, follow its lane, or answer it.
        out_of_descriptors,
        /// How often this process had no memory or mappings left for that.
        out_of_memory,
        /// Sessions whose lane for answers has reached the limits.
        at_limit,
        /// How often a client was denied memory because its user had reached the quota. A refused session counts as
        /// `clients_refused`.
        over_quota,
        /// How often the files of a service in the run dir were removed or replaced.
        displaced,
        /// One-way requests that a handler handled, or that were refused: see [`Session::post`](crate::Session::post).
        posted,
        /// Of `posted`, requests that the handler failed or that were refused without running it.
        post_errors,
        /// Snapshots and events published.
        published,
        /// Of `sessions`, those of clients that speak netipc: see `ServerConfig::netipc`.
        netipc_sessions,
        /// Of `admitted`, clients that speak netipc.
        netipc_admitted,
    }
}

impl ServerStats {
    /// Returns the requests taken and not yet answered.
    pub fn in_flight(&self) -> u64 {
        let ended = [self.answered, self.refused, self.lost, self.posted];
        ended.into_iter().fold(self.accepted, u64::saturating_sub)
    }

    /// Adds other counters.
    pub(crate) fn add(&mut self, delta: &Self) {
        let high = [
            self.backlog_peak.max(delta.backlog_peak),
            self.request_high_water.max(delta.request_high_water),
            self.answer_high_water.max(delta.answer_high_water),
        ];
        for (sum, delta) in self.values_mut().into_iter().zip(delta.values()) {
            *sum = sum.wrapping_add(delta);
        }
        [self.backlog_peak, self.request_high_water, self.answer_high_water] = high;
    }

    /// Returns what was counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut delta = *self;
        for (delta, before) in delta.values_mut().into_iter().zip(before.values()) {
            *delta = delta.wrapping_sub(before);
        }
        // These are not sums.
        (delta.request_high_water, delta.answer_high_water) =
            (self.request_high_water, self.answer_high_water);
        delta
    }

    /// Builds the counters from values in the order of [`ServerStats::NAMES`]; missing ones are 0.
    pub(crate) fn of_values(values: impl IntoIterator<Item = u64>) -> Self {
        let mut stats = Self::default();
        for (stat, value) in stats.values_mut().into_iter().zip(values) {
            *stat = value;
        }
        stats
    }
}

/// Counters of one of a server's services.
///
/// ```
/// use bellwire::ServiceStats;
#[doc = include_str!("doc/increment_served.txt")]
/// for ServiceStats { service, stats, .. } in server.service_stats() {
///     println!("{service}: {} requests", stats.accepted);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceStats {
    /// The service.
    pub service: ServiceName,
    /// Its counters.
    pub stats: ServerStats,
}

/// The counters of a server: in total, and of each service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatsTable {
    /// When the server started, in nanoseconds since the Unix epoch.
    pub(crate) started: u64,
    pub(crate) backend: BackendStatus,
    /// How often the reactor slept.
    pub(crate) parks: u64,
    pub(crate) services: Vec<ServiceStats>,
}

impl StatsTable {
    /// Adds counters to the service in this row.
    pub(crate) fn add(&mut self, row: usize, delta: &ServerStats) {
        if let Some(row) = self.services.get_mut(row) {
            row.stats.add(delta);
        }
    }

    /// Returns the total over all services, computed on request instead of at each sleep of the reactor.
    pub(crate) fn total(&self) -> ServerStats {
        let mut total = ServerStats { parks: self.parks, ..ServerStats::default() };
        self.services.iter().for_each(|row| total.add(&row.stats));
        total
    }
}
