//! The other end as a real process: this binary again, in a role.
//!
//! [`spawn`] starts it with a hidden first argument, `--bellwire-peer ROLE`, on the CPUs asked for. Its standard
//! input is a control socket: the descriptors it needs come over it, then the messages between bench and role. It
//! ends when that socket closes (in a role that reads it) and is killed when the thread that started it dies, so a
//! spinning peer never outlives its bench.

use std::error::Error as StdError;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::{env, fs, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, pidfd_open, set_parent_process_death_signal,
};

use super::{Error, Result, cpus};

/// A name, and what a process started under it does; its error is printed and becomes exit code 1.
pub type Role = (&'static str, fn(&mut Peer) -> RoleResult);

/// How a role ends.
pub type RoleResult = std::result::Result<(), Box<dyn StdError + Send + Sync>>;

/// The peers that live now.
static CHILDREN: Mutex<Vec<u32>> = Mutex::new(Vec::new());

const ARGUMENT: &str = "--bellwire-peer";
const READY: &[u8] = b"ready";
/// What descriptors are passed with: a message without a byte would carry none.
const HELLO: &[u8] = b"hello";
/// As long as ten thousand connections take to open on a busy machine.
const READY_WITHIN: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
const END_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// The most descriptors that the kernel passes in one message.
const DESCRIPTORS: usize = 253;

/// Starts this binary again as `role`, and waits for [`Peer::ready`].
///
/// `cpus` are those it may run on; none means all that this process was allowed. `descriptors` arrive in the
/// same order ([`Peer::descriptor`]). It is killed when the calling *thread* ends (`PR_SET_PDEATHSIG` in
/// prctl(2)), so call this from a thread that outlives the [`Child`].
pub fn spawn(
    role: &'static str,
    cpus: &[usize],
    args: &[String],
    descriptors: &[BorrowedFd<'_>],
) -> Result<Child> {
    let cpus = if cpus.is_empty() { cpus::allowed()? } else { cpus };
    let cpus = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let (control, theirs) = UnixStream::pair().map_err(Error::system("create a socket pair"))?;
    // Not `current_exe()`: that is a path, and names another binary once cargo has rebuilt it.
    let process = Command::new("/proc/self/exe")
        .arg0(format!("bellwire-peer-{role}"))
        .args([ARGUMENT, role, &process::id().to_string(), &cpus])
        .args(args)
        .stdin(OwnedFd::from(theirs))
        .spawn()
        .map_err(Error::system("start a peer process"))?;
    let pidfd = pidfd_open(Pid::from_child(&process), PidfdFlags::empty())
        .map_err(Error::system("open a pidfd"))?;
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).push(process.id());
    let child = Child { role, process, pidfd, control, watchers: Vec::new() };
    pass(child.control.as_fd(), descriptors).map_err(|_| child.gone())?;
    child.wait_ready()?;
    Ok(child)
}

/// How often this thread and the threads of all live peers were preempted so far, for want of a CPU.
///
/// If it is the same before and after a sample of spinning code, nothing else ran on their CPUs.
pub fn preemptions() -> u64 {
    let mut sum = preempted("/proc/thread-self/status");
    for pid in CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            sum += preempted(&format!("{}/status", thread.path().display()));
        }
    }
    sum
}

/// A running peer. Dropping it orders it to end, kills it if it does not, and reaps it.
#[derive(Debug)]
pub struct Child {
    role: &'static str,
    process: process::Child,
    pidfd: OwnedFd,
    control: UnixStream,
    watchers: Vec<JoinHandle<()>>,
}

impl Child {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it was started for.
    pub fn role(&self) -> &'static str {
        self.role
    }

    /// The error for a peer that ended too early.
    pub fn gone(&self) -> Error {
        Error::PeerGone { role: self.role }
    }

    /// Sends a message to [`Peer::receive`].
    pub fn send(&self, message: &[u8]) -> Result<()> {
        send_whole(&self.control, message).map_err(|_| self.gone())
    }

    /// Waits for a message from [`Peer::send`].
    pub fn receive(&self) -> Result<Vec<u8>> {
        match receive_whole(&self.control) {
            Ok(Some(message)) => Ok(message),
            Ok(None) | Err(_) => Err(self.gone()),
        }
    }

    /// Calls `died` on a thread of its own when the process ends, for whatever reason.
    ///
    /// This ends the wait of a thread that waits for the peer without a timeout, and must not pay for one.
    pub fn watch(&mut self, died: impl FnOnce() + Send + 'static) -> Result<()> {
        let pidfd = self.pidfd.try_clone().map_err(Error::system("duplicate a pidfd"))?;
        self.watchers.push(thread::spawn(move || {
            let ended = wait_readable(pidfd.as_fd(), None);
            debug_assert!(ended.is_ok(), "a pidfd can always be polled");
            died();
        }));
        Ok(())
    }

    fn wait_ready(&self) -> Result<()> {
        let doing = "wait for a peer";
        if !wait_readable(self.control.as_fd(), Some(&READY_WITHIN))
            .map_err(Error::system(doing))?
        {
            return Err(Error::NotReady { seconds: READY_WITHIN.tv_sec });
        }
        if self.receive()? == READY { Ok(()) } else { Err(self.gone()) }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Every step may find the peer dead already, which is intended.
        let _ = self.control.shutdown(Shutdown::Write);
        if !matches!(wait_readable(self.pidfd.as_fd(), Some(&END_WITHIN)), Ok(true)) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        CHILDREN
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|&pid| pid != self.process.id());
        for watcher in self.watchers.drain(..) {
            let _ = watcher.join();
        }
    }
}

