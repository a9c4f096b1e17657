//! Counts the outcome of each request of a session, and reports it to observers and tracers.

use bellwire_core::Port;
use bellwire_core::call::Ticket;
use bellwire_core::counters::{CallCounts, Outcome};
use bellwire_core::wire::Latency;
use bellwire_probes as probes;

use super::Session;
use crate::connect::Driver;
use crate::{CallError, Service, SessionStats};

impl<S: Service> Session<S> {
    /// Returns the counters of this end.
    pub fn stats(&self) -> SessionStats {
        let [requests, answers] = self.driver.lane_stats();
        let CallCounts { made, answered, refused, failed, errors, late, dropped, unsent, posted } =
            self.calls.counts();
        let unconsumed = self.driver.unconsumed_posts() as u64;
        let posts_lost = if self.driver.ended().is_some() { unconsumed } else { 0 };
        SessionStats {
            posts_taken: posted - unconsumed,
            posts_lost,
            made,
            answered,
            refused,
            failed,
            // Nobody waits for the answer to a request to be rung.
            in_flight: (self.driver.in_flight() + self.pending_replies.len())
                .saturating_sub(usize::from(self.publication_requests.long_poll.is_some()))
                as u64
                + (unconsumed - posts_lost),
            errors,
            late,
            dropped,
            unsent,
            rings: self.driver.end().rings(),
            waits: self.driver.waits(),
            parks: self.driver.parks(),
            doorbell: self.driver.port().doorbell,
            requests,
            answers,
        }
    }

    /// Returns the latencies of the calls that were timed: every call that slept, and one in 64 of the others, which
    /// counts as 64.
    pub fn latency(&self) -> Latency {
        self.calls.latency()
    }

    /// Counts a written request.
    #[inline]
    pub(super) fn sent(&mut self, ticket: Ticket, one_way: bool) {
        let (parks, port) = (self.driver.parks(), self.driver.port());
        if one_way {
            self.calls.posted(port.own());
        } else {
            self.calls.sent(port.own(), ticket.id(), parks, || port.now());
        }
        if self.driver.end().lanes().epoch().number != self.recorded_epoch {
            self.record_size();
        }
    }

    /// Counts a finished request.
    #[inline]
    pub(super) fn ended(&mut self, ticket: Ticket, outcome: Outcome) {
        let port = self.driver.port();
        self.calls.ended(port.own(), ticket.id(), outcome, || port.now());
    }

    /// Counts an answer to a waiting request, by its outcome.
    #[inline]
    pub(super) fn count_answer(&mut self, ticket: Ticket, failed: Option<&CallError>) {
        let outcome = match failed {
            None => Outcome::Answered,
            Some(error) => {
                trace_failed(&self.driver, ticket.id(), error);
                match error {
                    CallError::Handler { .. } => Outcome::Error,
                    CallError::Declined { status } => (*status).into(),
                    _ => Outcome::Unused,
                }
            }
        };
        self.ended(ticket, outcome);
    }

    /// Counts an abandoned request without an answer.
    #[cold]
    pub(super) fn record_given_up(&mut self, ticket: Ticket, error: &CallError) {
        trace_failed(&self.driver, ticket.id(), error);
        let is_late = matches!(error, CallError::Deadline { .. });
        self.ended(ticket, if is_late { Outcome::Late } else { Outcome::Failed });
    }

    /// Counts a call that ended before its request was sent.
    #[cold]
    pub(crate) fn not_sent(&mut self, error: &CallError) {
        trace_failed(&self.driver, 0, error);
        self.calls.unsent(self.driver.port().own());
    }

    /// Counts answers that arrived for abandoned requests.
    #[inline]
    pub(super) fn note_dropped(&mut self) {
        let dropped = self.driver.take_dropped();
        self.calls.dropped(self.driver.port().own(), dropped);
    }
}

/// Traces a failed call; `sequence` is 0 for a request that was not sent. "Not now" is an answer that a caller of
/// [`submit`](super::Session::submit) expects, and no failure.
#[cold]
pub(super) fn trace_failed(driver: &Driver, sequence: u64, error: &CallError) {
    if matches!(error, CallError::WouldBlock) {
        return;
    }
    let kind = error.kind().code().into();
    probes::call_failed(driver.end().observer().session(), sequence, kind);
}
