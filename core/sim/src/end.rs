use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwire_core::control::{self, Control, ControlTransport, DrainOutcome, ReceiveOutcome};
use bellwire_core::lane::{Epoch, LaneTerms, Lanes, Wake};
use bellwire_core::resize::{FollowError, Resource, Shortage};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{Attachment, MAX_CONTROL, PAGE_SIZE};
use bellwire_core::{Bell, Instant, OwnMemory, Park, PeerFault, Port, Woken, Word};

use crate::shared::SharedState;
use crate::{DRIVEN, Event, PEER, Sim, SimMemory, SimOwn, SimPeer};

/// An operation that can be made to fail for lack of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Creating and passing the memory of a lane.
    Offer,
    /// Mapping a lane that was passed.
    Follow,
    /// Creating and passing the memory of an attachment.
    Pass,
    /// Mapping an attachment.
    Take,
}

/// One end of a simulated session: its memory, the control socket, the time and the peer's doorbell. Clones share it.
///
/// It is a [`Port`] for everything that does not block.
#[derive(Clone, Debug)]
pub struct SimEnd(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    me: usize,
    terms: [LaneTerms; 2],
    own: SimOwn,
    peer: SimPeer,
    control: Mutex<Control<SimEnd>>,
    /// The last lane that was passed.
    offered: Mutex<Option<(Epoch, SimMemory)>>,
    shared: Arc<SharedState>,
}

impl SimEnd {
    /// Creates the driven end and its peer.
    pub(super) fn pair(sim: &Sim, shared: &Arc<SharedState>) -> [Self; 2] {
        let [a, b] = sim.terms();
        let [first, second] = [a.size, b.size].map(SimOwn::new);
        Lanes::open(&first);
        Lanes::open(&second);
        let limits = sim.limits.unwrap_or_default();
        let end = |me, terms, own: &SimOwn, peer: &SimOwn, limits| {
            Self(Arc::new(Inner {
                me,
                terms,
                own: own.clone(),
                peer: peer.shared(),
                control: Mutex::new(Control::new(limits)),
                offered: Mutex::new(None),
                shared: Arc::clone(shared),
            }))
        };
        let [mine, theirs] = limits;
        [end(DRIVEN, [a, b], &first, &second, mine), end(PEER, [b, a], &second, &first, theirs)]
    }

    /// Returns the initial lanes of this end: call it once.
    pub fn lanes(&self) -> Lanes {
        let [own, peer] = self.0.terms;
        Lanes::with_terms(own, peer)
    }

    /// Returns this end's memory.
    pub fn own(&self) -> &SimOwn {
        &self.0.own
    }

    /// Returns the other end's memory.
    pub fn peer(&self) -> &SimPeer {
        &self.0.peer
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.0.shared.now()
    }

    /// Rings the other end, and stores the time in the page.
    pub fn ring(&self) {
        self.0.own.store(Word::RungAt, self.now().as_nanos(), Ordering::Relaxed);
        self.0.shared.ring(1 - self.0.me);
    }

    /// Rings the other end for each doorbell that it requested.
    pub fn wake(&self, wake: Wake) {
        for _ in 0..u8::from(wake.data) + u8::from(wake.space) {
            self.ring();
        }
    }

    /// Returns how often this end was rung.
    pub fn rung(&self) -> u64 {
        self.0.shared.rung(self.0.me)
    }

    /// Schedules an event at the driven end in `span` from now.
    pub fn after(&self, span: Duration, event: Event) {
        self.0.shared.at(self.now().after(span), event);
    }

    /// Makes these operations of this end fail for lack of `resource`; the session's first is number 0.
    pub fn runs_short(&self, act: Act, which: Range<u64>, resource: Resource) {
        self.0.shared.runs_short(self.0.me, act, which, resource);
    }

    /// Returns how often this end attempted the operation.
    pub fn acts(&self, act: Act) -> u64 {
        self.0.shared.acts(self.0.me, act)
    }

    /// Passes an attachment for the record that follows.
    ///
    /// # Errors
    /// [`Shortage`], if scripted.
    pub fn pass(&self, id: u64, payload: &[u8]) -> Result<(), Shortage> {
        let len = payload.len() as u64;
        self.0.shared.act(self.0.me, Act::Pass, len)?;
        let attachment = Attachment { id, generation: 0, len };
        control::pass_attachment(self, attachment, SimMemory::holding(payload))
    }

