use alloc::vec::Vec;

use super::ReceiveMemory;
use crate::sync::{Ordering, fence};
use crate::wire::{
    ALIGN, BROADCAST_HEADER, BroadcastKind, BroadcastRecord, BroadcastRing, BroadcastWord,
};
use crate::{Geometry, PeerFault};

/// How often one call goes on behind a writer that has come round to it, before it leaves the rest to the next call.
const ATTEMPTS: usize = 3;

/// How many records one call passes over on its way to a delta.
const PASSED: usize = 4096;

/// The reading end of a broadcast ring.
#[derive(Clone, Debug)]
pub struct Receiver {
    size: Geometry,
    max_payload: u64,
    /// The position of the next record.
    head: u64,
    /// The number that the next record has unless some are missed; `None` if any will do.
    next: Option<u64>,
    /// The most that the tail ever was.
    tail: u64,
}

/// What a reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing new.
    Nothing,
    /// A record, of which the payload was copied.
    Record {
        /// Its number.
        sequence: u64,
        /// The payload's length in bytes.
        len: usize,
        /// How many records before it were overwritten before this reader came to them.
        missed: u64,
    },
    /// The publisher goes on in the ring with this number.
    Next {
        /// The number.
        number: u32,
    },
    /// The writer came round faster than this reader could copy, several times: call again.
    Overrun,
}

/// A record whose header was copied and is possible.
struct Found {
    kind: BroadcastKind,
    sequence: u64,
    len: u32,
    space: u64,
}

/// Why a record was not taken.
enum Missed {
    /// The writer has come round to it.
    Overrun,
    Fault(PeerFault),
}

impl Receiver {
    /// Reads from the start of the ring, where record `first` was or will be; records that are overwritten already count
    /// as missed.
    pub fn new(ring: BroadcastRing, first: u64) -> Self {
        let (size, max_payload) = (ring.size, ring.max_payload());
        Self { size, max_payload, head: 0, next: Some(first), tail: 0 }
    }

    /// Reads from the oldest record that is kept, of whichever number.
    pub fn from_oldest(ring: BroadcastRing) -> Self {
        Self { next: None, ..Self::new(ring, 0) }
    }

    /// Expects this number next: what lies between it and the next record counts as missed.
    #[must_use]
    pub fn expecting(self, next: u64) -> Self {
        Self { next: Some(next), ..self }
    }

    /// Returns the number that the next record has unless some are missed.
    pub fn next_sequence(&self) -> Option<u64> {
        self.next
    }

    /// Returns whether the publisher has written something new: one load, for spinning.
    #[inline]
    pub fn has_new_records(&self, peer: &impl ReceiveMemory) -> bool {
        // mutant: equivalent because `try_next` loads the tail again, by Acquire, before it reads anything
        peer.load(BroadcastWord::Tail, Ordering::Acquire) != self.head
    }

    /// Copies the next record's payload to the start of `into`, which grows as needed. Never waits; copies at most three
    /// records.
    ///
    /// # Errors
    /// [`PeerFault`]: the publisher wrote what none writes. Read this ring no more.
    pub fn try_next(
        &mut self,
        peer: &impl ReceiveMemory,
        into: &mut Vec<u8>,
    ) -> Result<Received, PeerFault> {
        for attempt in 0..ATTEMPTS {
            let tail = self.load_tail(peer)?;
            if tail == self.head {
                return Ok(Received::Nothing);
            }
            let taken = if tail - self.head > self.size.size() {
                Err(Missed::Overrun)
            } else {
                self.take(peer, tail, into)
            };
            match taken {
                Ok(received) => return Ok(received),
                Err(Missed::Fault(fault)) => return Err(fault),
                Err(Missed::Overrun) => self.skip(peer, attempt > 0)?,
            }
        }
        Ok(Received::Overrun)
    }

    /// Copies the newest record's payload to the start of `into`, and skips those before it; [`Received::Nothing`] if there
    /// is none. Never waits; copies at most three records.
    ///
    /// # Errors
    /// Like [`Receiver::try_next`].
    pub fn newest(
        &mut self,
        peer: &impl ReceiveMemory,
        into: &mut Vec<u8>,
    ) -> Result<Received, PeerFault> {
        for _ in 0..ATTEMPTS {
            if !self.seek_latest(peer)? {
                return Ok(Received::Nothing);
            }
            let tail = self.load_tail(peer)?;
            match self.take(peer, tail, into) {
                Ok(received) => return Ok(received),
                Err(Missed::Fault(fault)) => return Err(fault),
                Err(Missed::Overrun) => {}
            }
        }
        Ok(Received::Overrun)
    }

