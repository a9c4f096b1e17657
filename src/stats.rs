use bellwire_core::InUse;
use bellwire_core::lane::LaneStats;

/// Counters of a session's calling end. `made = answered + failed + in flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Requests sent.
    pub made: u64,
    /// Requests answered by their handler, without an error.
    pub answered: u64,
    /// Requests that ended in any other way.
    pub failed: u64,
    /// Requests that wait for an answer.
    pub in_flight: u64,
    /// How often the provider was rung: each is one system call.
    pub rings: u64,
    /// How often this end slept.
    pub parks: u64,
    /// The lane that requests travel in.
    pub requests: LaneStats,
    /// The lane that answers travel in.
    pub answers: LaneStats,
}

/// Counters of a server, over all its services. `accepted = answered + refused + in flight + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Sessions open now.
    pub sessions: u64,
    /// Of these, sessions whose clients ring by their socket: since [`ServerConfig::doorbell`](crate::ServerConfig::doorbell)
    /// says so, or half of the descriptors that the process may have are taken.
    pub rung_by_socket: u64,
    /// Clients that were let in, ever.
    pub admitted: u64,
    /// Clients that were refused, or did not finish the handshake. [`Server::incidents`](crate::Server::incidents) says why.
    pub turned_away: u64,
    /// The most clients that were accepted in a row at one endpoint, each waiting already: no more than so many ever
    /// waited at once. As long as it is not above [`ServerConfig::backlog`](crate::ServerConfig::backlog), nor what the
    /// system cuts that to, no client has found the endpoint full.
    pub backlog_peak: u64,
    /// Requests taken.
    pub accepted: u64,
    /// Requests that a handler answered, or failed.
    pub answered: u64,
    /// Requests that were answered without a handler having run.
    pub refused: u64,
    /// Requests whose client went away before it was answered.
    pub lost: u64,
    /// Sessions that were closed because the client broke the protocol.
    pub poisoned: u64,
    /// Sessions that were closed because the client took nothing for too long of what was published for it.
    pub unread: u64,
    /// How often a client was rung: each is one system call.
    pub rings: u64,
    /// How often the reactor slept.
    pub parks: u64,
    /// What the reactor waits with, and why not with what was asked for.
    pub backend: InUse,
}

impl ServerStats {
    /// Requests taken and not yet answered.
    pub fn in_flight(&self) -> u64 {
        self.accepted - self.answered - self.refused - self.lost
    }
}
