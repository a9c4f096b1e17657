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

use super::{Events, Interest, PollEvent, Trigger};
use crate::clock;

/// How many requests fit into the submission queue. More are submitted in several steps.
const SUBMISSIONS: u32 = 256;
/// How many completions fit into the ring before the kernel holds back the rest.
const COMPLETIONS: u32 = 1024;
/// `IORING_ENTER_GETEVENTS`: runs the work that the kernel deferred for this thread, and waits if requested.
const GET_EVENTS: u32 = 1 << 0;
/// `IORING_ENTER_EXT_ARG`: the wait has a limit.
const EXT_ARG: u32 = 1 << 3;
/// `IORING_ENTER_NO_IOWAIT`, Linux 6.15: an idle server does not show up as waiting for a disk.
const NO_IOWAIT: u32 = 1 << 7;
/// The token with which a failed removal completes; no watch uses it.
const REMOVAL: u64 = u64::MAX;

/// An [`io_uring(7)`](https://man7.org/linux/man-pages/man7/io_uring.7.html) instance that polls descriptors, `CLOEXEC`. It
/// belongs to the thread that created it.
///
/// An edge trigger is a multishot poll, which stays in the kernel. A level trigger is a one-shot poll: the next wait polls a
/// reported descriptor again and immediately reports it if it is still ready. The one call that waits also submits all of
/// this. A full completion queue loses nothing: an event that the kernel cannot store ends its poll, which is started again
/// and reports what is ready by then.
pub struct Uring {
    ring: IoUring,
    /// Indexed by descriptor number.
    watches: Vec<Option<Watch>>,
    /// Polled again from the next wait on.
    resting: Vec<Key>,
    generation: u32,
    enter_flags: u32,
    /// Only the thread that created it may enter the kernel with it.
    thread: PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    token: u64,
    interest: Interest,
    /// Distinguishes its completions from those of an earlier watch of the same number.
    generation: u32,
}

/// Identifies a watch in a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    fd: RawFd,
    generation: u32,
}

impl Uring {
    /// Creates an empty instance.
    ///
    /// # Errors
    /// `ENOSYS` and `EPERM` where the kernel, a sandbox or the operator forbids io_uring, `EINVAL` before Linux 6.1, `EMFILE`
    /// and `ENFILE` at the limit of open files, `ENOMEM`.
    pub fn create() -> Result<Self, Errno> {
        Self::with_completions(COMPLETIONS)
    }

    /// Creates an instance with room for `completions`, rounded up to a power of two.
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

    /// Watches `fd` from the next wait on and replaces an earlier watch of its number. Delete it before closing it: the watch
    /// holds it open.
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

    /// Changes what an already watched `fd` is watched for.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn modify(&mut self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        let fd = fd.as_fd();
        self.watch(fd.as_raw_fd()).ok_or(Errno::NOENT)?;
        self.add(fd, token, interest)
    }

    /// Stops watching `fd` and releases it.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn delete(&mut self, fd: impl AsFd) -> Result<(), Errno> {
        if !self.forget(fd.as_fd().as_raw_fd())? {
            return Err(Errno::NOENT);
        }
        // The kernel releases a file when its poll has completed, and this thread has to run that completion.
        self.enter(0, None)
    }

    /// Waits until something is ready or `timeout` is over (`None`: forever), and returns the number of events. A signal ends
    /// the wait with none. Usually one call of
    /// [`io_uring_enter(2)`](https://man7.org/linux/man-pages/man2/io_uring_enter.2.html), as a rule.
    ///
    /// # Errors
    /// `EAGAIN` and `ENOMEM` when the kernel has no memory.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, Errno> {
        events.clear();
        self.rearm_polls()?;
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
                // The kernel needed room for completions, and there is room now.
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

    /// Removes the watch and returns whether there was one.
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

    /// Polls the descriptors in `resting` again.
    fn rearm_polls(&mut self) -> Result<(), Errno> {
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

    /// Submits the queued requests and waits for `want` completions.
    fn enter(&mut self, want: u32, until: Option<Instant>) -> Result<(), Errno> {
        let pushed = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        let left = clock::left(until).map(Timespec::from);
        let args = left.as_ref().map_or(SubmitArgs::new(), |left| SubmitArgs::new().timespec(left));
        // SAFETY: the argument is what the flags say it is, and outlives the call.
        let entered =
            unsafe { self.ring.submitter().enter(pushed, want, self.enter_flags, Some(&args)) };
        entered.map(drop).map_err(|error| errno(&error))
    }

    /// Takes as many completions as there is room for.
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
    /// Removes the remaining watches: otherwise the kernel would do so later, on a thread of its own.
    fn drop(&mut self) {
        let all = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
        // Having nothing to cancel is an error too.
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

/// Returns why io_uring is not available, for the operator.
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

/// Returns the event of a completion and whether to poll the descriptor again.
fn event(token: u64, result: i32) -> (Option<PollEvent>, bool) {
    let Ok(bits) = u16::try_from(result) else {
        // Removed, or no memory at the moment: the descriptor's state is unknown.
        let again = [Errno::CANCELED, Errno::NOMEM, Errno::AGAIN]
            .iter()
            .any(|error| error.raw_os_error() == -result);
        let failed = PollEvent { token, readable: false, writable: false, hung_up: true };
        return (Some(failed).filter(|_| !again), again);
    };
    let flags = PollFlags::from_bits_retain(bits);
    let ready = PollEvent {
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
