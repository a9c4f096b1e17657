//! How a long-running command is ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use async_signal::{Signal, Signals};
use futures_lite::{StreamExt, future};

use crate::exit::{Exit, Failure};

/// Ends a long-running command: at SIGINT (Ctrl-C), at SIGTERM where there are signals, or on request. Clones share it.
#[derive(Clone)]
pub struct Stop(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    requested: Condvar,
}

#[derive(Default)]
struct Inner {
    why: Option<StopReason>,
    hooks: Vec<Box<dyn FnOnce() + Send>>,
}

/// What ended the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// The program itself.
    Asked,
}

impl StopReason {
    /// Returns the exit status of a command that was not done yet.
    pub fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
            Self::Asked => Exit::Ok,
        }
    }
}

impl Stop {
    /// Makes SIGINT (Ctrl-C) and SIGTERM end the command cleanly from now on; the second one ends it immediately.
    pub fn on_signals() -> Result<Self, Failure> {
        Self::on_some_signals(&[], |_| true)
    }

    /// The same for a provider, which ignores SIGHUP: the terminal that it was started from may go. It has nothing to reload.
    pub fn of_provider() -> Result<Self, Failure> {
        Self::on_some_signals(&[Signal::Hup], |_| true)
    }

    /// The same for the demo's provider. Ctrl-C reaches all processes at a terminal, but only the demo handles it and ends the
    /// provider in order.
    pub fn on_termination() -> Result<Self, Failure> {
        Self::on_some_signals(&[], |why| why != StopReason::Interrupt)
    }

    fn on_some_signals(
        ignored: &'static [Signal],
        heeded: fn(StopReason) -> bool,
    ) -> Result<Self, Failure> {
        let failed =
            |error| Failure::of(Exit::Failed, "cannot watch for SIGINT and SIGTERM", &error);
        let mut signals = Signals::new([Signal::Int]).map_err(failed)?;
        // Windows has no such signal.
        let _ = signals.add_signals([Signal::Term]);
        let _ = signals.add_signals(ignored);
        let stop = Self(Arc::default());
        let theirs = stop.clone();
        let watch = move || {
            while let Some(signal) = future::block_on(signals.next()) {
                let why = match signal {
                    Ok(signal) if ignored.contains(&signal) => continue,
                    Ok(Signal::Int) => StopReason::Interrupt,
                    Ok(_) => StopReason::Terminate,
                    Err(_) => return,
                };
                if heeded(why) && !theirs.request(why) {
                    std::process::exit(i32::from(why.exit() as u8));
                }
            }
        };
        thread::Builder::new().name("bellwire-signals".into()).spawn(watch).map_err(failed)?;
        Ok(stop)
    }

    /// Requests the end; returns false if that was done before.
    pub fn request(&self, why: StopReason) -> bool {
        let hooks = {
            let mut inner = self.lock();
            if inner.why.is_some() {
                return false;
            }
            inner.why = Some(why);
            std::mem::take(&mut inner.hooks)
        };
        self.0.requested.notify_all();
        hooks.into_iter().for_each(|hook| hook());
        true
    }

    /// Returns why the command shall end, if it shall.
    pub fn requested(&self) -> Option<StopReason> {
        self.lock().why
    }

    /// Fails once the end is requested: between the parts of something long.
    pub fn check(&self) -> Result<(), Failure> {
        self.requested().map_or(Ok(()), |why| Err(Failure::new(why.exit(), "interrupted")))
    }

    /// Runs `hook` when the end is requested, or now if it was. It runs on another thread.
    pub fn on_request(&self, hook: impl FnOnce() + Send + 'static) {
        let mut inner = self.lock();
        if inner.why.is_none() {
            inner.hooks.push(Box::new(hook));
            return;
        }
        drop(inner);
        hook();
    }

    /// Sleeps until the end is requested.
    pub fn sleep(&self) {
        drop(self.0.requested.wait_while(self.lock(), |inner| inner.why.is_none()));
    }

    /// Sleeps until `until` or until the end is requested; returns true in the latter case.
    pub fn sleep_until(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let waited =
            self.0.requested.wait_timeout_while(self.lock(), left, |inner| inner.why.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.why.is_some()
    }

    /// Nothing that holds this lock can panic.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
