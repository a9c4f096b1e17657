//! The state shared by the tasks that use a session and its driver.

mod shared;
mod turn;

use std::task::{Poll, Waker};

use bellwire_core::Instant;
use bellwire_core::call::Ticket;
use bellwire_core::drive::SpinPoll;

use super::waiters::Waiters;
use crate::session::{Answered, ArrivedBatch};
use crate::transport::{Os, prelude::*};
use crate::{Backpressure, CallError, Executed, Service, Session};
pub(super) use shared::{Polled, Shared};
pub(super) use turn::Step;

/// Calls in a row that were alone in flight before a task polls for the answer itself.
const ALONE: u32 = 16;
/// Of such calls, one in so many waits for the driver: others have their turn, and can be noticed.
const YIELD_EVERY: u32 = 64;
/// How many requests are published together, at the latest in the driver's next turn.
const MAX_UNPUBLISHED: u32 = 8;
/// Polls of such a task before it gives other threads the session.
const POLLS: u32 = 4;

pub(super) struct State<S: Service> {
    pub(super) session: Session<S>,
    pub(super) calls: Waiters<S::Response>,
    pub(super) batches: Waiters<ArrivedBatch>,
    pub(super) in_line: usize,
    /// The task that waits for room.
    room: Option<Waker>,
    /// The tasks that wait until what was posted is taken.
    flushes: Vec<Flush>,
    /// The number of the next one.
    next_flush: u64,
    driver_waker: Option<Waker>,
    /// Whether this end polls instead of being rung. The driver is polled again and again meanwhile.
    spins: bool,
    /// Whether the last spin was in vain: the driver sleeps now.
    ran_out: bool,
    /// Requests sent, and how many there were at the driver's last step without any in flight.
    sent: u64,
    seen_sent: u64,
    /// Requests that were written since the driver's last turn. Its next one publishes those that are not yet.
    written: u32,
    /// Steps of the driver since it slept.
    steps: u32,
    /// Calls in a row that were sent while no other was in flight.
    alone: u32,
    /// Since when requests wait for an answer that will be rung for.
    waits_since: Option<Instant>,
    /// Whether the provider is gone; what it published before is still taken.
    is_departed: bool,
    /// Why answers are no longer taken.
    over: Option<CallError>,
}

/// A task that waits until everything before a position is taken.
struct Flush {
    number: u64,
    position: u64,
    waker: Waker,
}

/// What a task waits for: the answer to a call, or to a batch.
pub(super) struct Kind<S: Service, R> {
    waiters: fn(&mut State<S>) -> &mut Waiters<R>,
    /// Takes the next one that has arrived.
    take: fn(&mut Session<S>) -> Taken<R>,
}

type Taken<R> = Result<Option<Answered<R>>, CallError>;

impl<S: Service> Kind<S, S::Response> {
    pub(super) const CALL: &'static Self =
        &Self { waiters: |state| &mut state.calls, take: Session::try_reply };
}

impl<S: Service> Kind<S, ArrivedBatch> {
    pub(super) const BATCH: &'static Self =
        &Self { waiters: |state| &mut state.batches, take: Session::try_arrived_batch };
}

impl<S: Service> State<S> {
    fn new(session: Session<S>) -> Self {
        Self {
            session,
            calls: Waiters::default(),
            batches: Waiters::default(),
            in_line: 0,
            room: None,
            flushes: Vec::new(),
            next_flush: 0,
            driver_waker: None,
            spins: false,
            ran_out: false,
            sent: 0,
            seen_sent: 0,
            written: 0,
            steps: 0,
            alone: 0,
            waits_since: None,
            is_departed: false,
            over: None,
        }
    }

    /// Returns whether no task waits for room, or growing makes some.
    pub(super) fn may_pass_line(&self, backpressure: Backpressure) -> bool {
        self.in_line == 0 || backpressure == Backpressure::Grow
    }

    /// Publishes the requests that were only written.
    pub(super) fn publish(&mut self) {
        if std::mem::take(&mut self.written) > 1 {
            self.session.publish();
        }
    }

    /// Sends a call or a batch if there is room for it now.
    pub(super) fn send<R>(
        &mut self,
        kind: &Kind<S, R>,
        backpressure: Backpressure,
        send: impl FnOnce(&mut Session<S>) -> Result<Ticket, CallError>,
    ) -> Result<Ticket, CallError> {
        self.may_send()?;
        let was_waiting = self.session.is_waiting();
        let ticket = send(&mut self.session.backpressure(backpressure))?;
        (kind.waiters)(self).expect(ticket);
        self.await_answer(was_waiting);
        Ok(ticket)
    }

    /// Starts to poll for the answer to a request that was just sent, or leaves that to the doorbell.
    fn await_answer(&mut self, was_waiting: bool) {
        self.count_sent(was_waiting);
        if self.spins {
            return;
        }
        // A task that waits for room, or until something is taken, is rung.
        if self.room.is_none() && self.flushes.is_empty() && self.session.driver.begin_spin() {
            self.start_polling();
            self.wake_driver();
        } else if self.waits_since.is_none() {
            self.waits_since = Some(Os::now());
        }
    }

