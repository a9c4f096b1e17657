//! The state shared by the tasks that use a session and its driver.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use bellwire_core::call::Ticket;
use tokio::sync::Mutex as Line;
use tokio::task::AbortHandle;

use super::waiters::{Asked, Waiters};
use crate::session::{ArrivedBatch, Packed};
use crate::{Backpressure, CallError, Executed, Service, Session};

/// Answers that the driver distributes before other tasks have their turn.
const MOST_PER_TURN: usize = 64;

pub(super) struct Shared<S: Service> {
    state: Mutex<State<S>>,
    /// The queue of tasks that found the lane full; the first one waits for room.
    pub(super) line: Line<()>,
    pub(super) driver: OnceLock<AbortHandle>,
}

pub(super) struct State<S: Service> {
    pub(super) session: Session<S>,
    pub(super) calls: Waiters<S::Response>,
    pub(super) batches: Waiters<ArrivedBatch>,
    pub(super) in_line: usize,
    /// The task that waits for room.
    room: Option<Waker>,
    driver: Option<Waker>,
    /// Whether the provider is gone; what it published before is still taken.
    is_departed: bool,
    /// Why answers are no longer taken.
    over: Option<CallError>,
}

/// Selects the waiters: of calls, or of batches.
pub(super) type Of<S, R> = fn(&mut State<S>) -> &mut Waiters<R>;

/// The driver's next step.
pub(super) enum Step {
    Again,
    Sleep,
    /// This system lacks a resource to continue reading: retry later.
    Pause,
    Over,
}

impl<S: Service> Shared<S> {
    pub(super) fn new(session: Session<S>) -> Self {
        let state = State {
            session,
            calls: Waiters::default(),
            batches: Waiters::default(),
            in_line: 0,
            room: None,
            driver: None,
            is_departed: false,
            over: None,
        };
        Self { state: Mutex::new(state), line: Line::new(()), driver: OnceLock::new() }
    }

    /// No code that holds this lock can panic during a change, except decoding of an answer, which has already been
    /// taken by then.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Service> Drop for Shared<S> {
    /// The session closes the lane; its driver has no more users.
    fn drop(&mut self) {
        // A forked child has none of its parent's threads, and so no runtime.
        if let Some(driver) = self.driver.get()
            && self.lock().session.link().is_here()
        {
            driver.abort();
        }
    }
}

impl<S: Service> State<S> {
    /// Sends a request if there is room for it now.
    pub(super) fn send(
        &mut self,
        request: &S::Request,
        backpressure: Backpressure,
    ) -> Result<Ticket, CallError> {
        self.may_send()?;
        let mut session = self.session.backpressure(backpressure);
        let ticket = match session.try_send(request) {
            Some(ticket) => ticket,
            None => {
                session.with_encoded(request, |session, bytes| Ok(session.submit_now(bytes)?))?
            }
        };
        drop(session);
        self.calls.expect(ticket);
        Ok(ticket)
    }

    /// Sends a batch if there is room for it now.
    pub(super) fn send_batch(
        &mut self,
        packed: &mut Packed,
        backpressure: Backpressure,
    ) -> Result<Ticket, CallError> {
        self.may_send()?;
        let ticket = self.session.backpressure(backpressure).submit_packed(packed)?;
        self.batches.expect(ticket);
        Ok(ticket)
    }

    fn may_send(&self) -> Result<(), CallError> {
        if !self.session.link().is_here() {
            return Err(CallError::Forked);
        }
        if self.over.is_some() { Err(self.why_over(Executed::No)) } else { Ok(()) }
    }

    /// Returns why nothing can be sent or answered any more.
    fn why_over(&self, executed: Executed) -> CallError {
        match self.over {
            Some(CallError::ProtocolViolation(fault)) => CallError::ProtocolViolation(fault),
            Some(CallError::Unread { .. }) => CallError::Unread { executed },
            Some(CallError::PeerGone { .. }) => CallError::PeerGone { executed },
            _ => CallError::Cancelled { executed },
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Returns the answer if it has arrived; otherwise `waker` is woken when it does.
    pub(super) fn answer<R>(
        &mut self,
        of: Of<S, R>,
        ticket: Ticket,
        waker: &Waker,
    ) -> Option<Result<R, CallError>> {
        match of(self).ask(ticket, waker) {
            Asked::Waits => None,
            Asked::Answered(answer) => Some(answer),
            Asked::Unknown => Some(Err(self.why_over(Executed::Maybe))),
        }
    }

    /// Abandons an answer.
    pub(super) fn forget<R>(&mut self, of: Of<S, R>, ticket: Ticket) {
        if of(self).forget(ticket) {
            self.session.abandon(ticket);
        }
    }

    /// Registers `waker` to be woken when there may be room.
    pub(super) fn wait_for_room(&mut self, waker: &Waker) {
        self.room = Some(waker.clone());
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Distributes the answers that have arrived, and arms the session for more. Adds the tasks to wake to `woken`.
    pub(super) fn step(&mut self, driver: &Waker, rung: bool, woken: &mut Vec<Waker>) -> Step {
        if self.over.is_some() {
            return Step::Over;
        }
        match &mut self.driver {
            Some(known) => known.clone_from(driver),
            none => *none = Some(driver.clone()),
        }
        match self.take_answers(woken) {
            Ok(0) => {}
            Ok(_) => woken.extend(self.room.take()),
            Err(error) => return self.fail(error, woken),
        }
        // What the provider published before it left is read first.
        self.is_departed |= rung && !self.session.is_alive();
        if self.is_departed {
            return match self.take_answers(woken) {
                Ok(0) => self.fail(CallError::PeerGone { executed: Executed::Maybe }, woken),
                Ok(_) => Step::Again,
                Err(error) => self.fail(error, woken),
            };
        }
        let armed = match self.room {
            Some(_) => self.session.arm_for_room(),
            None => self.session.arm(),
        };
        match armed {
            Ok(true) => {
                woken.extend(self.room.take());
                Step::Again
            }
            Ok(false) => Step::Sleep,
            Err(error) => self.fail(error, woken),
        }
    }

    fn take_answers(&mut self, woken: &mut Vec<Waker>) -> Result<usize, CallError> {
        let mut taken = 0;
        while taken < MOST_PER_TURN {
            let before = taken;
            if let Some((ticket, answer)) = self.session.try_reply()? {
                self.calls.hand_on(ticket, answer, woken);
                taken += 1;
            }
            if self.batches.is_any()
                && let Some((ticket, answer)) = self.session.try_arrived_batch()?
            {
                self.batches.hand_on(ticket, answer, woken);
                taken += 1;
            }
            if taken == before {
                break;
            }
        }
        Ok(taken)
    }

    /// Ends the waiting calls with one error.
    fn fail(&mut self, error: CallError, woken: &mut Vec<Waker>) -> Step {
        let mut waiting: Vec<Ticket> = self.calls.waiting().chain(self.batches.waiting()).collect();
        waiting.sort_unstable();
        for ticket in waiting {
            let error = self.session.fail(ticket, &error);
            if let Some(error) = self.calls.fail(ticket, error, woken) {
                self.batches.fail(ticket, error, woken);
            }
        }
        woken.extend(self.room.take());
        if let CallError::Short { .. } = error {
            return Step::Pause;
        }
        self.over = Some(error);
        Step::Over
    }

    /// Handles the end of the runtime or of the driver's task.
    pub(super) fn desert(&mut self, woken: &mut Vec<Waker>) {
        if self.over.is_none() {
            self.fail(CallError::Cancelled { executed: Executed::Maybe }, woken);
        }
    }
}
