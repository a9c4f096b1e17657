use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Waits that SIGINT and SIGTERM end, so that what is attached is detached.
pub(crate) struct Stop(Receiver<()>);

impl Stop {
    /// From now on the two signals end a wait; the second one ends the program.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (told, stop) = channel();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                if told.send(()).is_err() {
                    std::process::exit(1);
                }
            }
        })?;
        Ok(Self(stop))
    }

    /// Waits as long, or until a signal comes when there is no limit. True when one came.
    pub(crate) fn wait(&self, span: Option<Duration>) -> bool {
        match span {
            Some(span) => self.0.recv_timeout(span) != Err(RecvTimeoutError::Timeout),
            None => {
                // The other end lives as long as the program: an error is a signal too.
                let _ = self.0.recv();
                true
            }
        }
    }
}
