//! Commands with a time limit.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::CommandOutput;

/// Ends every [`run_within`] that got it, now and later.
#[derive(Debug)]
pub struct Interrupt(OwnedFd);

impl Interrupt {
    /// Creates one that ends nothing yet.
    ///
    /// # Errors
    /// Those of [`eventfd(2)`](https://man7.org/linux/man-pages/man2/eventfd.2.html).
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Ends what runs.
    pub fn end(&self) {
        // Never read, so it is readable from now on.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Runs a command in a process group of its own until it has closed its standard output and ended, at most for `limit` and until it is
/// interrupted. Then the whole group is killed, with what the command left behind in it.
///
/// # Errors
/// It cannot be started; it writes more than `most` bytes ([`io::ErrorKind::InvalidData`]); it takes longer
/// ([`io::ErrorKind::TimedOut`]); it was interrupted ([`io::ErrorKind::Interrupted`]).
pub fn run_within(
    command: &mut Command,
    limit: Duration,
    most: usize,
    interrupt: &Interrupt,
) -> io::Result<CommandOutput> {
    let until = Instant::now() + limit;
    let mut child = command.process_group(0).stdout(Stdio::piped()).spawn()?;
    let stdout = watch(&mut child, until, most, interrupt);
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Its number is not another's: the child is not waited for yet.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait()?;
    Ok(CommandOutput { status, stdout: stdout? })
}

fn watch(
    child: &mut Child,
    until: Instant,
    most: usize,
    interrupt: &Interrupt,
) -> io::Result<Vec<u8>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("not a process's number"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        wait_for(&stdout, until, interrupt)?;
        let len = stdout.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        said.extend_from_slice(buffer.get(..len).unwrap_or_default());
        if said.len() > most {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    wait_for(&pidfd, until, interrupt)?;
    Ok(said)
}

fn wait_for(file: &impl AsFd, until: Instant, interrupt: &Interrupt) -> io::Result<()> {
    let mut files = [PollFd::new(&interrupt.0, PollFlags::IN), PollFd::new(file, PollFlags::IN)];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut files, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) if !files[0].revents().is_empty() => {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Duration, interrupt: &Interrupt) -> io::Result<CommandOutput> {
        run_within(Command::new("sh").args(["-c", script]), limit, 100, interrupt)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_command_ends_with_its_status_and_output() {
        let interrupt = Interrupt::new().unwrap();
        let ran = run("echo a; exit 3", LONG, &interrupt).unwrap();
        assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(3), &b"a\n"[..]));
        let error = run("yes", LONG, &interrupt).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed_with_all_that_it_started() {
        let interrupt = Interrupt::new().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        // Both sleepers hold the pipe.
        command.args(["-c", "sleep 1000 & sleep 1000"]).stderr(writer);
        let error =
            run_within(&mut command, Duration::from_millis(50), 100, &interrupt).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(command);
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0, "the pipe's other end is closed");
    }

    #[test]
    fn an_interrupt_ends_running_and_later_commands() {
        let interrupt = Interrupt::new().unwrap();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run("sleep 1000", LONG, &interrupt));
            interrupt.end();
            assert_eq!(running.join().unwrap().unwrap_err().kind(), io::ErrorKind::Interrupted);
        });
        let error = run("sleep 1000", LONG, &interrupt).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
