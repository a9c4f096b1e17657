use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What ended a wait.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is time to detach.
    Stop,
    /// A scraper asks for the metrics, as text.
    Scrape(Sender<String>),
}

/// Waits that SIGINT and SIGTERM end, so that the programs are detached.
pub(crate) struct Waiter {
    tell: Sender<Event>,
    told: Receiver<Event>,
}

impl Waiter {
    /// Makes the two signals end a wait from now on; the second one ends the program.
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

    /// Makes the key `q` end a wait too.
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

    /// Returns a sender for threads that produce events.
    pub(crate) fn teller(&self) -> Sender<Event> {
        self.tell.clone()
    }

    /// Waits for this long, or forever without a limit. Returns true if the program shall stop.
    pub(crate) fn is_over(&self, span: Option<Duration>) -> bool {
        let end = span.map(|span| Instant::now() + span);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            match self.next(left) {
                Some(Event::Stop) => return true,
                // This command serves no metrics.
                Some(Event::Scrape(_)) => {}
                None => return false,
            }
        }
    }

    /// Returns the next event; `None` if there was none within this time.
    pub(crate) fn next(&self, span: Option<Duration>) -> Option<Event> {
        match span {
            Some(span) => match self.told.recv_timeout(span) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Event::Stop),
            },
            // The other end lives as long as this one, so there is no error.
            None => self.told.recv().ok().or(Some(Event::Stop)),
        }
    }
}
