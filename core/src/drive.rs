//! The loops that block, over any port.

use alloc::vec::Vec;

use crate::call::{CallMachine, Reply, SubmitError, Ticket};
use crate::lane::{Armed, Lanes, PushError, Wake};
use crate::sync::Ordering;
use crate::wire::CloseReason;
use crate::{
    Bell, Deadline, Executed, Instant, Looks, OwnMemory, Park, PeerFault, PeerMemory, Port, Spin,
    SpinPolicy, Woken, Word,
};

/// Why a blocking call ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailed {
    /// It was not sent; the session is usable.
    #[error(transparent)]
    Submit(SubmitError),
    /// The time was over.
    #[error("the deadline passed; {0}")]
    Deadline(Executed),
    /// Another thread cancelled.
    #[error("the call was cancelled; {0}")]
    Cancelled(Executed),
    /// The peer's process ended, or it closed the session.
    #[error("the peer is gone; {0}")]
    PeerGone(Executed),
    /// The peer lied; the session is poisoned.
    #[error("the session is poisoned: {0}")]
    Peer(PeerFault),
}

/// The calling end of a session: its machines and its port, and the only loops that block.
#[derive(Debug)]
pub struct Drive<P: Port> {
    port: P,
    lanes: Lanes,
    calls: CallMachine,
    spin: Spin,
    /// Set by the first lie; nothing is read from the peer's memory after it.
    poisoned: Option<PeerFault>,
    gone: bool,
    rings: u64,
    parks: u64,
}

/// How a wait ended.
enum Waited {
    LookAgain,
    Over(Woken),
}

impl<P: Port> Drive<P> {
    /// Drives a session over `port`, whose lanes are empty and open.
    pub fn new(port: P, lanes: Lanes, spin: SpinPolicy) -> Self {
        Self {
            port,
            lanes,
            calls: CallMachine::new(),
            spin: Spin::new(spin),
            poisoned: None,
            gone: false,
            rings: 0,
            parks: 0,
        }
    }

    /// The transport's end.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The transport's end, mutably.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Requests that wait for an answer.
    pub fn in_flight(&self) -> usize {
        self.calls.in_flight()
    }

    /// The largest request payload, in bytes.
    pub fn max_payload(&self) -> usize {
        self.lanes.max_payload()
    }

    /// How often this end rang its peer, and made a system call for it.
    pub fn rings(&self) -> u64 {
        self.rings
    }

    /// How often this end slept.
    pub fn parks(&self) -> u64 {
        self.parks
    }

    /// Why the session cannot be used any more; `None` while it can.
    pub fn ended(&self) -> Option<CallFailed> {
        if let Some(fault) = self.poisoned {
            return Some(CallFailed::Peer(fault));
        }
        (self.gone || self.calls.closed().is_some()).then_some(CallFailed::PeerGone(Executed::No))
    }

    /// Ends the session for a lie that was found outside the lanes, for instance on the control socket.
    pub fn poison(&mut self, fault: PeerFault) {
        self.poisoned.get_or_insert(fault);
    }

    /// Why the peer closed, when it said bye.
    pub fn closed(&self) -> Option<CloseReason> {
        self.calls.closed()
    }

    /// Sends a request now and returns: the answer comes by [`Drive::try_reply`].
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run.
    pub fn submit(&mut self, payload: &[u8]) -> Result<Ticket, CallFailed> {
        let ticket = self.push(payload)?;
        self.commit();
        Ok(ticket)
    }

    /// Writes a request without publishing it: [`Drive::commit`] publishes all of them at once.
    ///
    /// # Errors
    /// [`CallFailed`]; the handler will not run.
    pub fn push(&mut self, payload: &[u8]) -> Result<Ticket, CallFailed> {
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        let (own, peer) = (self.port.own(), self.port.peer());
        self.calls.submit(&mut self.lanes, own, peer, payload).map_err(|error| match error {
            SubmitError::Push(PushError::Peer(fault)) => poison(&mut self.poisoned, fault),
            SubmitError::Closed => CallFailed::PeerGone(Executed::No),
            error => CallFailed::Submit(error),
        })
    }

