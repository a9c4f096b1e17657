//! Whether a thread sleeps, as far as the system reports it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use super::guard::until;

/// The system calls that wait for a doorbell: `futex_waitv`, or `futex` before Linux 5.16, `ppoll`, and `poll` where there is one.
const WAITS: [(&str, &[&str]); 2] =
    [("x86_64", &["449", "202", "271", "7"]), ("aarch64", &["449", "98", "73"])];
/// How often to yield while a thread goes to sleep, where the system does not report it.
const TURNS: usize = 1000;

/// Does this in a thread of its own, and returns once it sleeps.
pub(crate) fn park<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (sender, receiver) = channel();
    let waiter = thread::spawn(move || {
        sender.send(Thread::this()).unwrap();
        wait()
    });
    receiver.recv().unwrap().wait_until_parked();
    waiter
}

/// Does this in a thread of its own once the calling one sleeps.
pub(crate) fn once_parked(act: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let waiter = Thread::this();
    thread::spawn(move || {
        waiter.wait_until_parked();
        act();
    })
}

/// A thread, seen from outside: on Linux below `/proc`, elsewhere not at all.
pub(crate) struct Thread(pub(crate) Option<PathBuf>);

impl Thread {
    /// The calling one.
    pub(crate) fn this() -> Self {
        let this = fs::read_link("/proc/thread-self");
        Self(this.ok().map(|this| Path::new("/proc").join(this).join("syscall")))
    }

    /// Waits until it sleeps in a system call that waits for a doorbell; where the system does not report that, until
    /// it has had time to.
    pub(crate) fn wait_until_parked(&self) {
        let Some(syscall) = &self.0 else {
            return (0..TURNS).for_each(|_| thread::yield_now());
        };
        let (_, waits) = WAITS.iter().find(|(arch, _)| *arch == std::env::consts::ARCH).unwrap();
        until("the thread parks", || {
            let text = fs::read_to_string(syscall);
            let text = text.expect("the thread ended instead of parking");
            text.split_whitespace().next().is_some_and(|call| waits.contains(&call))
        });
    }
}
