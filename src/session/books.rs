//! What became of each request of a session: counted, and told to observers and tracers.

use bellwire_core::call::Ticket;
use bellwire_core::counters::{CallCounts, Outcome};
use bellwire_core::drive::Drive;
use bellwire_core::wire::Latency;
use bellwire_core::{Port, probes};

use super::Session;
use crate::transport::link::Link;
use crate::{CallError, Service, SessionStats};

impl<S: Service> Session<S> {
    /// Counters of this end.
    pub fn stats(&self) -> SessionStats {
        let [requests, answers] = self.drive.lane_stats();
        let CallCounts { made, answered, refused, failed, errors, late, dropped, unsent } =
            self.calls.counts();
        SessionStats {
            made,
            answered,
            refused,
            failed,
            // What was asked for ahead is booked when somebody comes for it.
            in_flight: (self.drive.in_flight() + self.stash.len())
                .saturating_sub(usize::from(self.is_asked_ahead())) as u64,
            errors,
            late,
            dropped,
            unsent,
            rings: self.drive.rings(),
            parks: self.drive.parks(),
            doorbell: self.drive.port().doorbell(),
            requests,
            answers,
        }
    }

    /// How long calls took, of those that were timed: each after a sleep, one in 64 of the others, which then counts for
    /// 64.
    pub fn latency(&self) -> Latency {
        self.calls.latency()
    }

    /// A request was written.
    #[inline]
    pub(super) fn sent(&mut self, ticket: Ticket) {
        let (parks, port) = (self.drive.parks(), self.drive.port());
        self.calls.sent(port.own(), ticket.id(), parks, || port.now());
        if self.drive.lane_epoch().number != self.noted {
            self.note_size();
        }
    }

    /// A request ended, for good.
    #[inline]
    pub(super) fn ended(&mut self, ticket: Ticket, outcome: Outcome) {
        let port = self.drive.port();
        self.calls.ended(port.own(), ticket.id(), outcome, || port.now());
    }

    /// An answer came to a request that was waiting for it: what it was good for.
    #[inline]
    pub(super) fn book_answer(&mut self, ticket: Ticket, failed: Option<&CallError>) {
        let outcome = match failed {
            None => Outcome::Answered,
            Some(error) => {
                tell_failed(&self.drive, ticket.id(), error);
                match error {
                    CallError::Handler { .. } => Outcome::Error,
                    CallError::Declined { status } => (*status).into(),
                    _ => Outcome::Unused,
                }
            }
        };
        self.ended(ticket, outcome);
    }

    /// A request was given up: no answer has come.
    #[cold]
    pub(super) fn book_given_up(&mut self, ticket: Ticket, error: &CallError) {
        tell_failed(&self.drive, ticket.id(), error);
        let is_late = matches!(error, CallError::Deadline { .. });
        self.ended(ticket, if is_late { Outcome::Late } else { Outcome::Failed });
    }

    /// A call ended before its request was sent.
    #[cold]
    pub(crate) fn not_sent(&mut self, error: &CallError) {
        tell_failed(&self.drive, 0, error);
        self.calls.unsent(self.drive.port().own());
    }

    /// Answers may have come that nobody waited for.
    #[inline]
    pub(super) fn note_dropped(&mut self) {
        let dropped = self.drive.take_dropped();
        self.calls.dropped(self.drive.port().own(), dropped);
    }
}

/// Tells a tracer of a call that failed; `sequence` is 0 for one that was not sent.
#[cold]
pub(super) fn tell_failed(drive: &Drive<Link>, sequence: u64, error: &CallError) {
    let kind = error.kind().code().into();
    probes::call_failed(drive.trace().session(), sequence, kind);
}
