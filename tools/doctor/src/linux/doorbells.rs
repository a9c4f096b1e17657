use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::check::{Check, CheckResult, Finding, Group};
use bellwire_memfd::clock;
use bellwire_memfd::doorbell::{Eventfd, Woke, futex_wait_any};
use bellwire_memfd::poll::{Epoll, Events, Interest, Trigger};
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use rustix::io::Errno;
use rustix::thread::futex::{WaitvFlags, waitv};
use rustix::time::ClockId;

const PAGE: usize = 4096;
/// Much longer than a wake takes.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Checks what wakes a sleeping peer.
pub(super) fn checks() -> Vec<Check> {
    let mut group = Group::new("doorbells");
    let sandbox = "a sandbox (seccomp) may forbid it: allow futex(2)";
    group.required("futex across two maps", sandbox, wake(&[0]));
    group.optional(
        "futex_waitv",
        "Linux 5.16 or newer has it; without it the death of a peer is noticed up to 10 ms late",
        several(),
    );
    group.required("eventfd and epoll, edge", "allow eventfd(2) and epoll(7)", edge());
    group.into_checks()
}

/// Parks a thread on words through a read-only map and wakes the last one through the owner's map.
fn wake(offsets: &'static [usize]) -> CheckResult {
    let (own, fd) = OwnRegion::create("bellwire-doctor", PAGE, |_| {})?;
    let peer = PeerRegion::verify_and_map(fd, PAGE)?;
    let (sender, woken) = mpsc::channel();
    let parked = thread::spawn(move || {
        let words: Vec<_> = offsets.iter().map(|at| (peer.word(*at), 0)).collect();
        let woke = futex_wait_any(&words, Some(clock::now().after(TIMEOUT)));
        let _ = sender.send((woke, Instant::now()));
    });
    let begun = Instant::now();
    let last = *offsets.last().ok_or("no word")?;
    let mut rung = Instant::now();
    // Until there is a thread to wake.
    while !own.wake_one(last) && begun.elapsed() < TIMEOUT {
        thread::yield_now();
        rung = Instant::now();
    }
    let (woke, at) = woken.recv_timeout(TIMEOUT * 2)?;
    parked.join().map_err(|_| "the thread that parked panicked")?;
    match woke {
        Woke::Deadline => Err("the wake was lost".into()),
        Woke::CheckAgain => {
            let took = at.saturating_duration_since(rung);
            Ok(Finding::ok(format!("a thread parked on a read-only map was woken in {took:.1?}")))
        }
    }
}

fn several() -> CheckResult {
    // A call without words is an error of the caller if the call exists.
    match waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic) {
        Err(Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("it waited for nothing".into()),
    }
    wake(&[0, 128])?;
    Ok(Finding::ok("a thread parked on two words was woken at the second"))
}

fn edge() -> CheckResult {
    let (bell, mut epoll) = (Eventfd::create()?, Epoll::create()?);
    epoll.add(&bell, 7, Interest::readable(Trigger::Edge))?;
    let mut events = Events::with_capacity(4);
    let mut rings = |wait: Duration| epoll.wait(&mut events, Some(wait));
    for _ in 0..2 {
        bell.ring();
        if rings(TIMEOUT)? != 1 {
            return Err("a ring was not seen".into());
        }
        // The event was not read: only a new edge may report it.
        if rings(Duration::ZERO)? != 0 {
            return Err("one ring was seen twice".into());
        }
    }
    Ok(Finding::ok("each ring is seen once, and nothing is read"))
}