    /// Takes the attachment `id`, which the peer passed.
    ///
    /// # Errors
    /// [`FollowError`]: the peer violated the protocol, or a shortage is scripted, after which the attachment is
    /// still there.
    pub fn take(&self, id: u64) -> Result<Vec<u8>, FollowError> {
        self.0.shared.act(self.0.me, Act::Take, 0)?;
        let mut control = self.0.control.lock().expect("no panic while it is locked");
        let (attachment, memory) = control.take_attachment(self, id)?;
        let len = usize::try_from(attachment.len).expect("at most the limit");
        if memory.size() != attachment.len.next_multiple_of(PAGE_SIZE as u64) {
            return Err(PeerFault::Memory { what: "a message", why: "it has another size" }.into());
        }
        Ok(memory.start(len))
    }

    /// Receives what the peer has sent over the control socket so far.
    ///
    /// # Errors
    /// [`FollowError`]: the peer sent an unexpected message.
    pub fn take_control(&self) -> Result<DrainOutcome, FollowError> {
        self.0.control.lock().expect("no panic while it is locked").receive_all(self)
    }

    /// Sends any bytes over the control socket.
    pub fn post(&self, bytes: &[u8], memory: Vec<SimMemory>) {
        self.0.shared.post(1 - self.0.me, bytes.to_vec(), memory);
    }

    /// Returns copies of the messages on the control socket that this end has not received, with their memory.
    pub fn unread(&self) -> Vec<(Vec<u8>, Vec<SimMemory>)> {
        self.0.shared.unread(self.0.me)
    }

    pub(super) fn shared(&self) -> &SharedState {
        &self.0.shared
    }
}

impl ControlTransport for SimEnd {
    type Memory = SimMemory;
    type BorrowedMemory<'a> = SimMemory;

    fn send(&self, message: &[u8], memory: Option<SimMemory>) -> Result<(), Shortage> {
        self.post(message, memory.into_iter().collect());
        Ok(())
    }

    fn receive(
        &self,
        into: &mut [u8; MAX_CONTROL],
    ) -> Result<ReceiveOutcome<SimMemory>, FollowError> {
        let Some((bytes, memory)) = self.0.shared.receive(self.0.me) else {
            return Ok(ReceiveOutcome::Nothing);
        };
        let Some(start) = into.get_mut(..bytes.len()) else { return Ok(ReceiveOutcome::TooLong) };
        start.copy_from_slice(&bytes);
        Ok(ReceiveOutcome::Message { len: bytes.len(), memory })
    }

    fn close(_: Vec<SimMemory>) {}
}

impl Port for SimEnd {
    type Own = SimOwn;
    type Peer = SimPeer;

    fn own(&self) -> &SimOwn {
        &self.0.own
    }

    fn peer(&self) -> &SimPeer {
        &self.0.peer
    }

    fn now(&self) -> Instant {
        self.0.shared.now()
    }

    fn ring(&self, _bell: Bell) {
        SimEnd::ring(self);
    }

    fn park(&mut self, park: Park) -> Woken {
        panic!("a step does not block, at {park:?}");
    }

    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        self.0.shared.act(self.0.me, Act::Offer, epoch.size.size())?;
        let memory = SimMemory::new(epoch.size.size());
        control::pass_lane(self, epoch, memory.clone())?;
        *self.0.offered.lock().expect("no panic while it is locked") = Some((epoch, memory));
        Ok(())
    }

    fn adopt(&mut self, epoch: Epoch) {
        let offered = self.0.offered.lock().expect("no panic while it is locked").take();
        let (passed, memory) = offered.expect("an epoch is offered before it is adopted");
        assert_eq!(passed, epoch, "the epoch that was offered last is adopted");
        self.0.own.adopt(memory);
    }

    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        let mut control = self.0.control.lock().expect("no panic while it is locked");
        let lane = control.follow(self, epoch, |memory| {
            if memory.size() != epoch.size.size() {
                return Err(PeerFault::Memory { what: "a lane", why: "it has another size" }.into());
            }
            self.0.shared.act(self.0.me, Act::Follow, epoch.size.size())?;
            Ok(memory.clone())
        })?;
        self.0.peer.follow(lane);
        Ok(())
    }
}
