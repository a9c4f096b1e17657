use std::os::windows::io::AsHandle;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::check::{Check, CheckResult, Finding, Group};

use bellwire_win::doorbell::Event;
use bellwire_win::poll::{self, Events, Interest, Poller, Trigger};
use bellwire_win::prelude::*;
use bellwire_win::{OsError, clock};

/// Much longer than a wake takes.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Checks what wakes a sleeping peer.
pub(super) fn checks() -> Vec<Check> {
    let mut group = Group::new("doorbells");
    group.required("event", "close some handles, or free some memory", wake());
    group.required(
        "a handle only rings",
        "Windows 8.1 or newer looks at the rights of an event without a name",
        only_rings(),
    );
    group.required("thread pool waits", "close some handles, or free some memory", pool());
    group.into_checks()
}

/// Waits for an event in a thread, and wakes it through a handle that can only ring.
fn wake() -> CheckResult {
    let event = Event::create()?;
    let bell = Event::from_peer(event.for_peer()?)?;
    let (sender, woken) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let _ = sender.send((await_ring(&event), Instant::now()));
    });
    let rung = Instant::now();
    bell.ring();
    let (woke, at) = woken.recv_timeout(TIMEOUT * 2)?;
    waiting.join().map_err(|_| "the thread that waited panicked")?;
    if woke?.is_none() {
        return Err("the ring was lost".into());
    }
    let took = at.saturating_duration_since(rung);
    Ok(Finding::ok(format!("a thread that waited was woken in {took:.1?}")))
}

fn await_ring(event: &Event) -> Result<Option<usize>, OsError> {
    poll::wait(&[event.as_handle()], Some(clock::now().after(TIMEOUT)))
}

/// Checks that the handle cannot wait: a peer that could would take rings from the thread that they are for.
fn only_rings() -> CheckResult {
    let event = Event::create()?;
    let bell = event.for_peer()?;
    if poll::wait(&[bell.as_handle()], Some(clock::now())).is_ok() {
        return Err("a handle for ringing can be waited for".into());
    }
    Ok(Finding::ok("who rings cannot wait, and so cannot take a ring away"))
}

fn pool() -> CheckResult {
    let (event, mut poller) = (Event::create()?, Poller::create()?);
    poller.add(event.as_handle(), 7, Interest::readable(Trigger::Edge))?;
    let mut events = Events::with_capacity(4);
    for _ in 0..2 {
        event.ring();
        if poller.wait(&mut events, Some(TIMEOUT))? != 1 {
            return Err("a ring was not seen".into());
        }
        if poller.wait(&mut events, Some(Duration::ZERO))? != 0 {
            return Err("one ring was seen twice".into());
        }
    }
    Ok(Finding::ok("each ring is seen once, by a thread that waits for any number of events"))
}
