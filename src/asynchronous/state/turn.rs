//! The driver's turn: it publishes, distributes answers, and polls for more or sleeps.

use std::task::Waker;

use bellwire_core::call::Ticket;
use bellwire_core::drive::SpinPoll;

use super::{Kind, State};
use crate::session::Replied;
use crate::transport::{Os, prelude::*};
use crate::{CallError, Executed, Service};

/// Answers that the driver distributes before other tasks have their turn.
const MAX_PER_TURN: usize = 64;
/// Steps without sleep after which tasks that wait set their timers: about a millisecond, unless answers keep coming.
const STEPS_BEFORE_TIMERS: u32 = 256;

/// The driver's next step.
pub(in crate::asynchronous) enum Step {
    Again,
    /// Poll again and again for answers, and step when [`State::poll_once`] says so.
    Poll,
    /// Let other tasks run, then step again.
    Yield,
    Sleep,
    /// This system lacks a resource to continue reading: retry later.
    Pause,
    Over,
}

impl<S: Service> State<S> {
    /// Polls once for answers, between two steps of the driver.
    pub(in crate::asynchronous) fn poll_once(&mut self) -> SpinPoll {
        let found = self.session.driver.poll_once();
        self.ran_out |= found == SpinPoll::RanOut;
        found
    }

    /// Distributes the answers that have arrived, and polls for more or arms the session. Adds the tasks to wake to
    /// `woken`.
    pub(in crate::asynchronous) fn step(
        &mut self,
        waker: &Waker,
        rung: bool,
        woken: &mut Vec<Waker>,
    ) -> Step {
        if self.over.is_some() {
            return Step::Over;
        }
        self.publish();
        match &mut self.driver_waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        if rung {
            if let Some(began) = self.waits_since.take() {
                self.session.driver.woke(began);
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
        self.is_departed |= rung && !self.session.is_open();
        if self.is_departed {
            return match self.take_answers(woken) {
                Ok(0) => {
                    self.session.driver.end_mut().peer_gone();
                    self.fail(CallError::PeerGone { executed: Executed::Maybe }, woken)
                }
                Ok(_) => Step::Again,
                Err(error) => self.fail(error, woken),
            };
        }
        let session = &self.session;
        self.flushes.retain(|flush| {
            let is_taken = session.driver.has_taken(flush.position);
            woken.extend(is_taken.then(|| flush.waker.clone()));
            !is_taken
        });
        if self.room.is_none() && self.flushes.is_empty() {
            if let Some(step) = self.spin(taken > 0, woken) {
                return step;
            }
        }
        let armed = match self.flushes.iter().map(|flush| flush.position).min() {
            Some(position) => self.session.arm_for_consumed(position, self.room.is_some()),
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
            self.session.driver.end_spin(false);
            // A task that has just got an answer may have the next request.
            let may_send = self.spins && self.sent != self.seen_sent;
            self.seen_sent = self.sent;
            return may_send.then_some(Step::Yield);
        }
        if std::mem::take(&mut self.ran_out) || !self.session.driver.begin_spin() {
            return None;
        }
        if !self.spins {
            self.start_polling();
        }
        Some(if has_taken { Step::Yield } else { Step::Poll })
    }

    /// From now on, answers are rung for.
    fn sleep(&mut self, woken: &mut Vec<Waker>) {
        self.session.driver.end_spin(false);
        (self.ran_out, self.steps) = (false, 0);
        if std::mem::take(&mut self.spins) {
            self.wake_untimed(woken);
        }
        if self.waits_since.is_none() && self.session.is_waiting() {
            self.waits_since = Some(Os::now());
        }
    }

    fn wake_untimed(&self, woken: &mut Vec<Waker>) {
        self.calls.wake_untimed(woken);
        self.batches.wake_untimed(woken);
    }

    fn take_answers(&mut self, woken: &mut Vec<Waker>) -> Result<usize, CallError> {
        let mut taken = 0;
        while taken < MAX_PER_TURN {
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
            self.session.driver.end_spin(true);
        }
        Ok(taken)
    }

    /// Ends the waiting calls with one error.
    pub(super) fn fail(&mut self, error: CallError, woken: &mut Vec<Waker>) -> Step {
        self.fail_all(Kind::CALL, &error, woken);
        self.fail_all(Kind::BATCH, &error, woken);
        woken.extend(self.room.take());
        if let CallError::Short { .. } = error {
            return Step::Pause;
        }
        woken.extend(self.flushes.drain(..).map(|flush| flush.waker));
        self.over = Some(error);
        Step::Over
    }

    fn fail_all<R>(&mut self, kind: &Kind<S, R>, error: &CallError, woken: &mut Vec<Waker>) {
        let mut waiting: Vec<Ticket> = (kind.waiters)(self).waiting().collect();
        waiting.sort_unstable();
        for ticket in waiting {
            let error = self.session.fail(ticket, error);
            (kind.waiters)(self).hand_on(ticket, Err(error), woken);
        }
    }

    /// Handles the end of the runtime or of the driver's task.
    pub(in crate::asynchronous) fn abort_all(&mut self, woken: &mut Vec<Waker>) {
        if self.over.is_none() {
            self.fail(CallError::Cancelled { executed: Executed::Maybe }, woken);
        }
    }
}
