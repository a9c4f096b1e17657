#![allow(
    unsafe_code,
    reason = "entries are pushed and the kernel is entered; what both name is a descriptor, never memory"
)]
//! Waiting with io_uring.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use bellwire_core::Instant;
use io_uring::squeue::Flags;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::{Event, Events, Interest, Trigger};
use crate::clock;

/// Requests that are handed to the kernel at once. More of them go in several steps.
const SUBMISSIONS: u32 = 256;
/// What the kernel has ready before it keeps the rest to itself until there is room again.
const COMPLETIONS: u32 = 1024;
/// `IORING_ENTER_GETEVENTS`: runs what the kernel has put off for this thread, and waits where that is asked for.
const GET_EVENTS: u32 = 1 << 0;
/// `IORING_ENTER_EXT_ARG`: there is a limit to the wait.
const EXT_ARG: u32 = 1 << 3;
/// `IORING_ENTER_NO_IOWAIT`, Linux 6.15: a server without work does not show as one that waits for a disk.
const NO_IOWAIT: u32 = 1 << 7;
/// What a removal completes with, should it fail: no watch has it.
const REMOVAL: u64 = u64::MAX;

/// An [`io_uring(7)`](https://man7.org/linux/man-pages/man7/io_uring.7.html) instance that polls descriptors,
/// `CLOEXEC`. It belongs to the thread that made it.
///
/// An edge is a multishot poll, which stays with the kernel. A level is a poll for once: what it reported is polled
/// again by the next wait, which tells at once that it is still ready. All of that is handed over by the one call that
/// waits. A completion queue that is full loses nothing: what the kernel cannot keep ends the poll that it came from,
/// and that is begun again, and reports what is ready by then.
pub struct Uring {
    ring: IoUring,
    /// By the number of the descriptor.
    watches: Vec<Option<Watch>>,
    /// To be polled from the next wait on.
    resting: Vec<Key>,
    generation: u32,
    enter_flags: u32,
    /// Only the thread that made it may enter the kernel with it.
    thread: PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    token: u64,
    interest: Interest,
    /// Tells its completions from those of an earlier watch of the same number.
    generation: u32,
}

/// A watch, as a completion names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    fd: RawFd,
    generation: u32,
}

impl Uring {
    /// A new one, empty.
    ///
    /// # Errors
    /// `ENOSYS` and `EPERM` where the kernel, a sandbox or the operator allows no io_uring, `EINVAL` before Linux 6.1,
    /// `EMFILE` and `ENFILE` at the limit of open files, `ENOMEM`.
    pub fn create() -> Result<Self, Errno> {
        Self::with_completions(COMPLETIONS)
    }

    /// With room for so many completions, rounded up to a power of two.
    ///
    /// # Errors
    /// As [`Uring::create`].
    pub fn with_completions(completions: u32) -> Result<Self, Errno> {
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(completions.max(2))
            .build(SUBMISSIONS.min(completions))
            .map_err(|error| errno(&error))?;
        let hides_wait = ring.params().is_feature_no_iowait();
        let enter_flags = GET_EVENTS | EXT_ARG | if hides_wait { NO_IOWAIT } else { 0 };
        let (watches, resting) = (Vec::new(), Vec::new());
        Ok(Self { ring, watches, resting, generation: 0, enter_flags, thread: PhantomData })
    }

    /// Watches `fd` from the next wait on, instead of what was watched under its number. Delete it before it is closed:
    /// this holds it open.
    ///
    /// # Errors
    /// `EBADF` for a number that no process can have.
    pub fn add(&mut self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        let fd = fd.as_fd().as_raw_fd();
        let at = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if self.watches.len() <= at {
            self.watches.resize(at + 1, None);
        }
        self.forget(fd)?;
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        if let Some(slot) = self.watches.get_mut(at) {
            *slot = Some(Watch { token, interest, generation });
        }
        self.resting.push(Key { fd, generation });
        Ok(())
    }

