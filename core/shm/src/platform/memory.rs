//! Memory that one process writes, and snapshots that nobody writes any more.

use std::ops::Deref;

use super::{Platform, RegionError, VerifyError};
use crate::quota::LoanAccount;
use crate::{OwnRange, PeerRange};

/// Memory that this process created and only it writes: a page, a lane or a board.
pub trait OwnRegion<P: Platform>: Deref<Target = OwnRange> + Sized {
    /// Creates `size` zeroed bytes, lets `init` write the constant part, and denies everybody else to write them. Also returns
    /// what to send to the peer; drop it then. `name` shows where the system names memory.
    ///
    /// # Errors
    /// Which step failed. Beyond a memory cgroup's limit the kernel kills the process instead, so bound `size`.
    fn create(
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, P::Owned), RegionError<P>>;

    /// Creates memory as [`OwnRegion::create`] does, charged to a peer's quota until no peer has it any more.
    ///
    /// # Errors
    /// The peer's user holds too much; others as for [`OwnRegion::create`].
    fn lend(
        account: &LoanAccount,
        name: &str,
        size: usize,
        init: impl FnOnce(&Self),
    ) -> Result<(Self, P::Owned), RegionError<P>>;
}

/// Memory that the peer created and only the peer writes, mapped read-only.
pub trait PeerRegion<P: Platform>: Deref<Target = PeerRange> + Sized {
    /// Checks a peer's memory and maps it: it must be of exactly `size` bytes, all of them there, and nobody may be able to
    /// take them away. What was sent is left to the caller.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check_and_map(object: P::Borrowed<'_>, size: usize) -> Result<Self, VerifyError<P>>;

    /// Checks and maps as [`PeerRegion::check_and_map`] does. What is refused goes to the reaper.
    ///
    /// # Errors
    /// What is wrong with it.
    fn verify_and_map(object: P::Owned, size: usize) -> Result<Self, VerifyError<P>> {
        Self::check_and_map(P::borrow(&object), size).inspect_err(|_| P::reap([object]))
    }
}

/// A snapshot under construction: writable and private to this process.
pub trait SnapshotBuilder<P: Platform>: Sized {
    /// Allocates `len` zeroed bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// Which step failed.
    fn create(name: &str, len: usize) -> Result<Self, RegionError<P>>;

    /// Returns the bytes, to be filled.
    fn bytes(&mut self) -> &mut [u8];

    /// Unmaps the bytes and makes them immutable.
    ///
    /// # Errors
    /// The system refused.
    fn seal(self) -> Result<P::Snapshot, RegionError<P>>;
}

/// A finished snapshot: immutable for everybody, including this process.
pub trait Snapshot<P: Platform>: Sized {
    /// Creates a snapshot that holds a copy of `bytes`.
    ///
    /// # Errors
    /// Which step failed.
    fn copy_of(name: &str, bytes: &[u8]) -> Result<Self, RegionError<P>>;

    /// Returns the length in bytes.
    fn len(&self) -> usize;

    /// Returns whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Charges the snapshot to a peer's user, if there is an account, and gives `pass` what to send.
    ///
    /// # Errors
    /// It must not be sent, or there are no resources for a copy.
    fn lend_to<R>(
        &self,
        account: Option<&LoanAccount>,
        pass: impl FnOnce(P::Borrowed<'_>) -> R,
    ) -> Result<R, RegionError<P>>;

    /// Copies the snapshot into private memory.
    ///
    /// # Errors
    /// The system refused.
    fn to_vec(&self) -> Result<Vec<u8>, P::Error>;

    /// Maps the snapshot for reading in this process.
    ///
    /// # Errors
    /// The system refused.
    fn map(&self) -> Result<P::SnapshotMap, VerifyError<P>>;
}

/// A readable snapshot.
pub trait SnapshotMap<P: Platform>: Deref<Target = [u8]> + Sized {
    /// Checks a peer's snapshot of `len` bytes and maps it, or copies it where the system cannot prove that nobody writes it and
    /// the peer [is not trusted](super::Parts::trusts_peer). What is refused goes to the reaper.
    ///
    /// # Errors
    /// What is wrong with it.
    fn of_peer(object: P::Owned, len: usize, is_trusted: bool) -> Result<Self, VerifyError<P>>;
}
