//! What the kernel reports of processes, and what it can isolate for them.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use bellwire::RunDir;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::thread::{
    ClockId, CpuSet, NanosleepRelativeResult, Timespec, clock_nanosleep_relative,
    sched_getaffinity, sched_setaffinity,
};

use super::child::Process;

/// Whether unshare(1) makes user namespaces here; says so if not.
pub(crate) fn can_unshare() -> bool {
    let made = Command::new("unshare").args(["--user", "true"]).output();
    let can = made.as_ref().is_ok_and(|made| made.status.success());
    if !can {
        eprintln!("not run: unshare --user does not work here: {made:?}");
    }
    can
}

/// Starts a process by unshare(1), in namespaces of its own as the options say.
pub(crate) fn start_unshared(options: &[&str], role: &str, run_dir: &RunDir) -> Process {
    let mut command = Command::new("unshare");
    command.args(options).arg(std::env::current_exe().unwrap());
    Process::start_by(command, role, run_dir)
}

/// The calling thread's number.
pub(crate) fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// How many descriptors a process holds.
pub(crate) fn fds(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The process, as a descriptor that becomes readable when it has died.
pub(crate) fn pidfd(pid: u32) -> OwnedFd {
    pidfd_open(Pid::from_raw(pid.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap()
}

/// Copies of all descriptors of a process. The files stay open when it dies.
pub(crate) fn copies(pid: u32) -> Vec<OwnedFd> {
    let pidfd = pidfd(pid);
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let numbers = links.map(|link| link.unwrap().file_name().to_str().unwrap().parse().unwrap());
    // One may be closed while it is read.
    let copy = |fd: i32| pidfd_getfd(&pidfd, fd, PidfdGetfdFlags::empty()).ok();
    numbers.filter_map(copy).collect()
}

/// Bellwire's memory in a process: by inode its name and size in bytes.
pub(crate) fn memory(pid: u32) -> BTreeMap<u64, (String, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = BTreeMap::new();
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let range = fields.next().unwrap();
        let (inode, name) = (fields.nth(3).unwrap(), fields.next().unwrap_or(""));
        let Some(name) = name.strip_prefix("/memfd:bellwire-") else { continue };
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        let entry = memory.entry(inode.parse().unwrap()).or_insert((name.to_owned(), 0));
        entry.1 += end - start;
    }
    memory
}

/// The inodes of the memfds of this name that a process has descriptors of.
pub(crate) fn memfds(pid: u32, name: &str) -> Vec<u64> {
    let name = format!("/memfd:{name}");
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let paths = links.map(|link| link.unwrap().path());
    // Some are closed while they are read.
    let is_one = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with(&name))
    };
    paths.filter(is_one).filter_map(|path| Some(fs::metadata(path).ok()?.ino())).collect()
}

/// Whether all threads of a process sleep.
pub(crate) fn is_asleep(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut stats =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
    stats.all(|stat| stat.rsplit(')').next().unwrap().trim_start().starts_with('S'))
}

/// Voluntary context switches of all threads: how often one went to sleep.
pub(crate) fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")));
    statuses.map(|status| field(&status.unwrap(), "voluntary_ctxt_switches:")).sum()
}

/// Voluntary context switches of a thread of this process.
pub(crate) fn thread_sleeps(thread: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    field(&status, "voluntary_ctxt_switches:")
}

/// Nobody whose sleeps are counted wakes up within a time that is longer than any slice of time in the code. That nothing
/// happens can only be shown by waiting.
#[track_caller]
pub(crate) fn assert_no_wake_ups(sleeps: impl Fn() -> u64) {
    let woken = || {
        let before = sleeps();
        let span = Timespec { tv_sec: 2, tv_nsec: 0 };
        let slept = clock_nanosleep_relative(ClockId::Monotonic, &span);
        assert!(matches!(slept, NanosleepRelativeResult::Ok));
        sleeps() - before
    };
    // On a busy machine a thread may look asleep while it is still going to sleep: the second reading sees only
    // sleepers.
    assert!(woken() == 0 || woken() == 0, "somebody wakes up");
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

/// The processors that the calling thread may use.
pub(crate) fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Keeps the calling thread, and those that it starts, on these processors.
pub(crate) fn pin(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).unwrap();
}
