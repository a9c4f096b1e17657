use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Exit, Failure};

/// Ends a command that runs for long: at SIGINT, SIGTERM, or when asked to. Clones share it.
#[derive(Clone)]
pub(crate) struct Stop(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    requested: Condvar,
}

#[derive(Default)]
struct Inner {
    why: Option<Why>,
    hooks: Vec<Box<dyn FnOnce() + Send>>,
}

/// What ended the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Interrupt,
    Terminate,
    /// The program itself.
    Asked,
}

impl Why {
    /// The exit status of a command that had more to do.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
            Self::Asked => Exit::Ok,
        }
    }
}

impl Stop {
    /// From now on the two signals end the command cleanly; the second one ends it at once.
    pub(crate) fn on_signals() -> Result<Self, Failure> {
        let failed =
            |error| Failure::of(Exit::Failed, "cannot watch for SIGINT and SIGTERM", &error);
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let stop = Self(Arc::default());
        let theirs = stop.clone();
        let watch = move || {
            for signal in signals.forever() {
                let why = if signal == SIGINT { Why::Interrupt } else { Why::Terminate };
                if !theirs.request(why) {
                    std::process::exit(i32::from(why.exit() as u8));
                }
            }
        };
        thread::Builder::new().name("bellwire-signals".into()).spawn(watch).map_err(failed)?;
        Ok(stop)
    }

    /// Asks for the end; false when that was done before.
    pub(crate) fn request(&self, why: Why) -> bool {
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

    /// Why the command shall end, if it shall.
    pub(crate) fn requested(&self) -> Option<Why> {
        self.lock().why
    }

    /// Runs `hook` when the end is asked for, or now if it was. It runs on another thread.
    pub(crate) fn on_request(&self, hook: impl FnOnce() + Send + 'static) {
        let mut inner = self.lock();
        if inner.why.is_none() {
            inner.hooks.push(Box::new(hook));
            return;
        }
        drop(inner);
        hook();
    }

    /// Sleeps until `until`, or until the end is asked for: then true.
    pub(crate) fn sleep_until(&self, until: Instant) -> bool {
        let mut inner = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if inner.why.is_some() || left.is_zero() {
                return inner.why.is_some();
            }
            inner = self.wait(inner, left);
        }
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>, limit: Duration) -> MutexGuard<'a, Inner> {
        self.0.requested.wait_timeout(inner, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Nothing that holds this lock can panic.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
