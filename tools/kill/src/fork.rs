#![allow(unsafe_code, reason = "fork: a victim starts in a fraction of the time that exec takes")]

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};

use crate::error::{Result, system};

/// Forks a process that runs `body` and exits. It also dies with this process, and never returns from here.
pub(crate) fn start(body: impl FnOnce()) -> Result<Pid> {
    let parent = getpid();
    // SAFETY: this program has one thread wherever it calls this, so no lock is held by a thread that does not exist
    // in the child.
    match unsafe { fork() }.map_err(system("fork"))? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            // The parent may have died before that.
            if getppid() == parent {
                body();
            }
            std::process::exit(0);
        }
    }
}
