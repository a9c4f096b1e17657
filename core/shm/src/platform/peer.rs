//! Who is at the other end, and the channel to it.

use std::error::Error;

use super::{Platform, ReceiveError, SendError};
use crate::Received;

/// Who is at the other end of a channel, according to the system.
pub trait Credentials<P: Platform>: Copy {
    /// Returns who opened the other end.
    ///
    /// # Errors
    /// When the other process may not be queried, or has ended.
    fn of(channel: &P::Channel) -> Result<Self, P::Error>;

    /// Returns the process, if known.
    fn pid(&self) -> Option<u32>;

    /// Returns the user.
    fn user(&self) -> P::User;

    /// Returns whether the peer acts as the user of this process, as the system, or as one of `users`.
    fn is_among(&self, users: &[P::User]) -> bool;

    /// Returns whether the peer was in a group when it connected; `false`, the default, where that is not known.
    fn is_in(&self, group: P::Group, channel: &P::Channel) -> bool {
        let _ = (group, channel);
        false
    }

    /// Why a client's identity is not accepted.
    type ConfirmError: Error;

    /// Returns the credentials that are certain once the peer has sent a message.
    ///
    /// # Errors
    /// The client is not who it says it is: refuse it.
    fn confirm(self, channel: &mut P::Channel) -> Result<Self, Self::ConfirmError>;
}

/// A process of this machine, to wait for its end.
pub trait Process<P: Platform>: Sized {
    /// Returns the process at the other end. `None` where this process may not wait for it, or the channel holds it already:
    /// then only the channel reports its end.
    fn watch(channel: &P::Channel) -> Option<Self>;

    /// Returns whether the process has ended. Does not wait.
    fn has_exited(&self) -> bool;
}

/// One end of a control socket or pipe, non-blocking. Its drop does not wait, whatever the peer has queued on it.
pub trait Channel<P: Platform>: Sized {
    /// Whether a client of netipc can be at the other end.
    const CARRIES_NETIPC: bool;
    /// The error of objects that were lost with the peer that had sent them; `None`, the default, where the channel keeps them.
    const LOSS: Option<P::Error> = None;

    /// Returns what is ready while there is a message or the other end is closed.
    fn arrived(&self) -> P::Borrowed<'_>;

    /// Sends `bytes` as one message, with `objects`.
    ///
    /// # Errors
    /// Nothing of the message was sent.
    fn send(&self, bytes: &[u8], objects: &[P::Borrowed<'_>]) -> Result<(), SendError<P>>;

    /// Lets the other end of an accepted channel send objects. Until then the system may refuse to; by default it never does.
    fn accept_objects(&self) {}

    /// Receives one message of at most `buf.len()` bytes and `max` objects.
    ///
    /// # Errors
    /// Every received object went to the reaper.
    fn receive(&self, buf: &mut [u8], max: usize) -> Result<Received<P::Owned>, ReceiveError<P>>;

    /// Receives as [`Channel::receive`] does, but leaves the message in the channel if this process has no room for its objects:
    /// by default [`Channel::receive`] does that already.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    fn receive_or_leave(
        &self,
        buf: &mut [u8],
        max: usize,
    ) -> Result<Received<P::Owned>, ReceiveError<P>> {
        self.receive(buf, max)
    }

    /// Makes the next receive find everything sent before this call. Returns whether that can make a difference: never, by
    /// default.
    fn catch_up(&self) -> bool {
        false
    }

    /// Returns the process at the other end, if the channel holds it.
    fn process(&self) -> Option<&P::Process> {
        None
    }
}
