use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What a wait may end with.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is time to detach.
    Stop,
    /// Somebody wants to have the metrics, as text.
    Scrape(Sender<String>),
}

/// Waits that SIGINT and SIGTERM end, so that what is attached is detached.
pub(crate) struct Waiter {
    tell: Sender<Event>,
    told: Receiver<Event>,
}

impl Waiter {
    /// From now on the two signals end a wait; the second one ends the program.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (tell, told) = channel();
        let stop = tell.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for (at, _) in signals.forever().enumerate() {
                if at > 0 || stop.send(Event::Stop).is_err() {
                    std::process::exit(1);
                }
            }
        })?;
        Ok(Self { tell, told })
    }

    /// The key `q` ends a wait, too.
    pub(crate) fn on_key(&self) -> io::Result<()> {
        let tell = self.tell.clone();
        thread::Builder::new().name("keys".to_owned()).spawn(move || {
            for key in io::stdin().lock().bytes() {
                if matches!(key, Ok(b'q' | b'Q')) && tell.send(Event::Stop).is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// For threads that have something to tell.
    pub(crate) fn teller(&self) -> Sender<Event> {
        self.tell.clone()
    }

    /// Waits as long, or for ever when there is no limit. True when it is to stop.
    pub(crate) fn is_over(&self, span: Option<Duration>) -> bool {
        let end = span.map(|span| Instant::now() + span);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            match self.next(left) {
                Some(Event::Stop) => return true,
                // Nobody serves here.
                Some(Event::Scrape(_)) => {}
                None => return false,
            }
        }
    }

    /// The next event; `None` when there was none for so long.
    pub(crate) fn next(&self, span: Option<Duration>) -> Option<Event> {
        match span {
            Some(span) => match self.told.recv_timeout(span) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Event::Stop),
            },
            // The other end lives as long as this one: there is no error.
            None => self.told.recv().ok().or(Some(Event::Stop)),
        }
    }
}
