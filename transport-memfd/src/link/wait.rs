//! How a [`Link`] waits for its peer: on a futex, an eventfd or the socket, and never past the peer's end.

use crate::prelude::*;
use std::os::fd::AsFd;
use std::time::Duration;

use bellwire_core::control::BLOCKED_SLICE;
use bellwire_core::{Instant, Park, PeerMemory, Woken, Word, sliced};
use rustix::event::PollFd;

use super::{DrainOutcome, Link};
use crate::LifeState;
use crate::doorbell::{Eventfd, FutexWord, Woke, futex_wait_any};
use crate::life::{LIFE_OFFSET, life_state};
use crate::{clock, poll};

/// How long a futex wait may miss the peer's death when the peer has no life word.
const DEATH_SLICE: Duration = Duration::from_millis(100);
/// The same when it has a life word. The peer writes that word and can fake it, so this end does not rely on it alone.
const ARMED_SLICE: Duration = Duration::from_secs(60);

pub(super) fn park_on_futex(link: &Link, park: &Park) -> Woken {
    let expecting = |word: Word, seen| (link.peer.page.word(word.offset()), low(seen));
    let tail = expecting(Word::Tail, park.tail);
    let head = park.head.map(|seen| expecting(Word::Head, seen));
    sleep(link, tail, head, || park.has_moved(&link.peer), park.until)
}

/// Sleeps on one word, or two, until they have `moved` or the wait is over. A wake for an earlier change does not end the
/// sleep: the waiting end stays armed.
pub(super) fn sleep(
    link: &Link,
    word: (FutexWord<'_>, u32),
    other: Option<(FutexWord<'_>, u32)>,
    moved: impl Fn() -> bool,
    until: Option<Instant>,
) -> Woken {
    let mut checks = 0_u32;
    loop {
        if let Some(reason) = link.reason(&moved) {
            return reason;
        }
        // A correct peer that is alive changes its life word only by dying or leaving.
        let life = link.peer.page.word(LIFE_OFFSET);
        let life = Some((life, life.load()));
        let life = life.filter(|(_, seen)| life_state(*seen) == LifeState::Alive);
        if (life.is_none() || checks > 0) && link.peer_gone() {
            return last_check(link, &moved);
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
        let cancel = (FutexWord::new(link.cancel.word()), 0);
        let held = link.cancel.is_held().then_some(cancel);
        if held.is_none() && link.cancel.is_set() {
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
            return link.reason(&moved).unwrap_or(Woken::Deadline);
        }
    }
}

pub(super) fn park_on_eventfd(link: &Link, eventfd: &Eventfd, park: &Park) -> Woken {
    let bells = [poll::readable(eventfd.as_fd()), poll::hung_up(link.arrived())];
    park_on_fds(link, park, bells, || {
        eventfd.drain();
    })
}

pub(super) fn park_on_socket(link: &Link, park: &Park) -> Woken {
    let is_clear = link.drain_before_wait() != DrainOutcome::More;
    if link.fault().is_some() {
        return Woken::PeerGone;
    }
    let socket = link.arrived();
    if !is_clear && link.reason(|| park.has_moved(&link.peer)).is_none() {
        // A message that cannot be received for lack of descriptors keeps the socket readable: waiting for the socket
        // would spin, and a ring behind the message is not seen. So check the words in short slices.
        let (until, is_slice) = sliced(park.until, clock::now().after(BLOCKED_SLICE));
        let quiet = Park { until: Some(until), ..*park };
        let bells = [poll::hung_up(socket), poll::hung_up(socket)];
        let woken = park_on_fds(link, &quiet, bells, || {});
        return if is_slice && woken == Woken::Deadline { Woken::Rung } else { woken };
    }
    // Ring messages are taken off the socket before the next sleep.
    park_on_fds(link, park, [poll::readable(socket), poll::hung_up(socket)], || {})
}

/// Sleeps until the bell rings, the socket hangs up, the process ends, or the wait is cancelled.
fn park_on_fds(
    link: &Link,
    park: &Park,
    [bell, socket]: [PollFd<'_>; 2],
    rung: impl Fn(),
) -> Woken {
    let moved = || park.has_moved(&link.peer);
    if let Some(reason) = link.reason(moved) {
        return reason;
    }
    // The wait itself reports a hang-up or the end of the process.
    if link.peer.says_closed() {
        return last_check(link, moved);
    }
    let cancel = match link.cancel.event() {
        Some(eventfd) => poll::readable(eventfd.as_fd()),
        None => poll::hung_up(link.arrived()),
    };
    let ready = poll::wait(&mut [bell, socket, poll_process(link), cancel], park.until);
    let ready = ready.unwrap_or_default();
    if ready.is(0) {
        rung();
    }
    if ready.is(3) {
        // Otherwise the ring of a cancellation that was taken meanwhile would end each wait from now on.
        link.cancel.settle();
    }
    if let Some(reason) = link.reason(moved) {
        return reason;
    }
    if link.peer_gone() {
        return last_check(link, moved);
    }
    // A peer that keeps ringing does not extend a deadline.
    let is_over = !ready.any() || park.until.is_some_and(|until| until <= clock::now());
    if is_over { Woken::Deadline } else { Woken::Rung }
}

/// The peer is gone. Whatever it published before is visible by now: check once more.
fn last_check(link: &Link, moved: impl Fn() -> bool) -> Woken {
    link.reason(moved).unwrap_or(Woken::PeerGone)
}

pub(super) fn process_gone(link: &Link) -> bool {
    let mut polls = [poll::hung_up(link.arrived()), poll_process(link)];
    poll::wait(&mut polls, Some(clock::now())).is_ok_and(poll::Ready::any)
}

/// Returns the peer's process for polling; without one, the socket again.
fn poll_process(link: &Link) -> PollFd<'_> {
    let process = link.process().map(|process| poll::readable(process.as_fd()));
    process.unwrap_or_else(|| poll::hung_up(link.arrived()))
}

/// Returns the half of a word that a futex compares.
#[allow(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
pub(super) const fn low(word: u64) -> u32 {
    word as u32
}
