//! What a tracer learns of snapshots and events: when they were published, and when a reader noticed, took and validated
//! them.
//!
//! Publisher and readers trace the same ones without a word between them: those whose number, multiplied by a constant, begins
//! with some zeroes. Each end adapts how many to the rate of numbers, so that the ones of either are among the other's.

use std::time::Duration;

use bellwire_core::{Instant, nanos};
use bellwire_probes::{self as probes, Cap, Delivery, SamplingMask, Session};

use super::chooser::SHARE;
use crate::transport::{Os, prelude::*};

/// The window over which the rate of numbers is measured.
const WINDOW: Duration = Duration::from_millis(100);
const SECOND: u128 = 1_000_000_000;
/// The most zeroes that are asked for.
const MAX_ZEROES: u32 = 40;

/// Which numbers are traced.
#[derive(Debug, Default)]
struct Choice {
    mask: SamplingMask,
    cap: Cap,
    /// How many zeroes the number, multiplied, begins with.
    zeroes: u32,
    began: Instant,
    first: u64,
}

/// What a publisher traces.
#[derive(Debug)]
pub(crate) struct PublisherTrace {
    record: Session,
    choice: Choice,
    begun: Option<(u64, Instant)>,
    sent: Option<Sent>,
}

/// Published, and not reported yet.
#[derive(Debug)]
struct Sent {
    sequence: u64,
    begun: Instant,
    published: Instant,
    len: usize,
}

/// What a reader traces.
#[derive(Debug, Default)]
pub(crate) struct ReaderTrace {
    choice: Choice,
    noticed: Option<Instant>,
    taken: Option<Taken>,
}

/// Taken, and not validated yet.
#[derive(Debug)]
struct Taken {
    sequence: u64,
    how: Transfer,
    noticed: Instant,
    taken: Instant,
    /// When validation began.
    begun: Instant,
}

/// How a reader takes a snapshot or an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transfer {
    Copied,
    Mapped,
}

/// Returns the time if a tracer wants to know of what is published next.
#[inline]
pub(crate) fn begins() -> Option<Instant> {
    probes::wants_deliveries().then(Os::now)
}

impl PublisherTrace {
    /// Creates the trace of a publication, whose record is `record`.
    pub(crate) fn new(record: Session) -> Self {
        Self { record, choice: Choice::default(), begun: None, sent: None }
    }

    /// The publication with this number was begun at that time, if that is known.
    #[inline]
    pub(crate) fn publishes(&mut self, sequence: u64, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.begin(sequence, begun);
        }
    }

    #[cold]
    fn begin(&mut self, sequence: u64, now: Instant) {
        self.choice.measure(probes::sampling_mask(), sequence, now);
        self.begun = self.choice.is_chosen(sequence).then_some((sequence, now));
    }

    /// Readers can take it: `len` bytes. Of several that are announced together, the last one is reported.
    #[inline]
    pub(crate) fn published(&mut self, len: usize) {
        if self.begun.is_some() {
            self.note_published(len);
        }
    }

    #[cold]
    fn note_published(&mut self, len: usize) {
        if let Some((sequence, begun)) = self.begun.take() {
            self.sent = Some(Sent { sequence, begun, published: Os::now(), len });
        }
    }

    /// Sleeping readers are woken. Reports only now: the probe delays no reader.
    #[inline]
    pub(crate) fn announced(&mut self) {
        if self.sent.is_some() {
            self.report();
        }
    }

    #[cold]
    fn report(&mut self) {
        if let Some(Sent { sequence, begun, published, len }) = self.sent.take() {
            let [begun, published] = [begun, published].map(Instant::as_nanos);
            probes::published(&self.record, sequence, begun, published, len as u64);
        }
    }
}

impl ReaderTrace {
    /// A subscriber looks for the event with this number, which is there or not, unless some are missed.
    #[cold]
    pub(crate) fn polls(&mut self, sequence: Option<u64>, is_there: bool) {
        let is_chosen = sequence.is_none_or(|sequence| self.choice.is_chosen(sequence));
        self.noticed = (is_there && is_chosen).then(Os::now);
        if let (false, Some(next)) = (is_there, sequence) {
            // The choice was made for an earlier rate.
            self.choice.measure(probes::sampling_mask(), next, Os::now());
        }
    }

    /// A newer snapshot is there.
    #[inline]
    pub(crate) fn notices(&mut self) {
        if probes::wants_deliveries() {
            // It may have to be mapped, which takes several steps.
            self.noticed.get_or_insert_with(Os::now);
        }
    }

    /// What was noticed is copied or mapped, and has this number.
    #[inline]
    pub(crate) fn takes(&mut self, sequence: u64, how: Transfer) {
        if self.noticed.is_some() {
            self.note_taken(sequence, how);
        }
    }

