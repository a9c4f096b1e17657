use bellwire_core::PeerFault;
use bellwire_core::lane::{Epoch, LaneTerms};
use bellwire_core::wire::{HEADER, Kind, SWITCH_RESERVE};

use crate::rules;

/// A model of a writer: what it has written and loaded, and what it may write next, by the rules of a sender in
/// `docs/wire.md`.
#[derive(Debug)]
pub(super) struct Writing {
    epoch: Epoch,
    /// The first position in the epoch.
    base: u64,
    written: u64,
    pub(super) published: u64,
    /// The last valid head of the peer.
    pub(super) head: u64,
    /// Head was loaded in this operation.
    pub(super) is_loaded: bool,
    /// The offset and the length of the payload of the last header.
    payload: Option<(u64, u32)>,
    /// The epoch of the last switch.
    switch: Option<u64>,
    is_closed: bool,
    /// The protocol violations that were injected in this operation. The writer may ignore a harmless one.
    pub(super) violations: Vec<PeerFault>,
}

impl Writing {
    pub(super) fn new(terms: LaneTerms) -> Self {
        Self {
            epoch: Epoch::first(terms.size),
            base: 0,
            written: 0,
            published: 0,
            head: 0,
            is_loaded: false,
            payload: None,
            switch: None,
            is_closed: false,
            violations: Vec::new(),
        }
    }

    /// Begins an operation.
    pub(super) fn begin(&mut self) {
        self.violations.clear();
        self.is_loaded = false;
    }

    pub(super) fn head_loaded(&mut self, now: u64) {
        self.is_loaded = true;
        if now != self.head {
            match rules::head(now, self.head, self.published) {
                Ok(head) => self.head = head,
                Err(violation) => self.violations.push(violation),
            }
        }
    }

    pub(super) fn wrote(&mut self, offset: usize, bytes: &[u8]) {
        if let Some((at, len)) = self.payload.take() {
            assert_eq!((offset as u64, bytes.len()), (at, len as usize), "the payload is next");
            return;
        }
        if bytes.len() < HEADER {
            self.check_prefetch(offset, bytes.len());
            return;
        }
        assert!(!self.is_closed, "a record after the close");
        assert!(self.switch.is_none(), "a record after a switch, in the old epoch");
        let size = self.epoch.size.size();
        let at = (self.written - self.base) % size;
        let bytes: &[u8; HEADER] = bytes.try_into().expect("a header is next");
        assert_eq!(offset as u64, at, "a header at the wrong offset");
        let len = u32::from_le_bytes(*bytes.first_chunk().expect("four of sixteen"));
        let kind = Kind::parse(bytes[4]).expect("a valid kind");
        let record = 16 + u64::from(len).next_multiple_of(16);
        assert!(at + record <= size, "a record that wraps");
        let reserve = match kind {
            Kind::Close | Kind::Switch => 0,
            _ => SWITCH_RESERVE,
        };
        let taken = self.head.max(self.base);
        assert!(self.written + record + reserve - taken <= size, "unread bytes are overwritten");
        assert!(record <= size / 2 - SWITCH_RESERVE, "a record or a pad too long");
        match kind {
            Kind::Close => self.is_closed = true,
            Kind::Switch => {
                self.switch = Some(u64::from_le_bytes(*bytes.last_chunk().expect("eight")));
            }
            Kind::Pad => assert_eq!(at + record, size, "a pad that does not end the lane"),
            _ => self.payload = Some((at + 16, len)),
        }
        self.written += record;
    }

    /// The writer may write to free space at any time, to prefetch its cache lines.
    fn check_prefetch(&self, offset: usize, len: usize) {
        let size = self.epoch.size.size();
        let at = (self.written - self.base) % size;
        let ahead = (offset as u64 + size - at) % size;
        let taken = self.head.max(self.base);
        let end = self.written + ahead + len as u64;
        assert!(end - taken <= size, "a prefetch overwrites unread bytes");
    }

    pub(super) fn tail_stored(&mut self, tail: u64) {
        assert!(self.payload.is_none(), "a record is published before it is written");
        assert_eq!(tail, self.written, "the published tail is the end of the written records");
        self.published = tail;
    }

    pub(super) fn adopted(&mut self, epoch: Epoch) {
        assert_eq!(self.switch.take(), Some(epoch.to_wire()), "no switch to this epoch");
        self.epoch = epoch;
        self.base = self.written;
    }
}
