//! The tasks that wait for an answer, by the ticket of their request.

use std::task::Waker;

use bellwire_core::call::Ticket;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::CallError;

/// Calls, or batches, that were sent, and answers that no task has fetched yet.
pub(super) struct Waiters<R>(HashMap<Ticket, Waiting<R>, FixedState>);

/// The state of a sent request.
enum Waiting<R> {
    /// Not polled yet, or polled by this task, which has set a timer or not.
    Asked {
        waker: Option<Waker>,
        is_timed: bool,
    },
    Answered(Result<R, CallError>),
}

/// The result of polling.
pub(super) enum Asked<R> {
    /// The task is woken when there is an answer.
    Waits,
    Answered(Result<R, CallError>),
    /// It does not wait here, or no longer does.
    Unknown,
}

impl<R> Default for Waiters<R> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<R> Waiters<R> {
    pub(super) fn expect(&mut self, ticket: Ticket) {
        self.0.insert(ticket, Waiting::Asked { waker: None, is_timed: false });
    }

    /// Adds the tasks that have no timer to `woken`: each sets its own when it is polled.
    pub(super) fn wake_untimed(&self, woken: &mut Vec<Waker>) {
        let untimed = self.0.values().filter_map(|waiting| match waiting {
            Waiting::Asked { waker, is_timed: false } => waker.clone(),
            _ => None,
        });
        woken.extend(untimed);
    }

    pub(super) fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the tickets without an answer.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Ticket> {
        let waiting = self.0.iter().filter(|(_, of)| matches!(of, Waiting::Asked { .. }));
        waiting.map(|(ticket, _)| *ticket)
    }

    /// Polls for an answer, by a task that has a timer or will set one now (`is_timed`).
    pub(super) fn ask(&mut self, ticket: Ticket, waker: &Waker, is_timed: bool) -> Asked<R> {
        let Entry::Occupied(mut entry) = self.0.entry(ticket) else { return Asked::Unknown };
        if let Waiting::Asked { waker: known, is_timed: timed } = entry.get_mut() {
            *timed |= is_timed;
            match known {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
            return Asked::Waits;
        }
        match entry.remove() {
            Waiting::Answered(answer) => Asked::Answered(answer),
            Waiting::Asked { .. } => Asked::Waits,
        }
    }

    /// Returns whether it had no answer yet.
    pub(super) fn forget(&mut self, ticket: Ticket) -> bool {
        matches!(self.0.remove(&ticket), Some(Waiting::Asked { .. }))
    }

    /// Stores an answer, or drops one that no task waits for. Adds the tasks to wake to `woken`.
    pub(super) fn hand_on(
        &mut self,
        ticket: Ticket,
        answer: Result<R, CallError>,
        woken: &mut Vec<Waker>,
    ) {
        if let Some(waiting) = self.0.get_mut(&ticket) {
            let before = std::mem::replace(waiting, Waiting::Answered(answer));
            if let Waiting::Asked { waker, .. } = before {
                woken.extend(waker);
            }
        }
    }

    /// Like `hand_on` for an error, which is returned if no task here waits for it.
    pub(super) fn fail(
        &mut self,
        ticket: Ticket,
        error: CallError,
        woken: &mut Vec<Waker>,
    ) -> Option<CallError> {
        if !self.0.contains_key(&ticket) {
            return Some(error);
        }
        self.hand_on(ticket, Err(error), woken);
        None
    }
}
