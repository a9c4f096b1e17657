use bellwire_core::lane::{Armed, Lanes, Wake};
use bellwire_core::serve::{Flushed, Incoming, ServeCounts, ServeMachine};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Status};
use bellwire_core::{Bell, OwnMemory, Park, PeerMemory, Port, Woken, Word};

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

/// The serving end's machines, over any memory.
pub(crate) struct Serving {
    lanes: Lanes,
    machine: ServeMachine,
    buffer: Vec<u8>,
    rings: u64,
}

/// One step of the serving end.
pub(crate) struct Step<'a, O, P> {
    pub(crate) serving: &'a mut Serving,
    pub(crate) own: &'a O,
    pub(crate) peer: &'a P,
    /// Rings that are due.
    pub(crate) due: Vec<Wake>,
}

/// The serving end of a session that has a thread of its own: follows `script` until the calling end is gone, or it
/// vanishes.
pub(crate) fn serve<P: Port>(
    mut port: P,
    lanes: Lanes,
    script: &mut Script,
    is_gone: impl Fn(&P) -> bool,
) {
    let mut serving = Serving::new(lanes);
    loop {
        let (own, peer) = (port.own(), port.peer());
        serving.disarm(own);
        let mut step = Step { serving: &mut serving, own, peer, due: Vec::new() };
        let next = script(&mut step);
        step.due.into_iter().for_each(|wake| ring(&port, wake));
        match next {
            Next::Again => {
                if is_gone(&port) {
                    return;
                }
                std::thread::yield_now();
            }
            Next::Vanish => return,
            Next::Park => {
                let (armed, wake) = serving.arm(port.own(), port.peer());
                ring(&port, wake);
                let Armed::Sleep { tail, head } = armed else { continue };
                if port.park(Park { tail, head, until: None }) == Woken::PeerGone {
                    return;
                }
            }
        }
    }
}

fn ring(port: &impl Port, wake: Wake) {
    if wake.data {
        port.ring(Bell::Data);
    }
    if wake.space {
        port.ring(Bell::Space);
    }
}

impl Serving {
    pub(crate) fn new(lanes: Lanes) -> Self {
        let machine = ServeMachine::new(u64::MAX);
        Self { lanes, machine, buffer: Vec::new(), rings: 0 }
    }

    pub(crate) fn disarm(&self, own: &impl OwnMemory) {
        self.lanes.disarm(own);
    }

    pub(crate) fn arm<O: OwnMemory, P: PeerMemory>(&mut self, own: &O, peer: &P) -> (Armed, Wake) {
        let blocked = self.machine.is_blocked();
        let (armed, wake) = self.lanes.arm(own, peer, blocked).expect("the calling end is honest");
        self.count(wake);
        (armed, wake)
    }

    fn count(&mut self, wake: Wake) {
        self.rings += u64::from(wake.data) + u64::from(wake.space);
    }
}

impl<O: OwnMemory, P: PeerMemory> Endpoints for Step<'_, O, P> {
    fn take(&mut self) -> Option<Taken> {
        let Serving { lanes, machine, buffer, .. } = &mut *self.serving;
        let incoming = machine.next(lanes, self.own, self.peer, buffer);
        let taken = match incoming.expect("the calling end is honest")? {
            Incoming::Request { id, len, .. } => Taken::Request(id, buffer[..len].to_vec()),
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
        let Serving { lanes, machine, .. } = &mut *self.serving;
        let answered = machine.respond(lanes, self.own, self.peer, id, Status::Ok, payload);
        answered.expect("the calling end is honest");
    }

    fn commit(&mut self) {
        let wake = self.serving.lanes.commit(self.own, self.peer);
        self.serving.count(wake);
        self.due.push(wake);
    }

    fn flush(&mut self) -> bool {
        let Serving { lanes, machine, .. } = &mut *self.serving;
        let flushed = machine.flush(lanes, self.own, self.peer, |_| Ok(()));
        self.commit();
        flushed.expect("the calling end is honest") == Flushed::Done
    }

    fn close(&mut self) {
        self.serving.lanes.push_close(self.own, CloseReason::Normal);
        self.commit();
    }

    fn store(&mut self, word: Word, value: u64) {
        self.own.store(word, value, Ordering::Release);
    }

    fn load(&self, word: Word) -> u64 {
        self.peer.load(word, Ordering::Acquire)
    }

    fn ring(&mut self) {
        self.due.push(Wake { data: true, space: true });
    }

    fn counts(&self) -> ServeCounts {
        self.serving.machine.counts()
    }

    fn rings(&self) -> u64 {
        self.serving.rings
    }
}