/// What a role has: its arguments, its descriptors, and the control socket.
#[derive(Debug)]
pub struct Peer {
    args: Vec<String>,
    descriptors: std::vec::IntoIter<OwnedFd>,
    control: UnixStream,
}

impl Peer {
    /// The argument at `index`.
    pub fn arg(&self, index: usize) -> Result<&str> {
        self.args
            .get(index)
            .map(String::as_str)
            .ok_or_else(|| Error::arguments(format!("{index} arguments")))
    }

    /// The argument at `index`, a number.
    pub fn number(&self, index: usize) -> Result<usize> {
        let text = self.arg(index)?;
        text.parse().map_err(|_| Error::arguments(format!("`{text}` for a number")))
    }

    /// The next descriptor, in the order of [`spawn`]'s list.
    pub fn descriptor(&mut self) -> Result<OwnedFd> {
        self.descriptors.next().ok_or_else(|| Error::arguments("too few descriptors"))
    }

    /// Lets [`spawn`] return.
    pub fn ready(&self) -> Result<()> {
        self.send(READY)
    }

    /// Sends a message to [`Child::receive`].
    pub fn send(&self, message: &[u8]) -> Result<()> {
        send_whole(&self.control, message).map_err(Error::system("answer the bench"))
    }

    /// Waits for a message from [`Child::send`]; `None` means that this process is to end.
    pub fn receive(&self) -> Result<Option<Vec<u8>>> {
        receive_whole(&self.control).map_err(Error::system("read from the bench"))
    }
}

/// Runs the role that this process was started for; `None` if it was not started by [`spawn`].
pub fn roles(tables: &[&[Role]]) -> Option<ExitCode> {
    let mut args = env::args().skip(1);
    if args.next().as_deref() != Some(ARGUMENT) {
        return None;
    }
    let name = args.next().unwrap_or_default();
    match run(&name, args.collect(), tables) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("bellwire peer `{name}`: {error}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn run(name: &str, mut args: Vec<String>, tables: &[&[Role]]) -> RoleResult {
    let role = tables.iter().copied().flatten().find(|(role, _)| *role == name);
    let Some((_, role)) = role else {
        return Err(Error::arguments(format!(
            "an unknown role `{name}`: give it to floor::peer_main"
        ))
        .into());
    };
    if args.len() < 2 {
        return Err(Error::arguments("too few arguments").into());
    }
    let rest = args.split_off(2);
    let [parent, list] = args.as_slice() else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The signal is for deaths from now on; a parent that died before has left us to another.
    if getppid().map(|pid| pid.as_raw_nonzero().get().to_string()).as_ref() != Some(parent) {
        return Ok(());
    }
    let list: Vec<usize> = list.split(',').filter_map(|cpu| cpu.parse().ok()).collect();
    cpus::pin(&list)?;
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let descriptors = passed(control.as_fd())?.into_iter();
    role(&mut Peer { args: rest, descriptors, control })
}

/// Sends `descriptors` in one message.
pub fn pass(socket: BorrowedFd<'_>, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("more descriptors than one message holds"));
    }
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(HELLO)], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// The descriptors of one message.
pub fn passed(socket: BorrowedFd<'_>) -> Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut hello = [0; HELLO.len()];
    let mut hello = [IoSliceMut::new(&mut hello)];
    retry_on_intr(|| recvmsg(socket, &mut hello, &mut ancillary, RecvFlags::CMSG_CLOEXEC))
        .map_err(Error::system("receive descriptors"))?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok(descriptors)
}

/// Sends a message after its length.
fn send_whole(mut socket: &UnixStream, message: &[u8]) -> io::Result<()> {
    socket.write_all(&[&message.len().to_ne_bytes(), message].concat())
}

/// The next message; `None` at the end.
fn receive_whole(mut socket: &UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; size_of::<usize>()];
    match socket.read_exact(&mut len) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut message = vec![0; usize::from_ne_bytes(len)];
    socket.read_exact(&mut message)?;
    Ok(Some(message))
}

/// Whether `descriptor` became readable in time.
fn wait_readable(descriptor: BorrowedFd<'_>, within: Option<&Timespec>) -> io::Result<bool> {
    let mut wanted = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    Ok(retry_on_intr(|| poll(&mut wanted, within))? > 0)
}

/// The count in a `status` file; 0 for a thread that is gone.
fn preempted(path: &str) -> u64 {
    let status = fs::read_to_string(path).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
