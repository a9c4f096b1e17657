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
        let mut checks = 0_u32;
        loop {
            if let Some(reason) = self.reason(park) {
                return reason;
            }
            let state = self.life();
            // A correct peer that is alive changes its life word only by dying or leaving.
            let armed = state == LifeState::Alive;
            if (!armed || checks > 0) && self.peer_gone() {
                return self.last_check(park);
            }
            checks += 1;
            let slice = if armed { ARMED_SLICE } else { DEATH_SLICE };
            let (until, is_slice) = sliced(park.until, clock::now().after(slice));
            match self.wait_on_words(park, armed, Some(until)) {
                Woke::Deadline if is_slice => {}
                Woke::Deadline => return self.reason(park).unwrap_or(Woken::Deadline),
                Woke::CheckAgain if self.life() == LifeState::Died => return self.last_check(park),
                Woke::CheckAgain if !armed || self.life() == LifeState::Alive => {
                    return self.reason(park).unwrap_or_else(|| spurious(park));
                }
                // The peer released its life word: continue with time slices.
                Woke::CheckAgain => {}
            }
        }
    }

    fn wait_on_words(&self, park: &Park, armed: bool, until: Option<Instant>) -> Woke {
        let page = &self.peer.page;
        let life = armed.then(|| page.word(LIFE_OFFSET)).map(|word| (word, word.load()));
        if life.is_some_and(|(_, seen)| life_state(seen) != LifeState::Alive) {
            return Woke::CheckAgain;
        }
        let expecting = |word: Word, seen| (page.word(word.offset()), low(seen));
        let tail = Some(expecting(Word::Tail, park.tail));
        let head = park.head.map(|seen| expecting(Word::Head, seen));
        // Each further word costs almost a microsecond in a call that sleeps.
        let cancel = self.cancel.is_held().then(|| (FutexWord::new(self.cancel.word()), 0));
        if cancel.is_none() && self.cancel.is_set() {
            return Woke::CheckAgain;
        }
        let mut words = [(FutexWord::new(self.cancel.word()), 0); 4];
        let mut used = 0;
        for (slot, word) in words.iter_mut().zip([tail, head, life, cancel].into_iter().flatten()) {
            *slot = word;
            used += 1;
        }
        futex_wait_any(words.get(..used).unwrap_or(&words), until)
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
        if !is_clear && self.reason(park).is_none() {
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
        if let Some(reason) = self.reason(park) {
            return reason;
        }
        // The wait itself reports a hang-up or the end of the process.
        if self.peer.says_closed() {
            return self.last_check(park);
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
        if let Some(reason) = self.reason(park) {
            return reason;
        }
        if self.peer_gone() {
            return self.last_check(park);
        }
        if ready.any() { spurious(park) } else { Woken::Deadline }
    }

    /// Returns a reason not to sleep, if there is one. Data comes before death: published records are read first.
    fn reason(&self, park: &Park) -> Option<Woken> {
        if self.cancel.is_set() {
            Some(Woken::Cancelled)
        } else if park.has_moved(&self.peer) {
            Some(Woken::Rung)
        } else {
            None
        }
    }

    /// The peer is gone. Whatever it published before is visible by now: check once more.
    fn last_check(&self, park: &Park) -> Woken {
        self.reason(park).unwrap_or(Woken::PeerGone)
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
        let mut checks = 0_u32;
        loop {
            if !self.is_owner_process() {
                return Woken::PeerGone;
            }
            let word = board.word(offset);
            if self.cancel.is_set() {
                return Woken::Cancelled;
            }
            if word.load() != low(seen) {
                return Woken::Rung;
            }
            let life = self.peer.page.word(LIFE_OFFSET);
            let life = Some((life, life.load()));
            let life = life.filter(|(_, seen)| life_state(*seen) == LifeState::Alive);
            if (life.is_none() || checks > 0) && self.peer_gone() {
                return Woken::PeerGone;
            }
            checks += 1;
            let slice = if life.is_some() { ARMED_SLICE } else { DEATH_SLICE };
            let (wake, is_slice) = sliced(until, clock::now().after(slice));
            let cancel = (FutexWord::new(self.cancel.word()), 0);
            let woke = match life {
                Some(life) => futex_wait_any(&[(word, low(seen)), cancel, life], Some(wake)),
                None => futex_wait_any(&[(word, low(seen)), cancel], Some(wake)),
            };
            if woke == Woke::Deadline && !is_slice {
                return Woken::Deadline;
            }
        }
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

/// Handles a wake without the expected event. A peer that keeps ringing does not extend a deadline.
fn spurious(park: &Park) -> Woken {
    let over = park.until.is_some_and(|until| until <= clock::now());
    if over { Woken::Deadline } else { Woken::Rung }
}

/// Returns the half of a word that a futex compares.
#[allow(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
const fn low(word: u64) -> u32 {
    word as u32
}