    fn count_sent(&mut self, was_waiting: bool) {
        self.sent = self.sent.wrapping_add(1);
        self.alone = if was_waiting { 0 } else { self.alone.wrapping_add(1) };
    }

    /// From now on, this end polls for answers instead of being rung.
    fn start_polling(&mut self) {
        (self.spins, self.waits_since) = (true, None);
        self.session.driver.end().disarm();
    }

    /// Returns whether the waiting task polls for its answer itself, since its call is the only one in flight.
    fn polls_alone(&mut self) -> bool {
        self.spins
            && self.alone >= ALONE
            && self.alone % YIELD_EVERY != 0
            && self.over.is_none()
            && self.session.is_waiting()
            && self.session.driver.begin_spin()
    }

    /// Polls a few times for the answer to the only request in flight, and takes it. Leaves everything else to the driver.
    fn poll_for<R>(
        &mut self,
        kind: &Kind<S, R>,
        ticket: Ticket,
        woken: &mut Vec<Waker>,
    ) -> Option<Result<R, CallError>> {
        for _ in 0..POLLS {
            match self.session.driver.poll_once() {
                SpinPoll::Again => {
                    std::hint::spin_loop();
                    continue;
                }
                SpinPoll::Moved => match (kind.take)(&mut self.session) {
                    Ok(Some((of, answer))) if of == ticket => {
                        (kind.waiters)(self).forget(ticket);
                        self.session.driver.end_spin(true);
                        return Some(answer);
                    }
                    Ok(Some((of, answer))) => {
                        (kind.waiters)(self).hand_on(of, answer, woken);
                        continue;
                    }
                    Ok(None) => {}
                    Err(error) => {
                        self.fail(error, woken);
                    }
                },
                SpinPoll::Later | SpinPoll::RanOut => {}
            }
            self.alone = 0;
            self.wake_driver();
            break;
        }
        None
    }

    /// Posts something if there is room for it now.
    pub(super) fn post(
        &mut self,
        backpressure: Backpressure,
        post: impl FnOnce(&mut Session<S>) -> Result<Ticket, CallError>,
    ) -> Result<Ticket, CallError> {
        self.may_send()?;
        post(&mut self.session.backpressure(backpressure))
    }

    /// Returns a number for a task that waits until everything posted so far is taken, and where that ends; `None` if it is.
    pub(super) fn begin_flush(&mut self) -> Option<(u64, u64)> {
        let position = self.session.driver.last_post_end()?;
        self.next_flush += 1;
        Some((self.next_flush, position))
    }

    /// Returns how a flush ended; otherwise `waker` is woken when it does.
    pub(super) fn poll_flush(
        &mut self,
        (number, position): (u64, u64),
        waker: &Waker,
    ) -> Poll<Result<(), CallError>> {
        self.session.check_owner()?;
        if self.session.driver.has_taken(position) {
            return Poll::Ready(Ok(()));
        }
        if self.over.is_some() {
            return Poll::Ready(Err(self.why_over(Executed::Maybe)));
        }
        match self.flushes.iter_mut().find(|flush| flush.number == number) {
            Some(flush) => flush.waker.clone_from(waker),
            None => self.flushes.push(Flush { number, position, waker: waker.clone() }),
        }
        self.wake_driver();
        Poll::Pending
    }

    /// Forgets a task that waits no longer.
    pub(super) fn end_flush(&mut self, number: u64) {
        self.flushes.retain(|flush| flush.number != number);
    }

    fn may_send(&self) -> Result<(), CallError> {
        self.session.check_owner()?;
        if self.over.is_some() { Err(self.why_over(Executed::No)) } else { Ok(()) }
    }

    /// Returns why nothing can be sent or answered any more.
    fn why_over(&self, executed: Executed) -> CallError {
        match self.over {
            Some(CallError::ProtocolViolation(fault)) => CallError::ProtocolViolation(fault),
            Some(CallError::Closed { reason, .. }) => CallError::Closed { reason, executed },
            Some(CallError::PeerGone { .. }) => CallError::PeerGone { executed },
            _ => CallError::Cancelled { executed },
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    fn answer<R>(
        &mut self,
        kind: &Kind<S, R>,
        ticket: Ticket,
        waker: &Waker,
        is_timed: bool,
    ) -> Poll<Result<R, CallError>> {
        let asked = (kind.waiters)(self).ask(ticket, waker, is_timed);
        asked.unwrap_or_else(|| Poll::Ready(Err(self.why_over(Executed::Maybe))))
    }

    /// Abandons an answer.
    pub(super) fn forget<R>(&mut self, kind: &Kind<S, R>, ticket: Ticket) {
        if (kind.waiters)(self).forget(ticket) {
            self.session.abandon(ticket);
        }
    }

    /// Registers `waker` to be woken when there may be room.
    pub(super) fn wait_for_room(&mut self, waker: &Waker) {
        self.room = Some(waker.clone());
        self.wake_driver();
    }

    fn wake_driver(&self) {
        if let Some(waker) = &self.driver_waker {
            waker.wake_by_ref();
        }
    }
}
