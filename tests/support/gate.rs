use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use super::guard::TEST_TIMEOUT;

/// Holds handlers until it is opened, and reports arrivals.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Inner>);

struct Inner {
    came: Box<dyn Fn(u64) + Send + Sync>,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Calls `came` for each handler that arrives.
    pub(crate) fn new(came: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            came: Box::new(came),
            open: Mutex::new(false),
            opened: Condvar::new(),
        }))
    }

    /// Reports each handler that arrives by a channel.
    pub(crate) fn with_channel() -> (Self, Arrivals) {
        let (sender, receiver) = channel();
        let sender: Mutex<Sender<u64>> = Mutex::new(sender);
        let gate = Self::new(move |who| {
            // The receiver is gone at the end of a test.
            let _ = sender.lock().unwrap().send(who);
        });
        (gate, Arrivals(receiver))
    }

    pub(crate) fn pass(&self, who: u64) {
        (self.0.came)(who);
        let mut open = self.0.open.lock().unwrap();
        while !*open {
            open = self.0.opened.wait(open).unwrap();
        }
    }

    pub(crate) fn open(&self) {
        *self.0.open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }
}

/// Opens a gate at the end of a test, failed or not: a server waits for its handlers before it ends.
pub(crate) struct OpenAtEnd(pub(crate) Option<Gate>);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        if let Some(gate) = &self.0 {
            gate.open();
        }
    }
}

/// The arrivals at a gate.
pub(crate) struct Arrivals(Receiver<u64>);

impl Arrivals {
    /// Waits for the next one.
    pub(crate) fn next(&self) -> u64 {
        self.0.recv_timeout(TEST_TIMEOUT).expect("nobody comes to the gate")
    }

    /// Arrivals that were not yet queried.
    pub(crate) fn so_far(&self) -> Vec<u64> {
        self.0.try_iter().collect()
    }
}
