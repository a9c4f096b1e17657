//! The state shared by the tasks that use a session and its driver.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use bellwire_core::Instant;
use bellwire_core::call::Ticket;
use bellwire_core::drive::Look;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::Mutex as Line;
use tokio::task::AbortHandle;

use super::waiters::{Asked, Waiters};
use crate::session::{ArrivedBatch, Packed, Replied};
use crate::transport::clock;
use crate::{Backpressure, CallError, Executed, Service, Session};

/// Answers that the driver distributes before other tasks have their turn.
const MOST_PER_TURN: usize = 64;
/// Calls in a row that were alone in flight before a task looks for the answer itself.
const ALONE: u32 = 16;
/// Of such calls, one in so many waits for the driver: others have their turn, and can be noticed.
const YIELD_EVERY: u32 = 64;
/// How many requests are published together, at the latest in the driver's next turn.
const MOST_UNPUBLISHED: u32 = 8;
/// Looks of such a task before it gives other threads the session.
const LOOKS: u32 = 4;
/// Steps without sleep after which tasks that wait set their timers: about a millisecond, unless answers keep coming.
const STEPS_BEFORE_TIMERS: u32 = 256;

pub(super) struct Shared<S: Service> {
    state: Mutex<State<S>>,
    /// The queue of tasks that found the lane full; the first one waits for room.
    pub(super) line: Line<()>,
    pub(super) driver: OnceLock<AbortHandle>,
    /// The runtime of the driver.
    runtime: Id,
    /// Whether a driver that spins is woken by the next request. Otherwise, it is polled again when its thread has nothing
    /// else to run: in a runtime of several threads, it would get ahead of tasks that have something to send.
    wakes_by_request: bool,
}

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
    driver: Option<Waker>,
    /// Whether this end looks by itself instead of being rung. The driver is polled again and again meanwhile.
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

/// An answer, and the ticket of its request.
type Taken<R> = Result<Option<(Ticket, Result<R, CallError>)>, CallError>;

impl<S: Service> Kind<S, S::Response> {
    pub(super) const CALL: Self =
        Self { waiters: |state| &mut state.calls, take: Session::try_reply };
}

impl<S: Service> Kind<S, ArrivedBatch> {
    pub(super) const BATCH: Self =
        Self { waiters: |state| &mut state.batches, take: Session::try_arrived_batch };
}

impl<S: Service, R> Clone for Kind<S, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Service, R> Copy for Kind<S, R> {}

/// The driver's next step.
pub(super) enum Step {
    Again,
    /// Look again and again for answers, and step when [`State::look`] says so.
    Look,
    /// Let other tasks run, then step again.
    Yield,
    Sleep,
    /// This system lacks a resource to continue reading: retry later.
    Pause,
    Over,
}

/// What a task learns that polls for its answer.
pub(super) enum Polled<R> {
    Answered(Result<R, CallError>),
    /// It is woken when there is an answer, or when it should set a timer.
    Waits,
    /// It is woken when there is an answer, and has to set a timer.
    NeedsTimer,
}

impl<S: Service> Shared<S> {
    pub(super) fn new(session: Session<S>, runtime: &Handle) -> Self {
        let state = State {
            session,
            calls: Waiters::default(),
            batches: Waiters::default(),
            in_line: 0,
            room: None,
            flushes: Vec::new(),
            next_flush: 0,
            driver: None,
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
        };
        let (line, driver, id) = (Line::new(()), OnceLock::new(), runtime.id());
        let wakes_by_request = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self { state: Mutex::new(state), line, driver, runtime: id, wakes_by_request }
    }

