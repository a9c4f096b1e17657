//! Controls processes by signals, and inspects them by `/proc`.

mod limited;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::ResourceUsage;
pub use limited::{Interrupt, run_within};

/// Whether processes can be inspected here.
pub const IS_POSSIBLE: bool = true;

/// This program, even if its file was replaced meanwhile.
pub const PROGRAM: &str = "/proc/self/exe";

/// Replaces this program by another one, as [`execvp(3)`](https://man7.org/linux/man-pages/man3/exec.3.html) does. Returns
/// only on failure, with the reason.
pub fn exec(command: &mut Command) -> io::Error {
    command.exec()
}

/// Stops all threads of a process, until [`resume`].
///
/// # Errors
/// `ESRCH`: there is no such process; `EPERM`: it is another user's.
pub fn stop(pid: u32) -> io::Result<()> {
    signal(pid, Signal::STOP)
}

/// Resumes a stopped process.
///
/// # Errors
/// As [`stop`].
pub fn resume(pid: u32) -> io::Result<()> {
    signal(pid, Signal::CONT)
}

/// Returns whether every thread of the process is stopped.
pub fn is_stopped(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let stopped = |task: io::Result<fs::DirEntry>| {
        let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
        stat.is_ok_and(|stat| {
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        })
    };
    tasks.into_iter().all(stopped)
}

/// Returns whether SIGKILL ended the process.
pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

/// Shields the processes that this command starts from Ctrl-C: the starting process ends them.
pub fn ignore_terminal_signals(command: &mut Command) {
    command.process_group(0);
}

/// Makes this process end with its parent, even when it is stopped.
pub fn end_with_parent() {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// Returns the resources that the process holds now.
///
/// # Errors
/// There is no such process, or it is another user's.
pub fn resource_usage(pid: u32) -> io::Result<ResourceUsage> {
    let proc = format!("/proc/{pid}");
    let count = |of: &str| Ok::<_, io::Error>(fs::read_dir(format!("{proc}/{of}"))?.count() as u64);
    let status = fs::read_to_string(format!("{proc}/status"))?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let rss = rss.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let mut memfds: BTreeSet<u64> = BTreeSet::new();
    for line in fs::read_to_string(format!("{proc}/maps"))?.lines() {
        let mut fields = line.split_whitespace();
        let (inode, name) = (fields.nth(4), fields.next());
        if name.is_some_and(|name| name.starts_with("/memfd:")) {
            memfds.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
        }
    }
    for entry in fs::read_dir(format!("{proc}/fd"))?.flatten() {
        let path = entry.path();
        // Some descriptors are closed during the scan.
        let is_memfd =
            |path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("/memfd:"));
        if is_memfd(&path) {
            memfds
                .extend(fs::metadata(&path).map(|data| std::os::unix::fs::MetadataExt::ino(&data)));
        }
    }
    Ok(ResourceUsage {
        descriptors: count("fd")?,
        threads: count("task")?,
        memfds: memfds.len() as u64,
        rss: rss.unwrap_or(0) << 10,
    })
}

fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("not a process's number"))?;
    Ok(kill_process(pid, signal)?)
}
