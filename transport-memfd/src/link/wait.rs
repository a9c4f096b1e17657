//! How a [`Link`] waits for its peer: on a futex, an eventfd or the socket, and never past the peer's end.

use crate::Linux;
use crate::prelude::*;
use std::os::fd::AsFd;
use std::time::Duration;

use bellwire_core::control::BLOCKED_SLICE;
use bellwire_core::{Instant, Park, PeerMemory, Woken, Word, sliced};
use bellwire_shm::platform;
use rustix::event::PollFd;

use super::{DrainOutcome, Link};
use crate::LifeState;
use crate::doorbell::{Eventfd, FutexWord, Woke, futex_wait_any};
use crate::life::{LIFE_OFFSET, life_state};
use crate::region::PeerRegion;
use crate::{clock, poll};

/// How long a futex wait may miss the peer's death when the peer has no life word.
const DEATH_SLICE: Duration = Duration::from_millis(100);
/// The same when it has a life word. The peer writes that word and can fake it, so this end does not rely on it alone.
const ARMED_SLICE: Duration = Duration::from_secs(60);

impl Link {
    pub(super) fn park_on_futex(&self, park: &Park) -> Woken {
        let expecting = |word: Word, seen| (self.peer.page.word(word.offset()), low(seen));
        let tail = expecting(Word::Tail, park.tail);
        let head = park.head.map(|seen| expecting(Word::Head, seen));
        self.sleep(tail, head, || park.has_moved(&self.peer), park.until)
    }

