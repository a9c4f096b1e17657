//! The thread of a server: the library's ports do not leave the thread that has created them.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use bellwire_floor::sync::{AtomicU32, Ordering};

use crate::Outcome;
use crate::burst::Burst;
use crate::contender::Server;

/// Tells the thread when to end.
#[derive(Clone, Default)]
pub(super) struct End(Arc<AtomicU32>);

impl End {
    #[inline]
    pub(super) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// Reports that clients may connect.
pub(super) type Ready = SyncSender<()>;

/// What to publish.
pub(super) enum Work {
    Snapshot(Vec<u8>),
    Events(Burst),
}

/// What to publish, and where to report that it is done.
pub(super) type Publication = (Work, SyncSender<()>);

/// The thread, which ends and releases what it has when this is dropped.
pub(in crate::contender) struct Serving {
    end: End,
    thread: Option<JoinHandle<Outcome<()>>>,
    wake: Option<Box<dyn Fn() -> Outcome<()>>>,
    pub(super) shelf: Option<SyncSender<Publication>>,
}

impl Serving {
    /// Starts it, and waits until it is ready.
    pub(super) fn start(
        serve: impl FnOnce(End, Ready) -> Outcome<()> + Send + 'static,
    ) -> Outcome<Self> {
        let (end, (ready, is_ready)) = (End::default(), mpsc::sync_channel(1));
        let told = end.clone();
        let builder = thread::Builder::new().name("iceoryx2".to_owned());
        let thread = builder.spawn(move || serve(told, ready))?;
        if is_ready.recv().is_err() {
            return match thread.join() {
                Ok(Err(error)) => Err(error),
                _ => Err("the server ended before it was ready".into()),
            };
        }
        Ok(Self { end, thread: Some(thread), wake: None, shelf: None })
    }

    /// With the means to wake the thread, to end it.
    pub(super) fn woken_by(mut self, wake: impl Fn() -> Outcome<()> + 'static) -> Self {
        self.wake = Some(Box::new(wake));
        self
    }
}

impl Serving {
    fn have_published(&self, work: Work) -> Outcome<()> {
        let shelf = self.shelf.as_ref().ok_or("this server publishes nothing")?;
        let (done, is_done) = mpsc::sync_channel(1);
        shelf.send((work, done))?;
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
        self.end.0.store(1, Ordering::Relaxed);
        self.shelf = None;
        if self.wake.as_ref().is_some_and(|wake| wake().is_err()) {
            return;
        }
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("iceoryx2's server: {error}");
        }
    }
}
