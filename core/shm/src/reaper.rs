use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::lock;

/// How long one close may take before another thread takes over the queue behind it.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);
/// The maximum number of threads of a reaper. One is idle unless that many are stuck in a close.
const MAX_THREADS: usize = 16;

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "it is const; for Windows clippy does not see it")]
    static OWNER: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the owner of the handles that this thread gives to reapers from now on. If they cannot be closed, that owner is
/// refused.
pub fn reap_for(owner: &impl Hash) {
    OWNER.set(Some(number(owner)));
}

fn number(owner: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    owner.hash(&mut hasher);
    hasher.finish()
}

/// Closes descriptors or handles that a peer sent and nobody verified.
///
/// Closing one can block, even forever, so the reaper has threads of its own. The first starts with the first handle. An idle
/// thread stands by and takes over when a close has taken 100 ms and others wait behind it, up to 16 threads. A process has
/// one reaper, in a `static`.
#[derive(Debug)]
pub struct Reaper<H: 'static> {
    state: Mutex<State<H>>,
    changed: Condvar,
    close: fn(H),
}

#[derive(Debug)]
struct State<H> {
    /// Each with its owner, if set.
    waiting: VecDeque<(H, Option<u64>)>,
    /// The owners of the handles that threads are closing now.
    closing: Vec<Option<u64>>,
    /// When the most recent close began.
    began: Option<Instant>,
    threads: usize,
}

impl<H: Send> Reaper<H> {
    /// Creates a reaper without threads that closes handles by calling `close`.
    pub const fn new(close: fn(H)) -> Self {
        let state =
            State { waiting: VecDeque::new(), closing: Vec::new(), began: None, threads: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new(), close }
    }

    /// Closes `handle` on a reaper thread and does not wait for it.
    ///
    /// The queue is unbounded: code that admits peers can check [`Reaper::backlog`].
    pub fn reap(&'static self, handle: H) {
        let mut state = lock(&self.state);
        if state.threads == 0 && !self.start(&mut state) {
            drop(state);
            // Without a thread (no memory, no process slots) the handle is closed here: late is better than leaked.
            (self.close)(handle);
            return;
        }
        state.waiting.push_back((handle, OWNER.get()));
        drop(state);
        self.changed.notify_one();
    }

    /// Returns how many handles are queued or being closed. A number that stays high means that a peer sent something whose
    /// close blocks.
    pub fn backlog(&self) -> usize {
        let state = lock(&self.state);
        state.waiting.len() + state.closing.len()
    }

    /// Returns whether every thread is stuck in a close and at least one of those handles belongs to this owner.
    pub fn has_blocked_close(&self, owner: &impl Hash) -> bool {
        let state = lock(&self.state);
        state.closing.len() >= MAX_THREADS && state.closing.contains(&Some(number(owner)))
    }

    fn start(&'static self, state: &mut State<H>) -> bool {
        let thread = thread::Builder::new().name("bellwire-reaper".into());
        let started = thread.spawn(move || self.run()).is_ok();
        state.threads += usize::from(started);
        started
    }

    fn run(&'static self) {
        let mut state = lock(&self.state);
        loop {
            state = self.wait_for_turn(state);
            let Some((handle, owner)) = state.waiting.pop_front() else { continue };
            state.closing.push(owner);
            state.began = Some(Instant::now());
            if state.threads == state.closing.len() && state.threads < MAX_THREADS {
                // If no thread can start, the queue waits for this close.
                self.start(&mut state);
            }
            drop(state);
            (self.close)(handle);
            state = lock(&self.state);
            if let Some(at) = state.closing.iter().position(|of| *of == owner) {
                state.closing.swap_remove(at);
            }
            // One thread closes and one stands by. Threads that replaced stuck ones end with the last stuck close.
            if state.threads - state.closing.len() > 2 {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Waits until there is a handle to close and no other thread is about to close it.
    fn wait_for_turn<'a>(&self, mut state: MutexGuard<'a, State<H>>) -> MutexGuard<'a, State<H>> {
        loop {
            let left = match state.began {
                Some(began) if !state.closing.is_empty() => {
                    CLOSE_TIMEOUT.saturating_sub(began.elapsed())
                }
                _ => Duration::ZERO,
            };
            if state.waiting.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if left.is_zero() {
                return state;
            } else {
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A handle whose close returns when its other end says so or is gone, and then reports that.
    struct Handle {
        closable: Receiver<()>,
        closed: Sender<()>,
    }

    fn close(handle: Handle) {
        let Handle { closable, closed } = handle;
        let _ = closable.recv();
        let _ = closed.send(());
    }

    fn handle() -> (Handle, Sender<()>, Receiver<()>) {
        let (may_close, closable) = channel();
        let (closed, was_closed) = channel();
        (Handle { closable, closed }, may_close, was_closed)
    }

    #[test]
    fn a_close_that_never_returns_holds_up_nothing_behind_it() {
        static REAPER: Reaper<Handle> = Reaper::new(close);
        let mut stuck = Vec::new();
        for _ in 1..MAX_THREADS {
            let (handle, may_close, was_closed) = handle();
            REAPER.reap(handle);
            stuck.push((may_close, was_closed));
        }
        let (last, may_close, was_closed) = handle();
        REAPER.reap(last);
        drop(may_close);
        was_closed.recv_timeout(Duration::from_secs(60)).unwrap();
        wait_until(|| REAPER.backlog() == MAX_THREADS - 1);
        let is_stuck = || [1, 2].map(|owner| REAPER.has_blocked_close(&owner));
        assert_eq!(is_stuck(), [false; 2]);
        reap_for(&1);
        let (handle, may_close, was_closed) = handle();
        REAPER.reap(handle);
        wait_until(|| is_stuck() == [true, false]);
        stuck.push((may_close, was_closed));
        for (may_close, was_closed) in stuck {
            drop(may_close);
            was_closed.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        wait_until(|| lock(&REAPER.state).threads == 2 && REAPER.backlog() == 0);
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
    }
}