    #[cold]
    fn note_taken(&mut self, sequence: u64, how: Transfer) {
        let Some(noticed) = self.noticed.take() else { return };
        let taken = Os::now();
        self.choice.measure(probes::sampling_mask(), sequence, taken);
        let chosen = Taken { sequence, how, noticed, taken, begun: taken };
        self.taken = self.choice.is_chosen(sequence).then_some(chosen);
    }

    /// What was taken is about to be validated.
    #[inline]
    pub(crate) fn validates(&mut self) {
        if let Some(taken) = &mut self.taken {
            taken.begun = Os::now();
        }
    }

    /// It is validated; the session is that with the publisher, and says when it created its board.
    #[inline]
    pub(crate) fn validated<'a>(&mut self, session: impl FnOnce() -> Option<(&'a Session, u64)>) {
        if let Some(taken) = self.taken.take() {
            if let Some((session, publisher)) = session() {
                report(session, publisher, &taken);
            }
        }
    }
}

#[cold]
fn report(session: &Session, publisher: u64, of: &Taken) {
    let validating = nanos(Os::now().since(of.begun));
    let taken = of.taken.as_nanos();
    let delivery = Delivery {
        publisher,
        sequence: of.sequence,
        noticed: of.noticed.as_nanos(),
        taken,
        validated: taken.saturating_add(validating),
    };
    match of.how {
        Transfer::Copied => probes::copied(session, &delivery),
        Transfer::Mapped => probes::mapped(session, &delivery),
    }
}

impl Choice {
    fn is_chosen(&self, sequence: u64) -> bool {
        // The golden ratio's: numbers in a row are spread evenly.
        let spread = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        spread.leading_zeros() >= self.zeroes
    }

    /// Adapts the choice to the numbers since the window began.
    fn measure(&mut self, mask: SamplingMask, sequence: u64, now: Instant) {
        if mask != self.mask || self.began == Instant::default() {
            let cap = mask.cap();
            *self = Self { mask, cap, zeroes: 0, began: now, first: sequence };
        }
        let span = now.since(self.began);
        let passed = u128::from(sequence.saturating_sub(self.first));
        let rate = passed * SECOND / u128::from(nanos(span.max(WINDOW)));
        let zeroes = zeroes(u64::try_from(rate).unwrap_or(u64::MAX), self.cap);
        if span >= WINDOW {
            (self.zeroes, self.began, self.first) = (zeroes, now, sequence);
        } else {
            self.zeroes = self.zeroes.max(zeroes);
        }
    }
}

/// Returns how many zeroes to ask for at this rate a second: the chance halves with each.
fn zeroes(rate: u64, cap: Cap) -> u32 {
    let allowed = (rate / SHARE).max(cap.few).min(cap.most).max(1);
    rate.div_ceil(allowed).max(1).next_power_of_two().ilog2().min(MAX_ZEROES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(1 + millis * 1_000_000)
    }

    /// Runs a choice over numbers at a steady rate for two seconds, and returns those chosen in the second one.
    fn chosen(mask: SamplingMask, per_milli: u64) -> Vec<u64> {
        let mut choice = Choice::default();
        let numbers = (0..2000 * per_milli).filter(|number| {
            if choice.is_chosen(*number) {
                choice.measure(mask, *number, at(number / per_milli));
            }
            *number >= 1000 * per_milli && choice.is_chosen(*number)
        });
        numbers.collect()
    }

    #[test]
    fn the_numbers_chosen_a_second_stay_within_the_cap() {
        for (per_milli, most) in [(1, 50), (100, 3200), (1000, 2100)] {
            let chosen = chosen(SamplingMask::SAMPLES, per_milli).len();
            assert!((5..=most).contains(&chosen), "{per_milli} a millisecond: {chosen}");
        }
        assert_eq!(chosen(SamplingMask::ALL, 100).len(), 100_000);
    }

    #[test]
    fn a_slower_reader_chooses_a_subset_of_a_faster_ones() {
        let (few, many) = (chosen(SamplingMask::SAMPLES, 100), chosen(SamplingMask::ALL, 100));
        assert!(few.iter().all(|number| many.contains(number)));
    }

    #[test]
    fn a_falling_rate_is_noticed_without_messages() {
        let mut choice = Choice::default();
        choice.measure(SamplingMask::SAMPLES, 0, at(0));
        choice.measure(SamplingMask::SAMPLES, 1_000_000, at(50));
        assert!(choice.zeroes > 8);
        choice.measure(SamplingMask::SAMPLES, 1_000_000, at(150));
        choice.measure(SamplingMask::SAMPLES, 1_000_001, at(300));
        assert_eq!(choice.zeroes, 0);
    }
}