    /// Returns whether this is a task of the driver's runtime. Nobody else can rely on the driver for anything while its
    /// runtime stands still.
    fn is_driven(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime)
    }

    /// Returns the answer if it has arrived; otherwise `waker` is woken when it does. A task whose call is the only one in
    /// flight looks for the answer itself for a moment, which takes no switch between tasks.
    pub(super) fn poll_answer<R>(
        &self,
        kind: Kind<S, R>,
        ticket: Ticket,
        waker: &Waker,
        is_timed: bool,
    ) -> Polled<R> {
        let (mut state, mut woken) = (self.lock(), Vec::new());
        while state.looks_alone() {
            let found = state.look_for(kind, ticket, &mut woken);
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
            Some(answer) => Polled::Answered(answer),
            None if is_timed => Polled::NeedsTimer,
            None => {
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
    /// of `tail` from the cache of the peer, which looks at it again and again.
    pub(super) fn try_begin(
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
        let ticket = state.session.try_write(request)?;
        state.count_sent(true);
        state.calls.expect(ticket);
        state.calls.ask(ticket, waker, false);
        if state.written == 0 {
            state.wake_driver();
        }
        if state.written % MOST_UNPUBLISHED == 0 {
            state.session.publish();
        }
        state.written += 1;
        Some(ticket)
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
        if let Some(driver) = self.driver.get() {
            if self.lock().session.link().is_here() {
                driver.abort();
            }
        }
    }
}

impl<S: Service> State<S> {
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

    /// Sends a request if there is room for it now.
    pub(super) fn send(
        &mut self,
        request: &S::Request,
        backpressure: Backpressure,
    ) -> Result<Ticket, CallError> {
        self.may_send()?;
        let was_waiting = self.session.is_waiting();
        let mut session = self.session.backpressure(backpressure);
        let ticket = match session.try_send(request) {
            Some(ticket) => ticket,
            None => {
                session.with_encoded(request, |session, bytes| Ok(session.submit_now(bytes)?))?
            }
        };
        drop(session);
        self.calls.expect(ticket);
        self.await_answer(was_waiting);
        Ok(ticket)
    }

    /// Starts to look for the answer to a request that was just sent, or leaves that to the doorbell.
    fn await_answer(&mut self, was_waiting: bool) {
        self.count_sent(was_waiting);
        if self.spins {
            return;
        }
        // A task that waits for room, or until something is taken, is rung.
        if self.room.is_none() && self.flushes.is_empty() && self.session.begin_spin() {
            self.look_by_itself();
            self.wake_driver();
        } else if self.waits_since.is_none() {
            self.waits_since = Some(clock::now());
        }
    }

    fn count_sent(&mut self, was_waiting: bool) {
        self.sent = self.sent.wrapping_add(1);
        self.alone = if was_waiting { 0 } else { self.alone.wrapping_add(1) };
    }

    /// From now on, this end looks for answers instead of being rung.
    fn look_by_itself(&mut self) {
        (self.spins, self.waits_since) = (true, None);
        self.session.disarm();
    }

    /// Returns whether the polling task looks for its answer itself, since its call is the only one in flight.
    fn looks_alone(&mut self) -> bool {
        self.spins
            && self.alone >= ALONE
            && self.alone % YIELD_EVERY != 0
            && self.over.is_none()
            && self.session.is_waiting()
            && self.session.begin_spin()
    }

    /// Looks a few times for the answer to the only request in flight, and takes it. Leaves everything else to the driver.
    fn look_for<R>(
        &mut self,
        kind: Kind<S, R>,
        ticket: Ticket,
        woken: &mut Vec<Waker>,
    ) -> Option<Result<R, CallError>> {
        for _ in 0..LOOKS {
            match self.session.look() {
                Look::Again => {
                    std::hint::spin_loop();
                    continue;
                }
                Look::Moved => match (kind.take)(&mut self.session) {
                    Ok(Some((of, answer))) if of == ticket => {
                        (kind.waiters)(self).forget(ticket);
                        self.session.end_spin(true);
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
                Look::Later | Look::RanOut => {}
            }
            self.alone = 0;
            self.wake_driver();
            break;
        }
        None
    }

    /// Sends a batch if there is room for it now.
    pub(super) fn send_batch(
        &mut self,
        packed: &mut Packed,
        backpressure: Backpressure,
    ) -> Result<Ticket, CallError> {
        self.may_send()?;
        let was_waiting = self.session.is_waiting();
        let ticket = self.session.backpressure(backpressure).submit_packed(packed)?;
        self.batches.expect(ticket);
        self.await_answer(was_waiting);
        Ok(ticket)
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
        let position = self.session.last_post()?;
        self.next_flush += 1;
        Some((self.next_flush, position))
    }

    /// Returns how a flush ended; otherwise `waker` is woken when it does.
    pub(super) fn poll_flush(
        &mut self,
        (number, position): (u64, u64),
        waker: &Waker,
    ) -> Option<Result<(), CallError>> {
        if !self.session.link().is_here() {
            return Some(Err(CallError::Forked));
        }
        if self.session.has_taken(position) {
            return Some(Ok(()));
        }
        if self.over.is_some() {
            return Some(Err(self.why_over(Executed::Maybe)));
        }
        match self.flushes.iter_mut().find(|flush| flush.number == number) {
            Some(flush) => flush.waker.clone_from(waker),
            None => self.flushes.push(Flush { number, position, waker: waker.clone() }),
        }
        self.wake_driver();
        None
    }

    /// Forgets a task that waits no longer.
    pub(super) fn end_flush(&mut self, number: u64) {
        self.flushes.retain(|flush| flush.number != number);
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

    fn answer<R>(
        &mut self,
        kind: Kind<S, R>,
        ticket: Ticket,
        waker: &Waker,
        is_timed: bool,
    ) -> Option<Result<R, CallError>> {
        match (kind.waiters)(self).ask(ticket, waker, is_timed) {
            Asked::Waits => None,
            Asked::Answered(answer) => Some(answer),
            Asked::Unknown => Some(Err(self.why_over(Executed::Maybe))),
        }
    }

    /// Abandons an answer.
    pub(super) fn forget<R>(&mut self, kind: Kind<S, R>, ticket: Ticket) {
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
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Looks once for answers, between two steps of the driver.
    pub(super) fn look(&mut self) -> Look {
        let look = self.session.look();
        self.ran_out |= look == Look::RanOut;
        look
    }

    /// Distributes the answers that have arrived, and looks for more or arms the session. Adds the tasks to wake to
    /// `woken`.
    pub(super) fn step(&mut self, driver: &Waker, rung: bool, woken: &mut Vec<Waker>) -> Step {
        if self.over.is_some() {
            return Step::Over;
        }
        self.publish();
        match &mut self.driver {
            Some(known) => known.clone_from(driver),
            none => *none = Some(driver.clone()),
        }
        if rung {
            if let Some(began) = self.waits_since.take() {
                self.session.woke(began);
            }
        }
        let taken = match self.take_answers(woken) {
            Ok(taken) => taken,
            Err(error) => return self.fail(error, woken),
        };
        if taken > 0 {
            woken.extend(self.room.take());
        }
        // What the provider published before it left is read first.
        self.is_departed |= rung && !self.session.is_alive();
        if self.is_departed {
            return match self.take_answers(woken) {
                Ok(0) => {
                    self.session.depart();
                    self.fail(CallError::PeerGone { executed: Executed::Maybe }, woken)
                }
                Ok(_) => Step::Again,
                Err(error) => self.fail(error, woken),
            };
        }
        let session = &self.session;
        self.flushes.retain(|flush| {
            let is_taken = session.has_taken(flush.position);
            woken.extend(is_taken.then(|| flush.waker.clone()));
            !is_taken
        });
        if self.room.is_none() && self.flushes.is_empty() {
            if let Some(step) = self.spin(taken > 0, woken) {
                return step;
            }
        }
        let armed = match self.flushes.iter().map(|flush| flush.position).min() {
            Some(position) => self.session.arm_for_taken(position, self.room.is_some()),
            None if self.room.is_some() => self.session.arm_for_room(),
            None => self.session.arm(),
        };
        match armed {
            Ok(true) => {
                woken.extend(self.room.take());
                Step::Again
            }
            Ok(false) => {
                self.sleep(woken);
                Step::Sleep
            }
            Err(error) => self.fail(error, woken),
        }
    }

    /// Returns what the driver does instead of sleeping, where the spin policy says that answers come soon.
    fn spin(&mut self, has_taken: bool, woken: &mut Vec<Waker>) -> Option<Step> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps % STEPS_BEFORE_TIMERS == 0 {
            self.wake_untimed(woken);
        }
        if !self.session.is_waiting() {
            self.session.end_spin(false);
            // A task that has just got an answer may have the next request.
            let may_send = self.spins && self.sent != self.seen_sent;
            self.seen_sent = self.sent;
            return may_send.then_some(Step::Yield);
        }
        if std::mem::take(&mut self.ran_out) || !self.session.begin_spin() {
            return None;
        }
        if !self.spins {
            self.look_by_itself();
        }
        Some(if has_taken { Step::Yield } else { Step::Look })
    }

    /// From now on, answers are rung for.
    fn sleep(&mut self, woken: &mut Vec<Waker>) {
        self.session.end_spin(false);
        (self.ran_out, self.steps) = (false, 0);
        if std::mem::take(&mut self.spins) {
            self.wake_untimed(woken);
        }
        if self.waits_since.is_none() && self.session.is_waiting() {
            self.waits_since = Some(clock::now());
        }
    }

    fn wake_untimed(&self, woken: &mut Vec<Waker>) {
        self.calls.wake_untimed(woken);
        self.batches.wake_untimed(woken);
    }

    fn take_answers(&mut self, woken: &mut Vec<Waker>) -> Result<usize, CallError> {
        let mut taken = 0;
        while taken < MOST_PER_TURN {
            let before = taken;
            let calls = &mut self.calls;
            match self.session.try_reply_to(|of, response| calls.answer(of, response, woken))? {
                Replied::Nothing => {}
                Replied::Passed => taken += 1,
                Replied::Other(ticket, answer) => {
                    self.calls.hand_on(ticket, answer, woken);
                    taken += 1;
                }
            }
            if self.batches.is_any() {
                if let Some((ticket, answer)) = self.session.try_arrived_batch()? {
                    self.batches.hand_on(ticket, answer, woken);
                    taken += 1;
                }
            }
            if taken == before {
                break;
            }
        }
        if taken > 0 {
            self.session.end_spin(true);
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
        woken.extend(self.flushes.drain(..).map(|flush| flush.waker));
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
