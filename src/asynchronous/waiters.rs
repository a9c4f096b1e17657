//! The tasks that wait for an answer, by the ticket of their request.

use std::mem::{replace, take};
use std::task::{Poll, Waker};

use bellwire_core::call::Ticket;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::CallError;

/// Calls, or batches, that were sent, and answers that no task has fetched yet.
///
/// A slot is filled in place, field by field: what is moved as a whole is loaded in pieces other than those it was stored in,
/// and such a load waits for all stores before it, among them those to the lane, whose lines the peer's cache holds.
pub(super) struct Waiters<R> {
    /// Each at its ticket's index in a ring: as many as a power of two, or none.
    near: Vec<Slot<R>>,
    /// Those whose place in the ring is another's now.
    far: HashMap<Ticket, Slot<R>, FixedState>,
    taken: usize,
}

/// A sent request, or none.
struct Slot<R> {
    ticket: Option<Ticket>,
    /// The task that polled last, and whether it has set a timer.
    waker: Option<Waker>,
    is_timed: bool,
    answer: Option<Result<R, CallError>>,
}

/// Slots that the first request allocates.
const FIRST: usize = 4;
/// The most slots that are kept while no request waits.
const MAX_IDLE: usize = 64;

impl<R> Default for Slot<R> {
    fn default() -> Self {
        Self { ticket: None, waker: None, is_timed: false, answer: None }
    }
}

impl<R> Default for Waiters<R> {
    fn default() -> Self {
        Self { near: Vec::new(), far: HashMap::default(), taken: 0 }
    }
}

impl<R> Waiters<R> {
    #[inline]
    pub(super) fn expect(&mut self, ticket: Ticket) {
        self.taken += 1;
        let index = self.index(ticket);
        match self.near.get_mut(index) {
            Some(slot) if slot.ticket.is_none() => slot.ticket = Some(ticket),
            _ => self.make_place(ticket),
        }
    }

