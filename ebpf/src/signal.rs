use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What ended a wait.
#[derive(Debug)]
pub(crate) enum Event {
    /// The program is to detach and exit.
    Stop,
    /// A scraper requests the metrics, as text.
    Scrape(Sender<String>),
}

/// Waits for events. SIGINT and SIGTERM are such events, so that the programs are detached before the exit.
pub(crate) struct Waiter {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Waiter {
    /// Makes the two signals end a wait from now on; the second signal exits the program.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (sender, receiver) = channel();
        let stop = sender.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for (at, _) in signals.forever().enumerate() {
                if at > 0 || stop.send(Event::Stop).is_err() {
                    std::process::exit(1);
                }
            }
        })?;
        Ok(Self { sender, receiver })
    }

    /// Makes the key `q` end a wait too.
    pub(crate) fn on_key(&self) -> io::Result<()> {
        let sender = self.sender.clone();
        thread::Builder::new().name("keys".to_owned()).spawn(move || {
            for key in io::stdin().lock().bytes() {
                if matches!(key, Ok(b'q' | b'Q')) && sender.send(Event::Stop).is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// Returns a sender for threads that produce events.
    pub(crate) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Waits for this long. Returns true as soon as the program is to stop.
    pub(crate) fn stops_within(&self, span: Duration) -> bool {
        let end = Instant::now() + span;
        loop {
            match self.next(end.saturating_duration_since(Instant::now())) {
                Some(Event::Stop) => return true,
                // This command serves no metrics.
                Some(Event::Scrape(_)) => {}
                None => return false,
            }
        }
    }

    /// Returns the next event; `None` on a timeout.
    pub(crate) fn next(&self, span: Duration) -> Option<Event> {
        // `self` holds a sender, so the channel is never disconnected.
        self.receiver.recv_timeout(span).ok()
    }
}
