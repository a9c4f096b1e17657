//! The receiving end of a one-way load: counts, checks and times what arrives, on the thread that takes it.
//!
//! A message begins with its number, from 0 in each stream. In a timed stream, the send time follows. The last message
//! of a stream has [`LAST`] set in its number.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::clock;
use crate::hist;

/// In the number of the last message of a stream.
pub(crate) const LAST: u64 = 1 << 63;

/// What a receiver says about a stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Received {
    /// Messages after the first.
    pub(crate) operations: u64,
    /// From the first message to the last, ns.
    pub(crate) ns: u64,
    /// Messages that were not the expected next one.
    pub(crate) wrong: u64,
    /// From the send time to the receiver's clock read, where the stream is timed.
    pub(crate) took: Vec<(u64, u64)>,
}

/// What one thread has of a stream so far.
pub(crate) struct Sink {
    next: u64,
    began: u64,
    wrong: u64,
    took: Option<Histogram<u64>>,
}

thread_local! {
    static SINK: RefCell<Sink> =
        const { RefCell::new(Sink { next: 0, began: 0, wrong: 0, took: None }) };
}

/// The streams that have ended and were not queried yet.
static ENDED: (Mutex<Vec<Received>>, Condvar) = (Mutex::new(Vec::new()), Condvar::new());

impl Sink {
    #[inline]
    pub(crate) fn take(message: &[u8], timed: bool, falsified_bits: u64) {
        SINK.with_borrow_mut(|sink| sink.add(message, timed, falsified_bits));
    }

    /// Waits for the end of a stream.
    pub(crate) fn received(within: Duration) -> Outcome<Received> {
        let (ended, changed) = &ENDED;
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(ended, within, |ended| ended.is_empty());
        let (mut ended, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if ended.is_empty() {
            return Err("the last message of a stream did not arrive in time".into());
        }
        Ok(ended.remove(0))
    }

    #[inline]
    fn add(&mut self, message: &[u8], timed: bool, falsified_bits: u64) {
        let mut words = message.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let number = words.next().unwrap_or(u64::MAX) ^ falsified_bits;
        if number & !LAST == 0 {
            self.begin(timed);
        }
        let mut is_right = number & !LAST == self.next;
        if timed {
            let now = clock::now();
            let took = now.saturating_sub(words.next().unwrap_or(0));
            if let Some(hist) = &mut self.took {
                hist.saturating_record(took);
            }
        }
        // The last word of a longer message is its number, too.
        if message.len() > 16 {
            is_right &= words.next_back() == Some(self.next);
        }
        self.wrong += u64::from(!is_right);
        self.next += 1;
        if number & LAST != 0 {
            self.end(number & !LAST);
        }
    }

    #[cold]
    fn begin(&mut self, timed: bool) {
        *self = Self { next: 0, began: clock::now(), wrong: 0, took: timed.then(hist::new) };
    }

    #[cold]
    fn end(&mut self, number: u64) {
        let took = self.took.take().map(|took| hist::counts(&took)).unwrap_or_default();
        let ns = clock::now().saturating_sub(self.began);
        // A lost message shows in the count of received ones, and so does a duplicate.
        let wrong = self.wrong + number.abs_diff(self.next.saturating_sub(1));
        let received = Received { operations: number, ns, wrong, took };
        let (ended, changed) = &ENDED;
        ended.lock().unwrap_or_else(PoisonError::into_inner).push(received);
        changed.notify_one();
    }
}
