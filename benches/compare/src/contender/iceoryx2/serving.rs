//! The thread of a server: the library's ports do not leave the thread that has created them.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::iceoryx2::port::update_connections::UpdateConnections;
use ::iceoryx2::prelude::Node;
use bellwire_floor::sync::{AtomicU32, Ordering};

use super::form::{Form, Topic};
use super::{Ipc, node, problem};
use crate::Outcome;
use crate::burst::Burst;
use crate::contender::Server;

/// What to publish.
enum Work {
    Snapshot(Vec<u8>),
    Events(Burst),
}

/// What to publish, and where to report that it is done.
type Publication = (Work, SyncSender<()>);

/// The thread, which ends and releases what it has when this is dropped.
pub(in crate::contender) struct Serving {
    /// Not 0 once it is to end.
    end: Arc<AtomicU32>,
    thread: Option<JoinHandle<Outcome<()>>>,
    wake: Option<Box<dyn Fn() -> Outcome<()>>>,
    sender: Option<SyncSender<Publication>>,
}

impl Serving {
    /// Starts it, and waits until `open` has opened the ports; then it does turn after turn.
    pub(super) fn start<T: FnMut() -> Outcome<()> + 'static>(
        open: impl FnOnce() -> Outcome<T> + Send + 'static,
    ) -> Outcome<Self> {
        let (end, (ready, is_ready)) = (Arc::new(AtomicU32::new(0)), mpsc::sync_channel(1));
        let stop = Arc::clone(&end);
        let builder = thread::Builder::new().name("iceoryx2".to_owned());
        let thread = builder.spawn(move || {
            let mut turn = open()?;
            ready.send(())?;
            while stop.load(Ordering::Relaxed) == 0 {
                turn()?;
            }
            Ok(())
        })?;
        if is_ready.recv().is_err() {
            return match thread.join() {
                Ok(Err(error)) => Err(error),
                _ => Err("the server ended before it was ready".into()),
            };
        }
        Ok(Self { end, thread: Some(thread), wake: None, sender: None })
    }

    /// Starts one that publishes what it is handed, and looks for new readers every `soon`.
    pub(super) fn publishing<F: Form + ?Sized>(
        soon: Duration,
        longest: usize,
        open: impl FnOnce(&Node<Ipc>) -> Outcome<Topic<F>> + Send + 'static,
    ) -> Outcome<Self> {
        let (sender, publications) = mpsc::sync_channel::<Publication>(1);
        let mut serving = Self::start(move || {
            let node = node()?;
            let publisher = F::publisher(&open(&node)?, longest)?;
            Ok(move || {
                let _kept = &node;
                match publications.recv_timeout(soon) {
                    Ok((work, done)) => {
                        match work {
                            Work::Snapshot(snapshot) => F::publish(&publisher, &snapshot, |_| ())?,
                            Work::Events(mut burst) => {
                                while let Some(event) = burst.next() {
                                    F::publish(&publisher, event, |_| ())?;
                                }
                            }
                        }
                        Ok(done.send(())?)
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        publisher.update_connections().map_err(problem("find new readers"))
                    }
                    // The end has come before.
                    Err(RecvTimeoutError::Disconnected) => Ok(()),
                }
            })
        })?;
        serving.sender = Some(sender);
        Ok(serving)
    }

    /// With the means to wake the thread, to end it.
    pub(super) fn woken_by(mut self, wake: impl Fn() -> Outcome<()> + 'static) -> Self {
        self.wake = Some(Box::new(wake));
        self
    }

    fn have_published(&self, work: Work) -> Outcome<()> {
        let sender = self.sender.as_ref().ok_or("this server publishes nothing")?;
        let (done, is_done) = mpsc::sync_channel(1);
        sender.send((work, done))?;
        Ok(is_done.recv()?)
    }
}

impl Server for Serving {
    fn publish(&mut self, snapshot: &[u8]) -> Outcome<()> {
        self.have_published(Work::Snapshot(snapshot.to_vec()))
    }

    fn send_burst(&mut self, burst: Burst) -> Outcome<()> {
        self.have_published(Work::Events(burst))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end.store(1, Ordering::Relaxed);
        self.sender = None;
        if self.wake.as_ref().is_some_and(|wake| wake().is_err()) {
            return;
        }
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("iceoryx2's server: {error}");
        }
    }
}
