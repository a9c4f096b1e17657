#![allow(unsafe_code, reason = "calls pthreads on memory that two processes of this bench share")]
//! A bounded buffer of messages, in shared memory.

use std::ffi::{CStr, c_int};
use std::mem::{MaybeUninit, offset_of};
use std::{io, ptr};

use bellwire_floor::shared::Region;

use crate::Outcome;
use crate::clock;

/// How long a client waits for the other end, ns.
const LIMIT: u64 = 10_000_000_000;

/// Whether a wait ends.
#[derive(Clone, Copy)]
pub(super) enum WaitLimit {
    Forever,
    /// As [`LIMIT`] says.
    Bounded,
}

/// The header before the slots.
#[repr(C, align(128))]
struct Head {
    mutex: libc::pthread_mutex_t,
    filled: libc::pthread_cond_t,
    emptied: libc::pthread_cond_t,
    state: State,
}

/// What the mutex guards, besides the slots.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct State {
    first: usize,
    count: usize,
    closed: usize,
}

/// A buffer. Both processes have it at the same place of the memory.
pub(super) struct Queue {
    at: *mut u8,
    longest: usize,
    slots: usize,
    #[expect(dead_code, reason = "keeps the memory mapped")]
    memory: Region,
}

// SAFETY: the pointer is into memory that `memory` keeps mapped, and the mutex there guards what it points to.
unsafe impl Send for Queue {}

/// The length of a message, before it.
const LEN: usize = size_of::<usize>();

impl Queue {
    /// The bytes that a buffer takes.
    pub(super) fn size(longest: usize, slots: usize) -> usize {
        size_of::<Head>() + (slots * stride(longest)).next_multiple_of(align_of::<Head>())
    }

    pub(super) fn new(memory: &Region, from: usize, longest: usize, slots: usize) -> Outcome<Self> {
        let at = memory.span(from, Self::size(longest, slots))?.as_ptr();
        Ok(Self { at, longest, slots, memory: memory.clone() })
    }

    /// Before the other process has it.
    pub(super) fn initialize(&self) -> Outcome<()> {
        let mut mutex = MaybeUninit::uninit();
        // SAFETY: the attributes are ours, and are initialized by this.
        check(unsafe { libc::pthread_mutexattr_init(mutex.as_mut_ptr()) })?;
        let shared = libc::PTHREAD_PROCESS_SHARED;
        // SAFETY: they are initialized.
        check(unsafe { libc::pthread_mutexattr_setpshared(mutex.as_mut_ptr(), shared) })?;
        let robust = libc::PTHREAD_MUTEX_ROBUST;
        // SAFETY: they are initialized.
        check(unsafe { libc::pthread_mutexattr_setrobust(mutex.as_mut_ptr(), robust) })?;
        // SAFETY: the mutex lies in the memory, nobody uses it yet, and the attributes are initialized.
        check(unsafe { libc::pthread_mutex_init(self.mutex(), mutex.as_ptr()) })?;

        let mut condition = MaybeUninit::uninit();
        // SAFETY: the attributes are ours, and are initialized by this.
        check(unsafe { libc::pthread_condattr_init(condition.as_mut_ptr()) })?;
        // SAFETY: they are initialized.
        check(unsafe { libc::pthread_condattr_setpshared(condition.as_mut_ptr(), shared) })?;
        let clock = libc::CLOCK_MONOTONIC;
        // SAFETY: they are initialized.
        check(unsafe { libc::pthread_condattr_setclock(condition.as_mut_ptr(), clock) })?;
        for each in [self.filled(), self.emptied()] {
            // SAFETY: it lies in the memory, nobody uses it yet, and the attributes are initialized.
            check(unsafe { libc::pthread_cond_init(each, condition.as_ptr()) })?;
        }
        Ok(())
    }

    /// Waits for an empty slot, and copies `message` into it.
    #[inline]
    pub(super) fn put(&self, message: &[u8], limit: WaitLimit) -> Outcome<()> {
        if message.len() > self.longest {
            return Err("a message that is too long for a slot".into());
        }
        let mut locked = self.lock()?;
        let mut state = locked.state()?;
        while state.count == self.slots {
            locked.wait(self.emptied(), limit)?;
            state = locked.state()?;
        }
        let slot = self.slot(state.first + state.count);
        // SAFETY: the slot begins with a word, in the memory, aligned, and the mutex is held.
        unsafe { slot.cast::<usize>().write(message.len()) };
        let to = slot.wrapping_add(LEN);
        // SAFETY: a slot has room for the longest message, `message` is private memory, and the mutex is held.
        unsafe { ptr::copy_nonoverlapping(message.as_ptr(), to, message.len()) };
        state.count += 1;
        locked.set(state);
        drop(locked);
        self.signal(self.filled())
    }

