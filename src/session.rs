use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use bellwire_core::call::{Reply, SubmitError, Ticket};
use bellwire_core::drive::{CallFailed, Drive};
use bellwire_core::lane::PushError;
use bellwire_core::wire::{CloseReason, Message as Control, Snapshot, Status};
use bellwire_core::{Deadline, Executed, PeerFault};

use crate::board::Board;
use crate::connect::Opened;
use crate::control::Incoming;
use crate::transport::link::{Canceller, Link};
use crate::transport::snapshot::SnapshotMap;
use crate::{CallError, Malformed, Message, Service, SessionStats};

/// The longest reason of a failed handler that is kept, in bytes.
const MAX_REASON: usize = 4096;

/// One session with a provider of `S`: calls, one at a time or many in flight.
///
/// A session is for one thread at a time. It sends a request by copying it into a lane in shared memory and
/// makes no system call for it, unless the provider sleeps and has to be rung.
///
/// After [`CallError::PeerGone`] or [`CallError::PeerLied`] a session stays closed: open another one, or let a
/// [`Client`](crate::Client) do so.
#[derive(Debug)]
pub struct Session<S: Service> {
    drive: Drive<Link>,
    board: Board,
    /// The request being encoded.
    outbox: Vec<u8>,
    /// The answer that came last; larger than the answer when an earlier one was.
    inbox: Vec<u8>,
    /// Answers that came while another one was waited for.
    stash: VecDeque<(Reply, Vec<u8>)>,
    /// The memfd of the attached answer that came last.
    attachment: Option<(Snapshot, OwnedFd)>,
    provider_pid: Option<u32>,
    timeout: Duration,
    calls: Calls,
    service: PhantomData<fn(&S)>,
}

/// `made = answered + failed + in flight`.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    made: u64,
    answered: u64,
    failed: u64,
}

/// The memfd of an attached answer.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) generation: u64,
    pub(crate) map: SnapshotMap,
}

impl<S: Service> Session<S> {
    pub(crate) fn new(opened: Opened, timeout: Duration) -> Self {
        Self {
            drive: opened.drive,
            board: opened.board,
            outbox: Vec::new(),
            inbox: Vec::new(),
            stash: VecDeque::new(),
            attachment: None,
            provider_pid: opened.pid,
            timeout,
            calls: Calls::default(),
            service: PhantomData,
        }
    }

    /// Calls and waits for the answer, at most for the time set when the session was opened.
    ///
    /// # Errors
    /// [`CallError`]. The session stays usable unless the provider is gone or lied.
    pub fn call(&mut self, request: &S::Request) -> Result<S::Response, CallError> {
        self.call_within(request, self.timeout)
    }

