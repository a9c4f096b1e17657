//! The requests in flight, by id.

use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    /// Waits for its answer; the request ends at this position.
    Waiting(u64),
    /// Abandoned; one answer may still arrive.
    Abandoned,
    /// Answered.
    Done,
}

/// A ring of slots in which an id is its own index: ids are consecutive, from that of the oldest request without an
/// answer.
#[derive(Debug)]
pub(super) struct Slots {
    first: u64,
    next: u64,
    /// As many as a power of two, or none.
    ring: Vec<Slot>,
}

/// Slots that the first request allocates.
const FIRST: usize = 4;

impl Slots {
    pub(super) const fn new() -> Self {
        Self { first: 1, next: 1, ring: Vec::new() }
    }

    /// Returns the number of requests from the oldest without an answer.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.next - self.first
    }

    /// Returns the id of the request that is pushed next.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    #[inline]
    pub(super) fn push(&mut self, slot: Slot) {
        if self.len() == self.ring.len() as u64 {
            self.double();
        }
        let at = self.index(self.next);
        if let Some(free) = self.ring.get_mut(at) {
            *free = slot;
        }
        self.next += 1;
    }

    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<Slot> {
        if id.wrapping_sub(self.first) < self.len() {
            self.ring.get(self.index(id)).copied()
        } else {
            None
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Slot> {
        let at = self.index(id);
        if id.wrapping_sub(self.first) < self.len() { self.ring.get_mut(at) } else { None }
    }

    /// Frees the answered slots before the oldest request without an answer.
    #[inline]
    pub(super) fn pop_done(&mut self) {
        while let Some(Slot::Done) = self.get(self.first) {
            self.first += 1;
        }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "below the length")]
    fn index(&self, id: u64) -> usize {
        (id & (self.ring.len() as u64).wrapping_sub(1)) as usize
    }

    #[cold]
    fn double(&mut self) {
        let mut ring = Vec::new();
        ring.resize((2 * self.ring.len()).max(FIRST), Slot::Done);
        let before = core::mem::replace(&mut self.ring, ring);
        for id in self.first..self.next {
            let mask = (before.len() as u64).wrapping_sub(1);
            let slot = usize::try_from(id & mask).ok().and_then(|at| before.get(at));
            let at = self.index(id);
            if let (Some(slot), Some(to)) = (slot, self.ring.get_mut(at)) {
                *to = *slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_id_keeps_its_slot_while_the_ring_grows_and_wraps() {
        let (mut slots, mut waiting) = (Slots::new(), BTreeSet::new());
        assert!(slots.get(1).is_none() && slots.get_mut(0).is_none());
        for round in 0..200 {
            for _ in 0..=round % 7 {
                waiting.insert(slots.next());
                slots.push(Slot::Waiting(slots.next() * 16));
            }
            // The newest is answered, which mostly frees nothing, and two of the oldest.
            for id in [waiting.pop_last(), waiting.pop_first(), waiting.pop_first()] {
                if let Some(slot) = id.and_then(|id| slots.get_mut(id)) {
                    *slot = Slot::Done;
                }
                slots.pop_done();
            }
            let oldest = slots.next() - slots.len();
            assert_eq!(waiting.first().copied().unwrap_or(slots.next()), oldest);
            for id in oldest..slots.next() {
                let end = match slots.get(id) {
                    Some(Slot::Waiting(end)) => Some(end),
                    _ => None,
                };
                assert_eq!(end, waiting.contains(&id).then_some(id * 16), "{id}: {slots:?}");
            }
            assert!(slots.get(oldest - 1).is_none() && slots.get(slots.next()).is_none());
        }
        assert!(slots.len() > 64, "it has grown several times: {}", slots.len());
    }
}