    /// Waits for a filled slot, and copies its message out. The message's length.
    #[inline]
    pub(super) fn take(&self, into: &mut [u8], limit: WaitLimit) -> Outcome<usize> {
        let mut locked = self.lock()?;
        let mut state = locked.state()?;
        while state.count == 0 {
            locked.wait(self.filled(), limit)?;
            state = locked.state()?;
        }
        let slot = self.slot(state.first);
        // SAFETY: the slot begins with a word, in the memory, aligned, and the mutex is held.
        let len = unsafe { slot.cast::<usize>().read() };
        let into = into.get_mut(..len).filter(|_| len <= self.longest);
        let into = into.ok_or("a message that is too long")?;
        let from = slot.wrapping_add(LEN);
        // SAFETY: the message is not longer than a slot, `into` is private memory, and the mutex is held.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), len) };
        state.first = (state.first + 1) % self.slots;
        state.count -= 1;
        locked.set(state);
        drop(locked);
        self.signal(self.emptied())?;
        Ok(len)
    }

    /// Tells both ends that no more messages come.
    pub(super) fn close(&self) -> Outcome<()> {
        let mut locked = self.lock()?;
        let state = locked.state()?;
        locked.set(State { closed: 1, ..state });
        drop(locked);
        self.signal(self.filled())?;
        self.signal(self.emptied())
    }

    #[inline]
    fn lock(&self) -> Outcome<Locked<'_>> {
        // SAFETY: the mutex was initialized before the other end got the memory, and is mapped.
        let locked = unsafe { libc::pthread_mutex_lock(self.mutex()) };
        self.owned(locked)?;
        Ok(Locked { queue: self })
    }

    /// Finds out whether the other end has died with the mutex in its hands: then this end has it.
    #[inline]
    fn owned(&self, code: c_int) -> Outcome<()> {
        if code == libc::EOWNERDEAD {
            // SAFETY: the call that gave this code has left the mutex to us.
            check(unsafe { libc::pthread_mutex_consistent(self.mutex()) })?;
            drop(Locked { queue: self });
        }
        check(code)
    }

    #[inline]
    fn signal(&self, condition: *mut libc::pthread_cond_t) -> Outcome<()> {
        // SAFETY: it is one of the two that were initialized before the other end got the memory.
        check(unsafe { libc::pthread_cond_signal(condition) })
    }

    #[inline]
    fn slot(&self, number: usize) -> *mut u8 {
        let at = size_of::<Head>() + number % self.slots * stride(self.longest);
        self.at.wrapping_add(at)
    }

    #[inline]
    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        self.at.wrapping_add(offset_of!(Head, mutex)).cast()
    }

    #[inline]
    fn filled(&self) -> *mut libc::pthread_cond_t {
        self.at.wrapping_add(offset_of!(Head, filled)).cast()
    }

    #[inline]
    fn emptied(&self) -> *mut libc::pthread_cond_t {
        self.at.wrapping_add(offset_of!(Head, emptied)).cast()
    }

    #[inline]
    fn guarded(&self) -> *mut State {
        self.at.wrapping_add(offset_of!(Head, state)).cast()
    }
}

/// The mutex, in the hands of this thread.
struct Locked<'a> {
    queue: &'a Queue,
}

impl Locked<'_> {
    #[inline]
    fn state(&self) -> Outcome<State> {
        // SAFETY: it lies in the memory, aligned, any bytes are a state, and the mutex is held.
        let state = unsafe { self.queue.guarded().read() };
        if state.closed != 0 {
            return Err("the other end has closed the buffer".into());
        }
        Ok(state)
    }

    #[inline]
    fn set(&mut self, state: State) {
        // SAFETY: it lies in the memory, aligned, and the mutex is held.
        unsafe { self.queue.guarded().write(state) };
    }

    #[inline]
    fn wait(&mut self, condition: *mut libc::pthread_cond_t, limit: WaitLimit) -> Outcome<()> {
        let mutex = self.queue.mutex();
        let code = match limit {
            // SAFETY: both were initialized before the other end got the memory, and the mutex is held.
            WaitLimit::Forever => unsafe { libc::pthread_cond_wait(condition, mutex) },
            WaitLimit::Bounded => {
                let until = clock::now() + LIMIT;
                let until = libc::timespec {
                    tv_sec: i64::try_from(until / 1_000_000_000)?,
                    tv_nsec: i64::try_from(until % 1_000_000_000)?,
                };
                // SAFETY: both were initialized before the other end got the memory, and the mutex is held.
                unsafe { libc::pthread_cond_timedwait(condition, mutex, &raw const until) }
            }
        };
        if code == libc::EOWNERDEAD {
            // SAFETY: the call that gave this code has left the mutex to us.
            check(unsafe { libc::pthread_mutex_consistent(mutex) })?;
        }
        check(code)
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the mutex is held by this thread.
        let unlocked = unsafe { libc::pthread_mutex_unlock(self.queue.mutex()) };
        debug_assert_eq!(unlocked, 0, "a mutex that is held can be unlocked");
    }
}

/// The C library, which has the mutex and the condition variables.
pub(super) fn version() -> String {
    // SAFETY: it has no conditions.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: it is a string that lives as long as the program.
    let version = unsafe { CStr::from_ptr(version) };
    format!("glibc {}", version.to_string_lossy())
}

fn stride(longest: usize) -> usize {
    (LEN + longest).next_multiple_of(64)
}

#[inline]
fn check(code: c_int) -> Outcome<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code).into()) }
}