    /// Calls and waits for the answer, at most for `timeout`.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn call_within(
        &mut self,
        request: &S::Request,
        timeout: Duration,
    ) -> Result<S::Response, CallError> {
        self.outbox.clear();
        request.encode(&mut self.outbox);
        let len = self.exchange(timeout)?;
        Ok(S::Response::decode(self.inbox.get(..len).unwrap_or(&[]))?)
    }

    /// Calls with the bytes of a request and lends the bytes of the answer: for who encodes in place. In a
    /// steady state nothing is allocated.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn call_bytes(&mut self, request: &[u8]) -> Result<&[u8], CallError> {
        self.outbox.clear();
        self.outbox.extend_from_slice(request);
        let len = self.exchange(self.timeout)?;
        Ok(self.inbox.get(..len).unwrap_or(&[]))
    }

    /// Sends a request and returns at once; its answer comes by [`Session::try_reply`]. Any number up to the
    /// lane's room may be in flight.
    ///
    /// # Errors
    /// [`CallError::WouldBlock`] when the lane is full: take replies first. The handler will not run.
    pub fn submit(&mut self, request: &S::Request) -> Result<Ticket, CallError> {
        self.outbox.clear();
        request.encode(&mut self.outbox);
        let ticket = self.drive.submit(&self.outbox)?;
        self.calls.made += 1;
        Ok(ticket)
    }

    /// The next answer, in whatever order the provider sent them, and the request that it is for; `None` when
    /// none has arrived. Never waits.
    ///
    /// # Errors
    /// [`CallError`] of the session; an error of one call stands inside.
    #[allow(clippy::type_complexity, reason = "which call, and how it went")]
    pub fn try_reply(
        &mut self,
    ) -> Result<Option<(Ticket, Result<S::Response, CallError>)>, CallError> {
        let (reply, stashed) = match self.stash.pop_front() {
            Some((reply, bytes)) => (reply, Some(bytes)),
            None => match self.drive.try_reply(&mut self.inbox)? {
                Some(reply) => {
                    self.fetch_attachment(&reply)?;
                    (reply, None)
                }
                None => {
                    return match self.drive.ended() {
                        Some(ended) => Err(ended.into()),
                        None => Ok(None),
                    };
                }
            },
        };
        let bytes = stashed.as_deref().or(self.inbox.get(..reply.len)).unwrap_or(&[]);
        let answer = decode::<S>(reply.status, bytes);
        self.book(answer.is_ok());
        Ok(Some((reply.ticket, answer)))
    }

    /// Asks for [`Session::as_fd`] to become readable at the next answer. Call it before each sleep in an
    /// event loop; true means that an answer is there already: do not sleep.
    ///
    /// # Errors
    /// [`CallError::PeerLied`].
    pub fn arm(&mut self) -> Result<bool, CallError> {
        self.drive.port().acknowledge();
        Ok(!self.stash.is_empty() || self.drive.arm()?)
    }

    /// The descriptor for an event loop: readable when an answer has come, or the provider is gone. `None`
    /// unless the session was opened with [`Doorbell::Eventfd`](crate::Doorbell::Eventfd) or
    /// [`Doorbell::Socket`](crate::Doorbell::Socket).
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.drive.port().pollable().ok().flatten()
    }

    /// Forgets a request: its answer, should it come, is dropped, and the provider is told that it need not
    /// run it any more. False when it was not in flight.
    pub fn abandon(&mut self, ticket: Ticket) -> bool {
        let stashed = self.stash.iter().position(|(reply, _)| reply.ticket == ticket);
        let forgotten =
            stashed.and_then(|at| self.stash.remove(at)).is_some() || self.drive.abandon(ticket);
        self.calls.failed += u64::from(forgotten);
        forgotten
    }

    /// Ends, from another thread, the call that waits now, or else the next one to wait.
    ///
    /// # Errors
    /// The session is rung by a descriptor and no other can be had (`EMFILE`).
    pub fn canceller(&self) -> std::io::Result<Canceller> {
        Ok(self.drive.port().canceller()?)
    }

    /// Whether the provider still is there: `false` once it died or closed the session. One system call.
    pub fn is_alive(&self) -> bool {
        self.drive.ended().is_none() && !self.drive.port().peer_gone()
    }

    /// Counters of this end.
    pub fn stats(&self) -> SessionStats {
        SessionStats {
            made: self.calls.made,
            answered: self.calls.answered,
            failed: self.calls.failed,
            in_flight: (self.drive.in_flight() + self.stash.len()) as u64,
            rings: self.drive.rings(),
            parks: self.drive.parks(),
        }
    }

    /// The largest request that the lane carries, in bytes.
    pub fn max_request(&self) -> usize {
        self.drive.max_payload()
    }

    /// The provider's process, as the kernel tells.
    pub fn provider_pid(&self) -> Option<u32> {
        self.provider_pid
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn link(&self) -> &Link {
        self.drive.port()
    }

    /// Calls and waits for an answer that is a memfd. `None` when there is nothing yet.
    pub(crate) fn call_attached(
        &mut self,
        timeout: Duration,
        max: usize,
    ) -> Result<Option<Attached>, CallError> {
        self.outbox.clear();
        let reply = match self.exchange_any(timeout) {
            Err(CallError::Declined { status: Status::NotYet }) => return Ok(None),
            reply => reply?,
        };
        let malformed = |why| CallError::Malformed(Malformed { at: 0, len: reply.len, why });
        let (snapshot, fd) =
            self.attachment.take().ok_or_else(|| malformed("not an attachment"))?;
        let len = usize::try_from(snapshot.len).unwrap_or(usize::MAX);
        let map = SnapshotMap::verify_and_map(fd, len, max).map_err(|_| {
            malformed("its memory is not write-sealed, of that length and all there")
        })?;
        Ok(Some(Attached { generation: snapshot.generation, map }))
    }

    /// Sends what stands in the outbox and waits for its answer. The answer's length, in the inbox.
    fn exchange(&mut self, timeout: Duration) -> Result<usize, CallError> {
        self.exchange_any(timeout).map(|reply| reply.len)
    }

    fn exchange_any(&mut self, timeout: Duration) -> Result<Reply, CallError> {
        let mut until = Deadline::within(timeout);
        let ticket = self.submit_outbox(&mut until)?;
        let answer = self.await_reply(ticket, &mut until).and_then(|reply| {
            let bytes = self.inbox.get(..reply.len).unwrap_or(&[]);
            check(reply.status, bytes).map(|()| reply)
        });
        self.book(answer.is_ok());
        answer
    }

    /// Puts the request into the lane, waiting for room. Answers that come meanwhile are stashed: a provider
    /// that cannot answer because nobody reads would not take requests either.
    fn submit_outbox(&mut self, until: &mut Deadline) -> Result<Ticket, CallError> {
        loop {
            match self.drive.submit(&self.outbox) {
                Err(CallFailed::Submit(
                    SubmitError::Push(PushError::Full { .. }) | SubmitError::Window,
                )) => {}
                submitted => {
                    let ticket = submitted?;
                    self.calls.made += 1;
                    return Ok(ticket);
                }
            }
            if !self.stash_next()? {
                self.drive.wait_for_room(until)?;
            }
        }
    }

    fn await_reply(&mut self, ticket: Ticket, until: &mut Deadline) -> Result<Reply, CallError> {
        loop {
            match self.drive.wait_for_reply(until, &mut self.inbox) {
                Ok(reply) => {
                    self.fetch_attachment(&reply)?;
                    if reply.ticket == ticket {
                        return Ok(reply);
                    }
                    self.stash(reply);
                }
                Err(failed @ CallFailed::Deadline(_)) => {
                    self.drive.abandon(ticket);
                    return Err(failed.into());
                }
                Err(failed @ CallFailed::Cancelled(_)) => {
                    self.drive.abandon(ticket);
                    self.drive.port().take_cancel();
                    return Err(failed.into());
                }
                Err(failed) => {
                    let executed = self.drive.give_up(ticket);
                    return Err(match failed {
                        CallFailed::PeerGone(_) => CallError::PeerGone { executed },
                        failed => failed.into(),
                    });
                }
            }
        }
    }

    /// Stashes one answer that has arrived. False when none has.
    fn stash_next(&mut self) -> Result<bool, CallError> {
        let Some(reply) = self.drive.try_reply(&mut self.inbox)? else { return Ok(false) };
        self.fetch_attachment(&reply)?;
        self.stash(reply);
        Ok(true)
    }

    fn stash(&mut self, reply: Reply) {
        if reply.attached {
            // Only a call that was given up can still be answered by one.
            self.attachment = None;
            return;
        }
        let bytes = self.inbox.get(..reply.len).unwrap_or(&[]).to_vec();
        self.stash.push_back((reply, bytes));
    }

    /// Takes the memfd of an attached answer off the control socket, where it lies since before the record
    /// was published.
    fn fetch_attachment(&mut self, reply: &Reply) -> Result<(), CallError> {
        if !reply.attached {
            return Ok(());
        }
        let fetched = self.receive_attachment(reply.ticket);
        if let Err(CallError::PeerLied(fault)) = &fetched {
            self.drive.poison(*fault);
        }
        fetched
    }

    fn receive_attachment(&mut self, ticket: Ticket) -> Result<(), CallError> {
        loop {
            let lied = |why| PeerFault::Control { len: 0, fds: 0, why };
            let incoming = match Incoming::receive(self.drive.port().socket()) {
                Ok(Some(incoming)) => incoming,
                Ok(None) => return Err(lied("an attach record came without its descriptor").into()),
                Err(_) => return Err(CallError::PeerGone { executed: Executed::Maybe }),
            };
            match incoming.parse() {
                Ok(Control::Ring) => {}
                Ok(Control::Snapshot(snapshot)) if snapshot.id == ticket.id() => {
                    let fds = incoming.received.expect_fds::<1>();
                    let [fd] = fds.map_err(|_| lied("an attachment has one descriptor"))?;
                    self.attachment = Some((snapshot, fd));
                    return Ok(());
                }
                _ => return Err(lied("not the attachment that the record announced").into()),
            }
        }
    }

    fn book(&mut self, answered: bool) {
        if answered {
            self.calls.answered += 1;
        } else {
            self.calls.failed += 1;
        }
    }
}

impl<S: Service> Drop for Session<S> {
    /// Says bye: the provider sees the end of the session at once, whatever it waits for.
    fn drop(&mut self) {
        if self.drive.ended().is_none() {
            self.drive.close(CloseReason::Normal);
        }
    }
}

fn decode<S: Service>(status: Status, bytes: &[u8]) -> Result<S::Response, CallError> {
    check(status, bytes)?;
    Ok(S::Response::decode(bytes)?)
}

fn check(status: Status, bytes: &[u8]) -> Result<(), CallError> {
    match status {
        Status::Ok => Ok(()),
        Status::Failed => {
            let bytes = bytes.get(..MAX_REASON).unwrap_or(bytes);
            // It is shown to people: no control characters of another process on their terminals.
            let reason = String::from_utf8_lossy(bytes).replace(char::is_control, " ");
            Err(CallError::Handler { reason: reason.into() })
        }
        status => Err(CallError::Declined { status }),
    }
}