    /// Doubles a ring that is half full; otherwise, moves an old request out of it.
    #[cold]
    fn make_place(&mut self, ticket: Ticket) {
        loop {
            let (index, len) = (self.index(ticket), self.near.len());
            match self.near.get_mut(index) {
                Some(slot) if slot.ticket.is_none() => return slot.ticket = Some(ticket),
                Some(slot) if 2 * self.taken <= len => {
                    let old = replace(slot, Slot { ticket: Some(ticket), ..Slot::default() });
                    self.far.extend(old.ticket.map(|ticket| (ticket, old)));
                    return;
                }
                _ => {}
            }
            let before = take(&mut self.near);
            self.near.resize_with((2 * len).max(FIRST), Slot::default);
            for slot in before {
                if let Some(place) =
                    slot.ticket.map(|of| self.index(of)).and_then(|at| self.near.get_mut(at))
                {
                    *place = slot;
                }
            }
        }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "below the length")]
    fn index(&self, ticket: Ticket) -> usize {
        (ticket.id() & (self.near.len() as u64).wrapping_sub(1)) as usize
    }

    #[inline]
    fn find(&mut self, ticket: Ticket) -> Option<&mut Slot<R>> {
        let index = self.index(ticket);
        match self.near.get_mut(index) {
            Some(slot) if slot.ticket == Some(ticket) => Some(slot),
            _ => self.far.get_mut(&ticket),
        }
    }

    /// Frees the slot of a request that nobody waits for any more.
    #[inline]
    fn free(&mut self, ticket: Ticket) {
        let index = self.index(ticket);
        match self.near.get_mut(index) {
            Some(slot) if slot.ticket == Some(ticket) => {
                (slot.ticket, slot.waker, slot.is_timed) = (None, None, false);
                slot.answer = None;
            }
            _ => drop(self.far.remove(&ticket)),
        }
        self.taken -= 1;
        if self.taken == 0 && self.near.len() > MAX_IDLE {
            self.near = Vec::new();
        }
    }

    /// Adds the tasks that have no timer to `woken`: each sets its own when it is polled.
    pub(super) fn wake_untimed(&self, woken: &mut Vec<Waker>) {
        woken.extend(
            self.unanswered().filter(|slot| !slot.is_timed).filter_map(|slot| slot.waker.clone()),
        );
    }

    pub(super) fn is_any(&self) -> bool {
        self.taken > 0
    }

    /// Returns the tickets without an answer.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Ticket> {
        self.unanswered().filter_map(|slot| slot.ticket)
    }

    fn unanswered(&self) -> impl Iterator<Item = &Slot<R>> {
        let slots = self.near.iter().chain(self.far.values());
        slots.filter(|slot| slot.ticket.is_some() && slot.answer.is_none())
    }

    /// Polls for an answer, by a task that has a timer or will set one now (`is_timed`), and that is woken when there is one.
    /// Returns `None` if it does not wait here, or no longer does.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as of `answer`")]
    pub(super) fn ask(
        &mut self,
        ticket: Ticket,
        waker: &Waker,
        is_timed: bool,
    ) -> Option<Poll<Result<R, CallError>>> {
        let slot = self.find(ticket)?;
        if let Some(answer) = slot.answer.take() {
            self.free(ticket);
            return Some(Poll::Ready(answer));
        }
        slot.is_timed |= is_timed;
        match &mut slot.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        Some(Poll::Pending)
    }

    /// Returns whether it had no answer yet.
    pub(super) fn forget(&mut self, ticket: Ticket) -> bool {
        let Some(slot) = self.find(ticket) else { return false };
        let has_waited = slot.answer.is_none();
        self.free(ticket);
        has_waited
    }

    /// Like `hand_on` for an answer that is no error, which is stored where it stays.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "a response is moved once, and not once more as an argument"
    )]
    pub(super) fn answer(&mut self, ticket: Ticket, response: R, woken: &mut Vec<Waker>) {
        if let Some(slot) = self.find(ticket) {
            slot.answer = Some(Ok(response));
            woken.extend(slot.waker.take());
        }
    }

    /// Stores an answer, or drops one that no task waits for. Adds the tasks to wake to `woken`.
    pub(super) fn hand_on(
        &mut self,
        ticket: Ticket,
        answer: Result<R, CallError>,
        woken: &mut Vec<Waker>,
    ) {
        if let Some(slot) = self.find(ticket) {
            slot.answer = Some(answer);
            woken.extend(slot.waker.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(waiters: &mut Waiters<u64>, ticket: Ticket) -> Option<u64> {
        match waiters.ask(ticket, Waker::noop(), false) {
            Some(Poll::Ready(answer)) => answer.ok(),
            Some(Poll::Pending) | None => None,
        }
    }

    #[test]
    fn each_answer_is_its_tickets_while_the_ring_grows_and_old_requests_leave_it() {
        let (mut waiters, mut woken) = (Waiters::<u64>::default(), Vec::new());
        let old = [1, 2, 6].map(Ticket::from_id);
        old.into_iter().for_each(|ticket| waiters.expect(ticket));
        for id in 7..2_000 {
            let ticket = Ticket::from_id(id);
            waiters.expect(ticket);
            assert_eq!(answered(&mut waiters, ticket), None);
            waiters.answer(ticket, id, &mut woken);
            assert_eq!(woken.drain(..).count(), 1);
            assert_eq!(answered(&mut waiters, ticket), Some(id));
            assert!(!waiters.forget(ticket), "it is forgotten");
        }
        assert_eq!((waiters.near.len(), waiters.far.len()), (8, 3), "as many as wait at once");
        let mut waiting: Vec<Ticket> = waiters.waiting().collect();
        waiting.sort_unstable();
        assert_eq!(waiting, old);
        for ticket in old {
            waiters.answer(ticket, ticket.id(), &mut woken);
            assert_eq!(answered(&mut waiters, ticket), Some(ticket.id()));
        }
        assert!(!waiters.is_any() && waiters.far.is_empty());
        let many: Vec<Ticket> = (2_000..2_100).map(Ticket::from_id).collect();
        many.iter().for_each(|ticket| waiters.expect(*ticket));
        assert!(waiters.near.len() >= many.len());
        assert!(many.iter().all(|ticket| waiters.forget(*ticket)));
        assert!(waiters.far.is_empty() && waiters.near.is_empty(), "a burst keeps nothing");
    }
}