    /// Sleeps on one word, or two, until they have `moved` or the wait is over. A wake for an earlier change does not end the
    /// sleep: the waiting end stays armed.
    fn sleep(
        &self,
        word: (FutexWord<'_>, u32),
        other: Option<(FutexWord<'_>, u32)>,
        moved: impl Fn() -> bool,
        until: Option<Instant>,
    ) -> Woken {
        let mut checks = 0_u32;
        loop {
            if let Some(reason) = self.reason(&moved) {
                return reason;
            }
            // A correct peer that is alive changes its life word only by dying or leaving.
            let life = self.peer.page.word(LIFE_OFFSET);
            let life = Some((life, life.load()));
            let life = life.filter(|(_, seen)| life_state(*seen) == LifeState::Alive);
            if (life.is_none() || checks > 0) && self.peer_gone() {
                return self.last_check(&moved);
            }
            let now = clock::now();
            // A peer that wakes again and again, or whose life word never stands still, does not extend a deadline.
            if checks > 0 && until.is_some_and(|until| until <= now) {
                return Woken::Deadline;
            }
            checks += 1;
            let slice = if life.is_some() { ARMED_SLICE } else { DEATH_SLICE };
            let (wake, is_slice) = sliced(until, now.after(slice));
            // Each further word costs almost a microsecond in a call that sleeps.
            let cancel = (FutexWord::new(self.cancel.word()), 0);
            let held = self.cancel.is_held().then_some(cancel);
            if held.is_none() && self.cancel.is_set() {
                continue;
            }
            let mut words = [word; 4];
            let mut used = 1;
            let others = [other, life, held].into_iter().flatten();
            for (slot, word) in words.iter_mut().skip(1).zip(others) {
                *slot = word;
                used += 1;
            }
            let woke = futex_wait_any(words.get(..used).unwrap_or(&words), Some(wake));
            if woke == Woke::Deadline && !is_slice {
                return self.reason(&moved).unwrap_or(Woken::Deadline);
            }
        }
    }

    pub(super) fn park_on_eventfd(&self, eventfd: &Eventfd, park: &Park) -> Woken {
        self.park_on_fds(
            park,
            [poll::readable(eventfd.as_fd()), poll::hung_up(self.socket())],
            || {
                eventfd.drain();
            },
        )
    }

    pub(super) fn park_on_socket(&mut self, park: &Park) -> Woken {
        let is_clear = self.control.drain_before_wait() != DrainOutcome::More;
        if self.fault().is_some() {
            return Woken::PeerGone;
        }
        let socket = self.control.as_fd();
        if !is_clear && self.reason(|| park.has_moved(&self.peer)).is_none() {
            // A message that cannot be received for lack of descriptors keeps the socket readable: waiting for the socket
            // would spin, and a ring behind the message is not seen. So check the words in short slices.
            let (until, is_slice) = sliced(park.until, clock::now().after(BLOCKED_SLICE));
            let quiet = Park { until: Some(until), ..*park };
            let bells = [poll::hung_up(socket), poll::hung_up(socket)];
            let woken = self.park_on_fds(&quiet, bells, || {});
            return if is_slice && woken == Woken::Deadline { Woken::Rung } else { woken };
        }
        // Ring messages are taken off the socket before the next sleep.
        self.park_on_fds(park, [poll::readable(socket), poll::hung_up(socket)], || {})
    }

    /// Sleeps until the bell rings, the socket hangs up, the process ends, or the wait is cancelled.
    fn park_on_fds(&self, park: &Park, [bell, socket]: [PollFd<'_>; 2], rung: impl Fn()) -> Woken {
        let moved = || park.has_moved(&self.peer);
        if let Some(reason) = self.reason(moved) {
            return reason;
        }
        // The wait itself reports a hang-up or the end of the process.
        if self.peer.says_closed() {
            return self.last_check(moved);
        }
        let cancel = match self.cancel.event() {
            Some(eventfd) => poll::readable(eventfd.as_fd()),
            None => poll::hung_up(self.control.as_fd()),
        };
        let ready = poll::wait(&mut [bell, socket, self.poll_process(), cancel], park.until);
        let ready = ready.unwrap_or_default();
        if ready.is(0) {
            rung();
        }
        if ready.is(3) {
            // Otherwise the ring of a cancellation that was taken meanwhile would end each wait from now on.
            self.cancel.settle();
        }
        if let Some(reason) = self.reason(moved) {
            return reason;
        }
        if self.peer_gone() {
            return self.last_check(moved);
        }
        // A peer that keeps ringing does not extend a deadline.
        let is_over = !ready.any() || park.until.is_some_and(|until| until <= clock::now());
        if is_over { Woken::Deadline } else { Woken::Rung }
    }

    /// Returns a reason not to sleep, if there is one. Data comes before death: published records are read first.
    fn reason(&self, moved: impl Fn() -> bool) -> Option<Woken> {
        if self.cancel.is_set() { Some(Woken::Cancelled) } else { moved().then_some(Woken::Rung) }
    }

    /// The peer is gone. Whatever it published before is visible by now: check once more.
    fn last_check(&self, moved: impl Fn() -> bool) -> Woken {
        self.reason(moved).unwrap_or(Woken::PeerGone)
    }

    fn process_gone(&self) -> bool {
        let mut polls = [poll::hung_up(self.control.as_fd()), self.poll_process()];
        poll::wait(&mut polls, Some(clock::now())).is_ok_and(poll::Ready::any)
    }

    /// Returns the peer's process for polling; without one, the socket again.
    fn poll_process(&self) -> PollFd<'_> {
        let process = self.process.as_ref().map(|process| poll::readable(process.as_fd()));
        process.unwrap_or_else(|| poll::hung_up(self.control.as_fd()))
    }
}

impl platform::WatchPeer<Linux> for Link {
    /// A futex waits on the low half of the word. One `FUTEX_WAKE` by the peer wakes every watcher.
    fn watch(&self, board: &PeerRegion, offset: usize, seen: u64, until: Option<Instant>) -> Woken {
        if !self.is_owner_process() {
            return Woken::PeerGone;
        }
        let word = board.word(offset);
        self.sleep((word, low(seen)), None, || word.load() != low(seen), until)
    }

    fn peer_gone(&self) -> bool {
        !self.is_owner_process()
            || self.peer.says_closed()
            || self.life() == LifeState::Died
            || self.process_gone()
    }

    #[inline]
    fn life(&self) -> LifeState {
        life_state(self.peer.page.word(LIFE_OFFSET).load())
    }
}

/// Returns the half of a word that a futex compares.
#[allow(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
const fn low(word: u64) -> u32 {
    word as u32
}
