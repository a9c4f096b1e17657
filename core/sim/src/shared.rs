use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use bellwire_core::Instant;
use bellwire_core::resize::{Resource, Shortage};
use bellwire_core::sync::{AtomicBool, AtomicU64, Ordering};

use crate::{Act, SimMemory};

/// A scripted event at the driven end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's process ends: it no longer runs, and every later wait reports it.
    PeerGone,
    /// Another thread of the driven end's process cancels one wait.
    Cancel,
}

/// The state that both ends share besides their memory: the time, the doorbells and the script.
#[derive(Debug)]
pub(super) struct SharedState {
    now: AtomicU64,
    /// How often each end was rung.
    rung: [AtomicU64; 2],
    script: Mutex<Vec<(Instant, Event)>>,
    gone: AtomicBool,
    cancelled: AtomicBool,
    /// The messages in flight to each end over the control socket.
    control: [Mutex<VecDeque<Posted>>; 2],
    acts: [Mutex<Acts>; 2],
}

/// A message on the control socket with its memory.
pub(super) type Posted = (Vec<u8>, Vec<SimMemory>);

/// The operations of an end, and which of them fail.
#[derive(Debug, Default)]
struct Acts {
    done: Vec<Act>,
    shortages: Vec<(Act, Range<u64>, Resource)>,
}

impl Default for SharedState {
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

impl SharedState {
    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Advances the time, never backwards, and runs the events scripted until then.
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

    /// Returns the time of the next scripted event.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let script = self.script.lock().expect("no panic while it is locked");
        script.iter().map(|(when, _)| *when).min()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Returns whether a cancellation is pending, and consumes it.
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

    /// Returns copies of the messages that this end has not received.
    pub(super) fn unread(&self, end: usize) -> Vec<Posted> {
        self.queue(end).iter().cloned().collect()
    }

    pub(super) fn runs_short(&self, end: usize, act: Act, which: Range<u64>, resource: Resource) {
        self.acts_of(end).shortages.push((act, which, resource));
    }

    pub(super) fn acts(&self, end: usize, act: Act) -> u64 {
        self.acts_of(end).count(act)
    }

    /// Counts an operation that needs `bytes`, and makes it fail if scripted.
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
