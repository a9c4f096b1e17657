use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use std::sync::{Mutex, MutexGuard};

use super::{Act, SimMemory};
use crate::Instant;
use crate::resize::{Resource, Shortage};
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// What happens to the driven end at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's process ends: it runs no more, and every wait from now on says so.
    PeerGone,
    /// Another thread of the driven end's process cancels: one wait ends.
    Cancel,
}

/// What both ends share beside their memory: the time, the bells and the script.
#[derive(Debug)]
pub(super) struct World {
    now: AtomicU64,
    /// How often each end was rung.
    rung: [AtomicU64; 2],
    script: Mutex<Vec<(Instant, Event)>>,
    gone: AtomicBool,
    cancelled: AtomicBool,
    /// What is on its way to each end over the control socket.
    control: [Mutex<VecDeque<Posted>>; 2],
    acts: [Mutex<Acts>; 2],
}

/// A message on the control socket, and what came with it.
type Posted = (Vec<u8>, Vec<SimMemory>);

/// What an end did, and where it lacks something.
#[derive(Debug, Default)]
struct Acts {
    done: Vec<Act>,
    shortages: Vec<(Act, Range<u64>, Resource)>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            now: AtomicU64::new(0),
            rung: [AtomicU64::new(0), AtomicU64::new(0)],
            script: Mutex::new(Vec::new()),
            gone: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            control: Default::default(),
            acts: Default::default(),
        }
    }
}

impl Acts {
    fn count(&self, act: Act) -> u64 {
        self.done.iter().filter(|done| **done == act).count() as u64
    }
}

impl World {
    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Moves the time on, never back, and lets happen what was scripted up to then.
    pub(super) fn advance(&self, to: Instant) {
        let now = self.now().max(to);
        self.now.store(now.as_nanos(), Ordering::Relaxed);
        self.script.lock().expect("no panic while it is locked").retain(|(when, event)| {
            let flag = match event {
                Event::PeerGone => &self.gone,
                Event::Cancel => &self.cancelled,
            };
            if *when <= now {
                flag.store(true, Ordering::Relaxed);
            }
            *when > now
        });
    }

    pub(super) fn at(&self, when: Instant, event: Event) {
        self.script.lock().expect("no panic while it is locked").push((when, event));
        self.advance(self.now());
    }

    /// When the script goes on.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let script = self.script.lock().expect("no panic while it is locked");
        script.iter().map(|(when, _)| *when).min()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Whether somebody cancelled, once.
    pub(super) fn take_cancel(&self) -> bool {
        self.cancelled.swap(false, Ordering::Relaxed)
    }

    pub(super) fn ring(&self, end: usize) {
        self.bell(end).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn rung(&self, end: usize) -> u64 {
        self.bell(end).load(Ordering::Relaxed)
    }

    pub(super) fn post(&self, to: usize, bytes: Vec<u8>, memory: Vec<SimMemory>) {
        self.queue(to).push_back((bytes, memory));
    }

    pub(super) fn receive(&self, end: usize) -> Option<Posted> {
        self.queue(end).pop_front()
    }

    pub(super) fn runs_short(&self, end: usize, act: Act, which: Range<u64>, resource: Resource) {
        self.acts_of(end).shortages.push((act, which, resource));
    }

    pub(super) fn acts(&self, end: usize, act: Act) -> u64 {
        self.acts_of(end).count(act)
    }

    /// Counts an act, for which `bytes` are needed, and lets it fail as scripted.
    pub(super) fn act(&self, end: usize, act: Act, bytes: u64) -> Result<(), Shortage> {
        let mut acts = self.acts_of(end);
        let number = acts.count(act);
        acts.done.push(act);
        let mut shortages = acts.shortages.iter();
        match shortages.find(|(kind, which, _)| *kind == act && which.contains(&number)) {
            Some((_, _, resource)) => Err(Shortage { resource: *resource, bytes, code: 0 }),
            None => Ok(()),
        }
    }

    fn queue(&self, end: usize) -> MutexGuard<'_, VecDeque<Posted>> {
        let queue = self.control.get(end).expect("there are two ends");
        queue.lock().expect("no panic while it is locked")
    }

    fn acts_of(&self, end: usize) -> MutexGuard<'_, Acts> {
        let acts = self.acts.get(end).expect("there are two ends");
        acts.lock().expect("no panic while it is locked")
    }

    fn bell(&self, end: usize) -> &AtomicU64 {
        self.rung.get(end).expect("there are two ends")
    }
}