    /// Copies the delta that leads to snapshot `sequence` to the start of `into`, and skips what is ahead of it;
    /// [`Received::Nothing`] if the publisher has not sent it. Never waits; reads at most 4096 headers, and copies one record.
    ///
    /// # Errors
    /// Like [`Receiver::try_next`].
    pub fn delta(
        &mut self,
        peer: &impl ReceiveMemory,
        sequence: u64,
        into: &mut Vec<u8>,
    ) -> Result<Received, PeerFault> {
        if self.load_tail(peer)? - self.head > self.size.size() {
            self.skip(peer, false)?;
        }
        let tail = self.load_tail(peer)?;
        for _ in 0..PASSED {
            if tail == self.head {
                return Ok(Received::Nothing);
            }
            let taken = self.header(peer, tail).and_then(|found| {
                let is_it = found.kind == BroadcastKind::Delta && found.sequence == sequence;
                if is_it {
                    self.copy(peer, &found, into);
                }
                self.is_whole(peer).then_some((found, is_it)).ok_or(Missed::Overrun)
            });
            let (found, is_it) = match taken {
                Ok(taken) => taken,
                Err(Missed::Fault(fault)) => return Err(fault),
                Err(Missed::Overrun) => return Ok(Received::Overrun),
            };
            let (len, is_pad) = (found.len as usize, found.kind == BroadcastKind::Pad);
            if is_pad {
                self.head += found.space;
            } else if found.kind == BroadcastKind::Next || found.sequence > sequence {
                return Ok(Received::Nothing);
            } else if found.kind == BroadcastKind::Data && found.sequence == sequence {
                // A snapshot without a delta ahead of it: the reader takes it as a whole.
                return Ok(Received::Nothing);
            } else {
                let missed = self.pass(&found)?;
                if is_it {
                    return Ok(Received::Record { sequence, len, missed });
                }
            }
        }
        Ok(Received::Overrun)
    }

    /// Skips everything that is there, without counting it as missed. Returns false if the writer was faster: call again.
    ///
    /// # Errors
    /// Like [`Receiver::try_next`].
    pub fn skip_to_now(&mut self, peer: &impl ReceiveMemory) -> Result<bool, PeerFault> {
        for _ in 0..ATTEMPTS {
            if !self.seek_latest(peer)? {
                return Ok(true);
            }
            let tail = self.load_tail(peer)?;
            match self.header(peer, tail) {
                Ok(found) if self.is_whole(peer) => {
                    // The last record of a ring that was replaced stays, so that the reader follows.
                    if found.kind == BroadcastKind::Next {
                        self.next = None;
                    } else {
                        self.pass(&found)?;
                    }
                    return Ok(true);
                }
                Err(Missed::Fault(fault)) => return Err(fault),
                Ok(_) | Err(Missed::Overrun) => {}
            }
        }
        Ok(false)
    }

    fn load_tail(&mut self, peer: &impl ReceiveMemory) -> Result<u64, PeerFault> {
        let now = peer.load(BroadcastWord::Tail, Ordering::Acquire);
        aligned(now)?;
        let seen = self.tail.max(self.head);
        if now < seen {
            return Err(PeerFault::TailWentBack { seen, now });
        }
        self.tail = now;
        Ok(now)
    }

    /// Takes the record at the head, which ends at `tail` at the latest.
    fn take(
        &mut self,
        peer: &impl ReceiveMemory,
        tail: u64,
        into: &mut Vec<u8>,
    ) -> Result<Received, Missed> {
        let mut found = self.header(peer, tail)?;
        if found.kind == BroadcastKind::Pad {
            if !self.is_whole(peer) {
                return Err(Missed::Overrun);
            }
            self.head += found.space;
            found = self.header(peer, tail)?;
        }
        let at = self.head;
        if matches!(found.kind, BroadcastKind::Pad | BroadcastKind::Delta) {
            // A pad is followed by a record at the ring's start. Whoever takes each record reads events, which have no
            // deltas, and a delta is never the newest record.
            return Err(
                self.classify_fault(peer, PeerFault::Unexpected { at, kind: found.kind as u8 })
            );
        }
        let len = found.len as usize;
        self.copy(peer, &found, into);
        if !self.is_whole(peer) {
            return Err(Missed::Overrun);
        }
        let sequence = found.sequence;
        if found.kind == BroadcastKind::Next {
            // The head stays: there is nothing behind it.
            let number = u32::try_from(sequence);
            let fault = PeerFault::Switch { at, id: sequence, why: "it names no ring" };
            return number
                .map(|number| Received::Next { number })
                .map_err(|_| Missed::Fault(fault));
        }
        let missed = self.pass(&found).map_err(Missed::Fault)?;
        Ok(Received::Record { sequence, len, missed })
    }

