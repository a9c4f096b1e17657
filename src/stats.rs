use bellwire_core::lane::LaneStats;
use bellwire_core::wire::Doorbell;
use bellwire_core::{InUse, ServiceName};

/// Counters of a session's calling end. `made = answered + refused + failed + in flight`, always.
///
/// Once nothing is on its way, what the server answered and refused in this session is
/// `answered + refused + errors + dropped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Requests sent; a batch is one.
    pub made: u64,
    /// Requests answered by their handler, without an error.
    pub answered: u64,
    /// Requests answered without a handler having run.
    pub refused: u64,
    /// Requests that ended in any other way.
    pub failed: u64,
    /// Requests that wait for an answer, and answers that wait to be taken.
    pub in_flight: u64,
    /// Of those that failed, requests that their handler failed, or whose answer could not be sent.
    pub errors: u64,
    /// Of those that failed, requests whose time was over.
    pub late: u64,
    /// Answers that came and were of no use: their request had been given up, or they could not be read.
    pub dropped: u64,
    /// Calls that ended before their request was sent: no room in time, too large, nobody there any more, or a future that was
    /// dropped.
    pub unsent: u64,
    /// How often the provider was rung: each is one system call.
    pub rings: u64,
    /// How often this end slept.
    pub parks: u64,
    /// What the provider rings to wake this end.
    pub doorbell: Doorbell,
    /// The lane that requests travel in.
    pub requests: LaneStats,
    /// The lane that answers travel in.
    pub answers: LaneStats,
}

/// Declares a struct of counters, and how to go through them by name.
macro_rules! counters {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl $name {
            /// How many counters there are.
            pub const COUNT: usize = [$(stringify!($field)),*].len();
            /// Their names, in their order.
            pub const NAMES: [&str; Self::COUNT] = [$(stringify!($field)),*];

            /// Their values, in the same order.
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
    /// Counters of a server: over all its services, or of one. `accepted = answered + refused + lost + in flight`, always.
    pub struct ServerStats {
        /// Sessions open now.
        sessions,
        /// Of those, sessions whose clients ring by their socket: since
        /// [`ServerConfig::doorbell`](crate::ServerConfig::doorbell) says so, or half of the descriptors that the process may
        /// have are taken.
        socket_rung,
        /// Clients that were let in, ever.
        admitted,
        /// Clients that were refused, or did not finish the handshake. [`Server::incidents`](crate::Server::incidents) says
        /// why.
        turned_away,
        /// Requests taken; a batch is one.
        accepted,
        /// Requests that a handler answered, or failed.
        answered,
        /// Requests that were answered without a handler having run.
        refused,
        /// Requests whose client went away before it was answered.
        lost,
        /// Of those answered, requests that their handler failed, or whose answer could not be sent.
        errors,
        /// Of those, handlers that panicked.
        panics,
        /// Sessions that were closed because the client broke the protocol.
        poisoned,
        /// Sessions that were closed because the client took nothing for too long of what was published for it.
        unread,
        /// How often a client was rung: each is one system call.
        rings,
        /// How often the reactor slept; 0 of one service.
        parks,
        /// Bytes of records taken, headers and padding included.
        bytes_received,
        /// Bytes of records written, headers and padding included.
        bytes_sent,
        /// Messages that came in memory of their own.
        attaches_received,
        /// Messages that were sent in memory of their own.
        attaches_sent,
        /// How often a lane became larger, of either direction.
        grows,
        /// How often a lane became smaller.
        shrinks,
        /// Answers that met a full lane.
        lane_full,
        /// The most clients that were accepted in a row at one endpoint, each waiting already: no more than so many ever
        /// waited at once. As long as it is not above [`ServerConfig::backlog`](crate::ServerConfig::backlog), nor what the
        /// system cuts that to, no client has found the endpoint full.
        backlog_peak,
        /// The most bytes of requests that lay in one session's lane at once.
        request_high_water,
        /// The most bytes of answers that lay in one session's lane at once.
        answer_high_water,
        /// Of the sessions open now, those whose client the server rings by a futex.
        clients_by_futex,
        /// Those whose client it rings by an eventfd, or an event on Windows.
        clients_by_eventfd,
        /// Those whose client it rings by the socket, or the pipe on Windows.
        clients_by_socket,
        /// Of the clients that were turned away, those that were refused and told why; the others went away.
        clients_refused,
        /// How often this process had no descriptor left to accept a client, to follow its lane, or to answer it.
        out_of_descriptors,
        /// How often it had no memory or maps left for that.
        out_of_memory,
        /// Sessions whose lane of answers has become as large as the limits allow.
        at_limit,
        /// How often a client was refused what would have put its user above what that may have of this server's memory.
        over_quota,
        /// How often the files of a service were removed from the run dir, or replaced.
        displaced,
    }
}

impl ServerStats {
    /// Requests taken and not yet answered.
    pub fn in_flight(&self) -> u64 {
        let ended = [self.answered, self.refused, self.lost];
        ended.into_iter().fold(self.accepted, u64::saturating_sub)
    }

    /// Takes over what was counted elsewhere.
    pub(crate) fn add(&mut self, news: &Self) {
        let high = [
            self.backlog_peak.max(news.backlog_peak),
            self.request_high_water.max(news.request_high_water),
            self.answer_high_water.max(news.answer_high_water),
        ];
        for (sum, news) in self.values_mut().into_iter().zip(news.values()) {
            *sum = sum.wrapping_add(news);
        }
        [self.backlog_peak, self.request_high_water, self.answer_high_water] = high;
    }

    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut news = *self;
        for (news, before) in news.values_mut().into_iter().zip(before.values()) {
            *news = news.wrapping_sub(before);
        }
        // These are no sums.
        (news.request_high_water, news.answer_high_water) =
            (self.request_high_water, self.answer_high_water);
        news
    }

    /// The counters in the order of [`ServerStats::NAMES`], as many as there are; what is missing is 0.
    pub(crate) fn of_values(values: impl IntoIterator<Item = u64>) -> Self {
        let mut stats = Self::default();
        for (stat, value) in stats.values_mut().into_iter().zip(values) {
            *stat = value;
        }
        stats
    }
}

/// Counters of one of a server's services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceStats {
    /// The service.
    pub service: ServiceName,
    /// Its counters.
    pub stats: ServerStats,
}

/// What a server counts: over all, and of each service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// When the server started, in nanoseconds since 1970.
    pub(crate) started: u64,
    pub(crate) backend: InUse,
    /// How often the reactor slept.
    pub(crate) parks: u64,
    pub(crate) services: Vec<ServiceStats>,
}

impl Published {
    /// Takes over what was counted for the service in this row.
    pub(crate) fn add(&mut self, row: usize, news: &ServerStats) {
        if let Some(row) = self.services.get_mut(row) {
            row.stats.add(news);
        }
    }

    /// Over all services: added up for who asks, not at each sleep of the reactor.
    pub(crate) fn total(&self) -> ServerStats {
        let mut total = ServerStats { parks: self.parks, ..ServerStats::default() };
        self.services.iter().for_each(|row| total.add(&row.stats));
        total
    }
}
