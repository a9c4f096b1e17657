//! Taking a newer snapshot: what changed, a copy out of the broadcast ring, or memory of its own.

use std::sync::OnceLock;
use std::task::{Poll, ready};

use bellwire_core::Instant;

use super::held::{Bytes, HeldSnapshot, Source};
use super::{RefreshError, Refreshed, SnapshotCache};
use crate::publisher::Snapshot;
use crate::trace::delivery::Transfer;
use crate::transport::{Os, prelude::*};
use crate::{CallError, Malformed, ProviderState, Session};

/// A reader that is further behind takes the newest snapshot as a whole.
const MAX_FOLLOWED: u64 = 16;

impl<T: Snapshot> SnapshotCache<T> {
    pub(super) fn fetch(&mut self) -> Result<Refreshed, RefreshError<T::Error>> {
        self.client.check_owner()?;
        if let Some(seen) = self.seen_at_end.take() {
            let newest = self.client.session().map(|session| session.board().generation());
            if newest == Some(seen) {
                self.client.lost();
                return Ok(Refreshed::Unavailable);
            }
            self.seen = Some(seen);
        }
        if self.client.session().is_some_and(|session| session.board().is_stopped()) {
            self.client.lost();
        }
        let had_session = self.client.session().is_some();
        if !had_session {
            self.seen = None;
        }
        // Take what the provider published before it died; the next refresh notices its death.
        if let Some(taken) = self.take_from_ring().transpose() {
            return taken;
        }
        let has_answer = self.client.session().is_some_and(|session| session.has_answer());
        let state = if has_answer { ProviderState::Ready } else { self.client.refresh() };
        if had_session && state != ProviderState::Ready {
            // The provider died. Report it now: a process that dies slowly still accepts connections but never
            // answers.
            self.seen = None;
            if state == ProviderState::Connecting {
                // A query of the state must now report the death, too, not a dying process that still accepts.
                self.client.lost();
            }
            return Ok(Refreshed::Unavailable);
        }
        let Some(session) = self.client.session() else {
            self.seen = None;
            let is_connecting = state == ProviderState::Connecting;
            return Ok(if is_connecting { Refreshed::Pending } else { Refreshed::Unavailable });
        };
        let generation = session.board().generation();
        if generation == 0 {
            self.seen = Some(0);
            return Ok(Refreshed::Empty);
        }
        // The first time, and when there is another one.
        let fetched = match self.map_ring() {
            Poll::Ready(Ok(is_mapped)) => {
                if let (true, Some(taken)) = (is_mapped, self.take_from_ring().transpose()) {
                    return taken;
                }
                self.fetch_by_call()
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        if let Poll::Ready(Ok(None)) = fetched {
            self.seen = Some(generation);
        }
        self.apply(fetched)
    }

    /// Takes the deltas, or else the newest snapshot, out of the ring, if it is mapped and has it.
    fn take_from_ring(&mut self) -> Result<Option<Refreshed>, RefreshError<T::Error>> {
        let copied = match self.follow() {
            Ok(true) => return Ok(Some(Refreshed::Changed)),
            Ok(false) => self.copy_newest(),
            Err(error) => Err(error),
        };
        copied.transpose().map(|copied| self.apply(Poll::Ready(copied.map(Some)))).transpose()
    }

    /// Takes what was fetched, or handles why nothing was.
    fn apply(
        &mut self,
        fetched: Poll<Result<Option<(u64, Bytes)>, CallError>>,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        match fetched {
            Poll::Ready(Ok(Some(found))) => self.take(found),
            Poll::Ready(Ok(None)) => Ok(Refreshed::Empty),
            Poll::Pending => Ok(Refreshed::Pending),
            Poll::Ready(Err(error)) => {
                self.client.leave_after(error)?;
                self.seen = None;
                Ok(Refreshed::Unavailable)
            }
        }
    }

    /// Updates the index by the delta of each generation since the one held. Returns whether it is the newest now.
    fn follow(&mut self) -> Result<bool, CallError> {
        let (Some(held), Some(session)) = (&mut self.held, self.client.session()) else {
            return Ok(false);
        };
        let newest = session.board().generation();
        let is_near = newest.checked_sub(held.generation).is_some_and(|behind| {
            // Nothing new: the provider may have died.
            behind > 0 && behind <= MAX_FOLLOWED
        });
        let is_asked = session.asked_since().is_some();
        // What is held from another session has other generations.
        if !T::PUBLISHES_DELTAS || self.seen != Some(held.generation) || !is_near || is_asked {
            return Ok(false);
        }
        while held.generation < newest {
            let next = held.generation + 1;
            self.trace.notices();
            let Some(len) = session.delta_in_ring(next, &mut self.spare)? else { break };
            self.trace.takes(next, Transfer::Copied);
            let taken = Os::now();
            if !T::apply_delta(&mut held.index, self.spare.get(..len).unwrap_or_default()) {
                break;
            }
            self.trace.validated(|| Some(session.traced()));
            held.bytes = Source::Made(OnceLock::new());
            (held.generation, held.taken) = (next, taken);
            self.seen = Some(next);
        }
        Ok(held.generation == newest)
    }

    /// Copies a newer snapshot out of the ring, if it is mapped and has one.
    fn copy_newest(&mut self) -> Result<Option<(u64, Bytes)>, CallError> {
        let Some(session) = self.client.session() else { return Ok(None) };
        let generation = session.board().generation();
        if Some(generation) != self.seen && generation > 0 {
            self.trace.notices();
        }
        // A copy of the last good snapshot is kept while the next one is checked.
        let Some((generation, len)) = session.newest_in_ring(generation, &mut self.spare)? else {
            return Ok(None);
        };
        if len > T::MAX_LEN {
            let why = "longer than a snapshot is";
            return Err(CallError::Malformed(Malformed::new(0, len, why)));
        }
        self.trace.takes(generation, Transfer::Copied);
        Ok(Some((generation, Bytes::Copied(std::mem::take(&mut self.spare), len))))
    }

    /// Has the ring mapped that the board names. Returns whether it is.
    fn map_ring(&mut self) -> Poll<Result<bool, CallError>> {
        let Some(session) = self.client.session() else { return Poll::Pending };
        let Some(ring) = session.board().ring() else { return Poll::Ready(Ok(false)) };
        session.try_ring(ring.number).map_ok(|ring| ring.is_some())
    }

    /// Takes the newest snapshot in memory of its own.
    fn fetch_by_call(&mut self) -> Poll<Result<Option<(u64, Bytes)>, CallError>> {
        let Some(session) = self.client.session() else { return Poll::Pending };
        let Some((generation, map)) = ready!(session.try_fetch(T::MAX_LEN)?) else {
            return Poll::Ready(Ok(None));
        };
        self.trace.takes(generation, Transfer::Mapped);
        Poll::Ready(Ok(Some((generation, Bytes::Mapped(map)))))
    }

    fn take(
        &mut self,
        (generation, bytes): (u64, Bytes),
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        self.seen = Some(generation);
        let taken = Os::now();
        self.trace.validates();
        let taken = self.validate(generation, bytes, taken);
        self.trace.validated(|| self.client.open_session().map(Session::traced));
        taken
    }

    /// Checks what was taken, and holds it if it is good.
    fn validate(
        &mut self,
        generation: u64,
        bytes: Bytes,
        taken: Instant,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        let Some(held) = &mut self.held else {
            let index = T::validate(&bytes)
                .map_err(|source| RefreshError::Malformed { generation, source })?;
            self.held = Some(HeldSnapshot { bytes: Source::Came(bytes), index, generation, taken });
            return Ok(Refreshed::Changed);
        };
        let updated = T::update(&mut held.index, &bytes);
        let unused = if updated.is_ok() {
            (held.generation, held.taken) = (generation, taken);
            std::mem::replace(&mut held.bytes, Source::Came(bytes))
        } else {
            Source::Came(bytes)
        };
        if let Source::Came(Bytes::Copied(buffer, _)) = unused {
            self.spare = buffer;
        }
        updated.map_err(|source| RefreshError::Malformed { generation, source })?;
        Ok(Refreshed::Changed)
    }
}