    /// Copies the payload of the record at the head.
    fn copy(&self, peer: &impl ReceiveMemory, found: &Found, into: &mut Vec<u8>) {
        let len = found.len as usize;
        if into.len() < len {
            into.resize(len, 0);
        }
        let payload = into.get_mut(..len).unwrap_or_default();
        peer.read(self.size.offset(self.head) + BROADCAST_HEADER, payload);
    }

    /// Goes on behind the record at the head. Returns how many before it were missed; a number never comes again, but for the
    /// snapshot that a delta leads to.
    fn pass(&mut self, found: &Found) -> Result<u64, PeerFault> {
        let id = found.sequence;
        let last = self.next.unwrap_or(id);
        let (Some(missed), Some(next)) = (id.checked_sub(last), id.checked_add(1)) else {
            return Err(PeerFault::ReusedId { id, last });
        };
        self.head += found.space;
        self.next = Some(if found.kind == BroadcastKind::Delta { id } else { next });
        Ok(missed)
    }

    /// Copies the header at the head and checks it.
    fn header(&self, peer: &impl ReceiveMemory, tail: u64) -> Result<Found, Missed> {
        let at = self.head;
        let (published, room) = (tail - at, self.size.room_to_end(at));
        let mut bytes = [0; BROADCAST_HEADER];
        peer.read(self.size.offset(at), &mut bytes);
        let header: BroadcastRecord = zerocopy::transmute!(bytes);
        let (len, kind) = (header.len.get(), header.kind.get());
        let space = BroadcastRecord::space(len);
        let Some(kind) = BroadcastKind::parse(kind) else {
            let kind = u8::try_from(kind).unwrap_or(u8::MAX);
            return Err(self.classify_fault(peer, PeerFault::UnknownKind { at, kind }));
        };
        let fits = space <= published.min(room)
            && match kind {
                BroadcastKind::Data | BroadcastKind::Delta => u64::from(len) <= self.max_payload,
                BroadcastKind::Pad => space == room && space < published,
                BroadcastKind::Next => len == 0,
            };
        if !fits {
            let fault = PeerFault::RecordTooLong { at, len, room: published.min(room) };
            return Err(self.classify_fault(peer, fault));
        }
        Ok(Found { kind, sequence: header.sequence.get(), len, space })
    }

    /// Returns whether nothing that was copied at the head can have been overwritten meanwhile.
    fn is_whole(&self, peer: &impl ReceiveMemory) -> bool {
        // Partner: the Release fence of `Transmitter::write`, which is after the store of Intent.
        fence(Ordering::Acquire);
        let intent = peer.load(BroadcastWord::Intent, Ordering::Relaxed);
        intent.saturating_sub(self.head) <= self.size.size()
    }

    /// A record is impossible: because the writer was overwriting it, or because the writer wrote it so.
    #[cold]
    fn classify_fault(&self, peer: &impl ReceiveMemory, fault: PeerFault) -> Missed {
        if self.is_whole(peer) { Missed::Fault(fault) } else { Missed::Overrun }
    }

    /// Goes on at the oldest record that is whole, or at the newest.
    #[cold]
    fn skip(&mut self, peer: &impl ReceiveMemory, to_newest: bool) -> Result<(), PeerFault> {
        if to_newest {
            return self.seek_latest(peer).map(drop);
        }
        // Acquire would not do more: the tail is loaded again before the record is read, and Oldest is checked against it.
        let oldest = peer.load(BroadcastWord::Oldest, Ordering::Relaxed);
        aligned(oldest)?;
        let tail = self.load_tail(peer)?;
        // Later than the tail: it was moved after the tail was loaded.
        if (self.head..=tail).contains(&oldest) {
            self.head = oldest;
        }
        Ok(())
    }

    /// Goes to the newest record. Returns false if there is none, or it was taken.
    fn seek_latest(&mut self, peer: &impl ReceiveMemory) -> Result<bool, PeerFault> {
        let latest = peer.load(BroadcastWord::Latest, Ordering::Acquire);
        if latest == u64::MAX || latest < self.head {
            return Ok(false);
        }
        aligned(latest)?;
        self.head = latest;
        Ok(true)
    }
}

fn aligned(at: u64) -> Result<(), PeerFault> {
    if at % ALIGN as u64 == 0 { Ok(()) } else { Err(PeerFault::Misaligned { at }) }
}
