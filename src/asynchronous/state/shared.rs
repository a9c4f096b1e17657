//! The state behind its lock, and what is done without it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use bellwire_core::call::Ticket;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::Mutex as Line;
use tokio::task::AbortHandle;

use super::{Kind, MAX_UNPUBLISHED, State};
use crate::{Backpressure, CallError, Service, Session};

pub(in crate::asynchronous) struct Shared<S: Service> {
    state: Mutex<State<S>>,
    /// The queue of tasks that found the lane full; the first one waits for room.
    pub(in crate::asynchronous) line: Line<()>,
    pub(in crate::asynchronous) driver: OnceLock<AbortHandle>,
    /// The runtime of the driver.
    runtime: Id,
    /// Whether a driver that spins is woken by the next request. Otherwise, it is polled again when its thread has nothing
    /// else to run: in a runtime of several threads, it would get ahead of tasks that have something to send.
    wakes_by_request: bool,
}

/// What a task learns that polls for its answer.
pub(in crate::asynchronous) enum Polled<R> {
    Answered(Result<R, CallError>),
    /// It is woken when there is an answer, or when it should set a timer.
    Waits,
    /// It is woken when there is an answer, and has to set a timer.
    NeedsTimer,
}

impl<S: Service> Shared<S> {
    pub(in crate::asynchronous) fn new(session: Session<S>, runtime: &Handle) -> Self {
        let (line, driver, id) = (Line::new(()), OnceLock::new(), runtime.id());
        let wakes_by_request = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self { state: Mutex::new(State::new(session)), line, driver, runtime: id, wakes_by_request }
    }

    /// Returns whether this is a task of the driver's runtime. Nobody else can rely on the driver for anything while its
    /// runtime stands still.
    fn is_driven(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime)
    }

    /// Returns the answer if it has arrived; otherwise `waker` is woken when it does. A task whose call is the only one in
    /// flight polls for the answer itself for a moment, which takes no switch between tasks.
    pub(in crate::asynchronous) fn poll_answer<R>(
        &self,
        kind: &Kind<S, R>,
        ticket: Ticket,
        waker: &Waker,
        is_timed: bool,
    ) -> Polled<R> {
        let (mut state, mut woken) = (self.lock(), Vec::new());
        while state.polls_alone() {
            let found = state.poll_for(kind, ticket, &mut woken);
            drop(state);
            woken.drain(..).for_each(Waker::wake);
            if let Some(answer) = found {
                return Polled::Answered(answer);
            }
            // Other threads had their turn.
            state = self.lock();
        }
        let is_timed = is_timed || !state.spins || !self.is_driven();
        match state.answer(kind, ticket, waker, is_timed) {
            Poll::Ready(answer) => Polled::Answered(answer),
            Poll::Pending if is_timed => Polled::NeedsTimer,
            Poll::Pending => {
                if self.wakes_by_request {
                    state.wake_driver();
                }
                Polled::Waits
            }
        }
    }

    /// Sends a call, and waits for its answer, if that takes nothing but a record in the lane and the driver is about to have
    /// its turn: the fast path of sending it and [`Shared::poll_answer`]. Returns `None`, and sends nothing, otherwise.
    ///
    /// The first one since the driver's turn is published at once, and those after it together: each publication takes the line
    /// of `tail` from the cache of the peer, which polls it.
    pub(in crate::asynchronous) fn try_begin(
        &self,
        request: &S::Request,
        backpressure: Backpressure,
        waker: &Waker,
    ) -> Option<Ticket> {
        let mut state = self.lock();
        let is_soon = state.spins
            && self.wakes_by_request
            && state.may_pass_line(backpressure)
            && state.may_send().is_ok()
            && state.session.is_waiting()
            && self.is_driven();
        if !is_soon {
            return None;
        }
        let ticket = state.session.write_free(request)?;
        state.count_sent(true);
        state.calls.expect(ticket);
        state.calls.ask(ticket, waker, false);
        if state.written == 0 {
            state.wake_driver();
        }
        if state.written % MAX_UNPUBLISHED == 0 {
            state.session.publish();
        }
        state.written += 1;
        Some(ticket)
    }

    /// No code that holds this lock can panic during a change, except decoding of an answer, which has already been
    /// taken by then.
    pub(in crate::asynchronous) fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Service> Drop for Shared<S> {
    /// The session closes the lane; its driver has no more users.
    fn drop(&mut self) {
        // A forked child has none of its parent's threads, and so no runtime.
        if let Some(driver) = self.driver.get() {
            if self.lock().session.link().is_owner_process() {
                driver.abort();
            }
        }
    }
}