    /// Publishes what was pushed and rings the peer if it asked for it.
    pub fn commit(&mut self) {
        let wake = self.lanes.commit(self.port.own(), self.port.peer());
        self.rings += ring(&self.port, wake);
    }

    /// An answer, if one has arrived.
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer lies.
    pub fn try_reply(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Reply>, CallFailed> {
        if let Some(fault) = self.poisoned {
            return Err(CallFailed::Peer(fault));
        }
        let (own, peer) = (self.port.own(), self.port.peer());
        let reply = self.calls.next_reply(&mut self.lanes, own, peer, buffer);
        // A caller that only takes answers sends nothing: a peer that waits for room would not be rung.
        if self.lanes.owes_a_look() {
            self.commit();
        }
        reply.map_err(|fault| poison(&mut self.poisoned, fault))
    }

    /// Asks to be rung for the next answer, for an event loop that is about to sleep. True when one is there
    /// already: do not sleep.
    ///
    /// # Errors
    /// [`CallFailed::Peer`] when the peer lies.
    pub fn arm(&mut self) -> Result<bool, CallFailed> {
        let armed = self.lanes.arm(self.port.own(), self.port.peer(), false);
        let (armed, wake) = armed.map_err(|fault| poison(&mut self.poisoned, fault))?;
        self.rings += ring(&self.port, wake);
        Ok(armed == Armed::Moved)
    }

    /// Waits for room for a request that met a full lane. Take answers by [`Drive::try_reply`] until there are
    /// none first: a peer that cannot answer because nobody reads takes no requests either.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`].
    pub fn wait_for_room(&mut self, until: &mut Deadline) -> Result<(), CallFailed> {
        // With too many requests in flight it is an answer that makes room, however empty the lane is.
        let space = !self.calls.is_at_limit();
        self.wait(space, until, Executed::No).map(|_| ())
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// [`CallFailed`]; the session is usable after [`CallFailed::Deadline`] and [`CallFailed::Cancelled`],
    /// and the requests stay in flight: [`Drive::abandon`] those that nobody wants.
    pub fn wait_for_reply(
        &mut self,
        until: &mut Deadline,
        buffer: &mut Vec<u8>,
    ) -> Result<Reply, CallFailed> {
        loop {
            if let Some(reply) = self.try_reply(buffer)? {
                return Ok(reply);
            }
            if self.calls.closed().is_some() {
                return Err(CallFailed::PeerGone(Executed::Maybe));
            }
            self.wait(false, until, Executed::Maybe)?;
        }
    }

    /// Forgets a request. False when it was not in flight.
    pub fn abandon(&mut self, ticket: Ticket) -> bool {
        let (own, peer) = (self.port.own(), self.port.peer());
        let known = self.calls.abandon(&mut self.lanes, own, peer, ticket);
        self.commit();
        known
    }

    /// Whether the handler may have run, now that the peer is gone.
    pub fn executed(&mut self, ticket: Ticket) -> Executed {
        self.calls.executed(&mut self.lanes, self.port.peer(), ticket)
    }

    /// Gives a request up on a session that is over, and says whether its handler may have run.
    pub fn give_up(&mut self, ticket: Ticket) -> Executed {
        let executed = match self.poisoned {
            Some(_) => Executed::Maybe,
            None => self.executed(ticket),
        };
        self.calls.give_up(ticket);
        executed
    }

    /// Says bye: the peer sees it at once, whatever it waits for.
    pub fn close(&mut self, reason: CloseReason) {
        let wake = self.lanes.close(self.port.own(), self.port.peer(), reason);
        self.rings += ring(&self.port, wake);
    }

    /// Spins, then parks, until the peer publishes, or makes room when `space` is asked for, or the wait is
    /// over. `executed` goes into the error.
    fn wait(
        &mut self,
        space: bool,
        until: &mut Deadline,
        executed: Executed,
    ) -> Result<(), CallFailed> {
        let mut began = None;
        match self.spin_wait(space, until, &mut began)? {
            Waited::LookAgain => return Ok(()),
            Waited::Over(woken) => self.over(woken, executed)?,
        }
        let began = began.unwrap_or_else(|| self.port.now());
        let until = until.resolve(began);
        loop {
            let armed = self.lanes.arm(self.port.own(), self.port.peer(), space);
            let (armed, wake) = armed.map_err(|fault| poison(&mut self.poisoned, fault))?;
            self.rings += ring(&self.port, wake);
            let Armed::Sleep { tail, head } = armed else { return Ok(()) };
            self.parks += 1;
            self.port.own().store(Word::Parks, self.parks, Ordering::Relaxed);
            let woken = self.port.park(Park { tail, head, until });
            self.lanes.disarm(self.port.own());
            if woken == Woken::Rung {
                self.learn(began);
                if self.lanes.moved(self.port.peer()) || (space && self.room()?) {
                    return Ok(());
                }
                continue;
            }
            // What was published before the end is still read.
            if self.lanes.moved(self.port.peer()) && woken == Woken::PeerGone {
                self.gone = true;
                return Ok(());
            }
            return self.over(woken, executed);
        }
    }

    /// `LookAgain` when something moved; `Over(Rung)` when the spin ran out.
    fn spin_wait(
        &mut self,
        space: bool,
        until: &mut Deadline,
        began: &mut Option<Instant>,
    ) -> Result<Waited, CallFailed> {
        if self.gone {
            return Ok(Waited::Over(Woken::PeerGone));
        }
        let budget = self.spin.budget();
        if budget == 0 {
            return Ok(Waited::Over(Woken::Rung));
        }
        let mut looks = Looks::new(budget);
        loop {
            if self.lanes.moved(self.port.peer()) || (space && self.room()?) {
                self.spin.hit(looks.spun());
                return Ok(Waited::LookAgain);
            }
            self.port.relax();
            if !looks.count() {
                continue;
            }
            let now = self.port.now();
            let ran_out = looks.tick(now);
            *began = looks.began();
            if until.resolve(now).is_some_and(|until| now >= until) {
                return Ok(Waited::Over(Woken::Deadline));
            }
            if ran_out {
                self.spin.ran_out();
                return Ok(Waited::Over(Woken::Rung));
            }
        }
    }

    /// Tells the spin policy how a park went, from the peer's stamp, as far as it can be true.
    fn learn(&mut self, began: Instant) {
        let now = self.port.now();
        let rung = Instant::from_nanos(self.port.peer().load(Word::RungAt, Ordering::Relaxed));
        let nanos = |span: core::time::Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let honest = rung >= began && rung <= now;
        let gap = honest.then(|| nanos(rung.since(began)));
        let latency = honest.then(|| nanos(now.since(rung)));
        self.spin.parked(gap, latency);
    }

    fn room(&mut self) -> Result<bool, CallFailed> {
        self.lanes.has_room(self.port.peer()).map_err(|fault| poison(&mut self.poisoned, fault))
    }

    fn over(&mut self, woken: Woken, executed: Executed) -> Result<(), CallFailed> {
        match woken {
            Woken::Rung => Ok(()),
            Woken::Deadline => Err(CallFailed::Deadline(executed)),
            Woken::Cancelled => Err(CallFailed::Cancelled(executed)),
            Woken::PeerGone => {
                self.gone = true;
                Err(CallFailed::PeerGone(executed))
            }
        }
    }
}

fn poison(poisoned: &mut Option<PeerFault>, fault: PeerFault) -> CallFailed {
    *poisoned = Some(fault);
    CallFailed::Peer(fault)
}

/// How many bells it rang.
fn ring<P: Port>(port: &P, wake: Wake) -> u64 {
    if wake.data {
        port.ring(Bell::Data);
    }
    if wake.space {
        port.ring(Bell::Space);
    }
    u64::from(wake.data) + u64::from(wake.space)
}