    /// Watches `fd`, which is watched already, for something else.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn modify(&mut self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        let fd = fd.as_fd();
        self.watch(fd.as_raw_fd()).ok_or(Errno::NOENT)?;
        self.add(fd, token, interest)
    }

    /// Stops watching `fd`, and lets go of it.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn delete(&mut self, fd: impl AsFd) -> Result<(), Errno> {
        if !self.forget(fd.as_fd().as_raw_fd())? {
            return Err(Errno::NOENT);
        }
        // The kernel lets go of a file when the poll of it has completed, which this thread has to do.
        self.enter(0, None)
    }

    /// Waits until something is ready or `timeout` is over (`None`: for ever), and says how many events
    /// there are. A signal ends the wait with none. One call of
    /// [`io_uring_enter(2)`](https://man7.org/linux/man-pages/man2/io_uring_enter.2.html), as a rule.
    ///
    /// # Errors
    /// `EAGAIN` and `ENOMEM` when the kernel has no memory.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, Errno> {
        events.clear();
        self.begin_resting()?;
        let until = match timeout {
            Some(Duration::ZERO) | None => None,
            Some(timeout) => Some(clock::now().after(timeout)),
        };
        loop {
            let waits = timeout != Some(Duration::ZERO) && self.ring.completion().is_empty();
            let entered = self.enter(u32::from(waits), until);
            self.harvest(events);
            match entered {
                Err(Errno::INTR | Errno::TIME) => break,
                // The kernel wants room for what has completed, which there is now.
                Ok(()) | Err(Errno::BUSY) => {}
                Err(error) if events.found.is_empty() => return Err(error),
                Err(_) => break,
            }
            let is_over = || until.map_or(!waits, |until| clock::now() >= until);
            if !events.found.is_empty() || is_over() {
                break;
            }
        }
        Ok(events.found.len())
    }

    fn watch(&self, fd: RawFd) -> Option<&Watch> {
        self.watches.get(usize::try_from(fd).ok()?)?.as_ref()
    }

    /// Whether it was watched.
    fn forget(&mut self, fd: RawFd) -> Result<bool, Errno> {
        let slot = usize::try_from(fd).ok().and_then(|at| self.watches.get_mut(at));
        let Some(Watch { generation, .. }) = slot.and_then(Option::take) else { return Ok(false) };
        let key = Key { fd, generation };
        let before = self.resting.len();
        self.resting.retain(|resting| *resting != key);
        if self.resting.len() == before {
            let removal = opcode::PollRemove::new(key.number()).build();
            self.push(&removal.user_data(REMOVAL).flags(Flags::SKIP_SUCCESS))?;
        }
        Ok(true)
    }

    /// Polls what rests.
    fn begin_resting(&mut self) -> Result<(), Errno> {
        while let Some(key) = self.resting.pop() {
            let Some(Watch { interest, generation, .. }) = self.watch(key.fd) else { continue };
            if *generation != key.generation {
                continue;
            }
            let is_edge = interest.trigger == Trigger::Edge;
            let poll = opcode::PollAdd::new(Fd(key.fd), mask(*interest)).multi(is_edge).build();
            if let Err(error) = self.push(&poll.user_data(key.number())) {
                self.resting.push(key);
                return Err(error);
            }
        }
        Ok(())
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<(), Errno> {
        // SAFETY: a poll, or the removal of one: neither has memory that must outlive it.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            match self.ring.submit().map_err(|error| errno(&error)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands over what was pushed, and waits until `want` completions are there.
    fn enter(&mut self, want: u32, until: Option<Instant>) -> Result<(), Errno> {
        let pushed = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        let left = clock::left(until).map(Timespec::from);
        let args = left.as_ref().map_or(SubmitArgs::new(), |left| SubmitArgs::new().timespec(left));
        // SAFETY: the argument is what the flags say it is, and outlives the call.
        let entered =
            unsafe { self.ring.submitter().enter(pushed, want, self.enter_flags, Some(&args)) };
        entered.map(drop).map_err(|error| errno(&error))
    }

    /// Takes what has completed, as far as there is room for it.
    fn harvest(&mut self, events: &mut Events) {
        let Self { ring, watches, resting, .. } = self;
        for completion in ring.completion() {
            let Some(key) = Key::parse(completion.user_data()) else { continue };
            let watch = usize::try_from(key.fd).ok().and_then(|at| watches.get(at)?.as_ref());
            let Some(watch) = watch.filter(|watch| watch.generation == key.generation) else {
                continue;
            };
            let ended = !cqueue::more(completion.flags());
            let (event, goes_on) = event(watch.token, completion.result());
            if ended && goes_on {
                resting.push(key);
            }
            events.found.extend(event);
            if events.found.len() >= events.most {
                break;
            }
        }
    }
}

impl Drop for Uring {
    /// Lets go of what is still watched: the kernel would do so later, on a thread of its own.
    fn drop(&mut self) {
        let all = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
        // That there is nothing to cancel is an error.
        if all.is_ok() {
            let _ = self.enter(0, None);
        }
    }
}

impl AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring is there.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("ring", &self.ring.as_raw_fd()).finish_non_exhaustive()
    }
}

impl Key {
    fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.fd.unsigned_abs())
    }

    fn parse(number: u64) -> Option<Self> {
        let fd = RawFd::try_from(number & 0xffff_ffff).ok()?;
        let generation = u32::try_from(number >> 32).ok()?;
        Some(Self { fd, generation })
    }
}

/// Why there is no io_uring, for the operator.
pub(super) fn why_not(error: Errno) -> &'static str {
    match error {
        Errno::NOSYS => "this kernel has no io_uring, or a sandbox (seccomp) hides it",
        Errno::PERM | Errno::ACCESS => {
            "the sysctl kernel.io_uring_disabled or a sandbox (seccomp) forbids io_uring"
        }
        Errno::INVAL => "io_uring is too old here: Linux 6.1 or newer is needed",
        Errno::NOMEM => "there is no memory for io_uring, or RLIMIT_MEMLOCK allows none",
        Errno::MFILE | Errno::NFILE => "there is no descriptor left for io_uring: RLIMIT_NOFILE",
        _ => "the system refused to set up io_uring",
    }
}

/// Hang-ups and errors are always reported.
fn mask(interest: Interest) -> u32 {
    let mut flags = PollFlags::RDHUP;
    flags.set(PollFlags::IN, interest.readable);
    flags.set(PollFlags::OUT, interest.writable);
    flags.bits().into()
}

/// What a completion tells, and whether to poll the descriptor again.
fn event(token: u64, result: i32) -> (Option<Event>, bool) {
    let Ok(bits) = u16::try_from(result) else {
        // Removed, or no memory at the moment: nothing is known of the descriptor.
        let again = [Errno::CANCELED, Errno::NOMEM, Errno::AGAIN]
            .iter()
            .any(|error| error.raw_os_error() == -result);
        let failed = Event { token, readable: false, writable: false, hung_up: true };
        return (Some(failed).filter(|_| !again), again);
    };
    let flags = PollFlags::from_bits_retain(bits);
    let ready = Event {
        token,
        readable: flags.contains(PollFlags::IN),
        writable: flags.contains(PollFlags::OUT),
        hung_up: flags.intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR),
    };
    (Some(ready), true)
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
