use bellwire_core::drive::{RespondOutcome, ServeDriver};
use bellwire_core::lane::{Armed, Growth, Lanes, Wake};
use bellwire_core::serve::{Incoming, ServeCounts};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Status};
use bellwire_core::{OwnMemory, Park, PeerMemory, Port, Woken, Word};

/// What the serving end does, step by step: it is called again and again.
pub(crate) type Script = dyn FnMut(&mut dyn Endpoints) -> Next + Send;

/// What the serving end does after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next step, at once.
    Again,
    /// Sleep until rung, if nothing moved meanwhile.
    Park,
    /// Its process ends, without a word.
    Vanish,
}

/// The serving end, as a script sees it.
pub(crate) trait Endpoints {
    /// The next request, or the id of the request that was cancelled.
    fn take(&mut self) -> Option<Taken>;
    /// Answers and publishes. What does not fit the lane goes out in [`Endpoints::flush`].
    fn answer(&mut self, id: u64, payload: &[u8]);
    /// Writes an answer without publishing it.
    fn prepare(&mut self, id: u64, payload: &[u8]);
    fn commit(&mut self);
    /// Whether all answers are out.
    fn flush(&mut self) -> bool;
    fn close(&mut self);
    /// Stores a word of the serving end's page.
    fn store(&mut self, word: Word, value: u64);
    /// Loads a word of the calling end's page.
    fn load(&self, word: Word) -> u64;
    /// Rings the calling end, whether it armed its doorbell or not.
    fn ring(&mut self);
    fn counts(&self) -> ServeCounts;
    /// How often the calling end was rung.
    fn rings(&self) -> u64;
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Request(u64, Vec<u8>),
    Cancel(u64),
}

/// The serving end of a session, over any port.
pub(crate) struct Serving<P> {
    driver: ServeDriver<P>,
    buffer: Vec<u8>,
}

/// The serving end of a session that has a thread of its own: follows `script` until the calling end is gone, or it
/// vanishes.
pub(crate) fn serve<P: Port>(
    port: P,
    lanes: Lanes,
    script: &mut Script,
    is_gone: impl Fn(&P) -> bool,
) {
    let mut serving = Serving::new(port, lanes);
    loop {
        match serving.step(script) {
            Next::Again => {
                if is_gone(serving.driver.end().port()) {
                    return;
                }
                std::thread::yield_now();
            }
            Next::Vanish => return,
            Next::Park => {
                let Armed::Sleep { tail, head } = serving.arm() else { continue };
                let park = Park { tail, head, until: None };
                if serving.driver.end_mut().port_mut().park(park) == Woken::PeerGone {
                    return;
                }
            }
        }
    }
}

impl<P: Port> Serving<P> {
    pub(crate) fn new(port: P, lanes: Lanes) -> Self {
        let mut driver = ServeDriver::new(port, lanes, u64::MAX, ());
        // The lanes keep their sizes.
        driver.end_mut().set_growth(Growth::Never);
        Self { driver, buffer: Vec::new() }
    }

    /// One step of the script.
    pub(crate) fn step(&mut self, script: &mut Script) -> Next {
        self.driver.end().disarm();
        script(self)
    }

    pub(crate) fn arm(&mut self) -> Armed {
        self.driver.arm().expect("the calling end is honest")
    }
}

impl<P: Port> Endpoints for Serving<P> {
    fn take(&mut self) -> Option<Taken> {
        let incoming = self.driver.next(&mut self.buffer);
        let taken = match incoming.expect("the calling end is honest")? {
            Incoming::Request { id, len, .. } => Taken::Request(id, self.buffer[..len].to_vec()),
            Incoming::Cancel { id } => Taken::Cancel(id),
            other => panic!("{other:?} on a lane that keeps its size"),
        };
        Some(taken)
    }

    fn answer(&mut self, id: u64, payload: &[u8]) {
        self.prepare(id, payload);
        self.commit();
    }

    fn prepare(&mut self, id: u64, payload: &[u8]) {
        let responded = self.driver.respond(id, Status::Ok, payload);
        assert_eq!(responded, Ok(RespondOutcome::Done));
    }

    fn commit(&mut self) {
        self.driver.commit();
    }

    fn flush(&mut self) -> bool {
        self.driver.flush().expect("the calling end is honest");
        self.commit();
        !self.driver.is_blocked()
    }

    fn close(&mut self) {
        let (lanes, own, _) = self.driver.end_mut().parts();
        lanes.push_close(own, CloseReason::Normal);
        self.commit();
    }

    fn store(&mut self, word: Word, value: u64) {
        self.driver.end().port().own().store(word, value, Ordering::Release);
    }

    fn load(&self, word: Word) -> u64 {
        self.driver.end().port().peer().load(word, Ordering::Acquire)
    }

    fn ring(&mut self) {
        self.driver.end_mut().ring(Wake { data: true, space: true });
    }

    fn counts(&self) -> ServeCounts {
        self.driver.counts()
    }

    fn rings(&self) -> u64 {
        self.driver.end().rings()
    }
}
