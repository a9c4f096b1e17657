use bellwire_core::PeerFault;
use bellwire_core::lane::{Epoch, LaneTerms, MOST_OUTSTANDING};
use bellwire_core::wire::Kind;

use crate::rules::{self, Place, Valid};

/// What a reader has been given of its peer's lane, and so what it may do next.
///
/// It knows the values that were served and nothing of the code: a header is read once, where the one before ended,
/// and only if the tail that was checked covers it; its payload is read once, as far as the header said that was
/// served. A value that is loaded a second time is another one, so what the code checked and what it uses differ.
#[derive(Debug)]
pub(super) struct Reading {
    terms: LaneTerms,
    epoch: Epoch,
    /// The first position in it.
    base: u64,
    /// Records before this were consumed.
    at: u64,
    /// The last tail that kept the rules.
    pub(super) tail: u64,
    released: u64,
    /// The header that was served at `at`, in this operation.
    header: Option<Valid>,
    /// It is of an operation before, which did not follow that switch.
    is_kept: bool,
    is_copied: bool,
    /// The message whose last part was served last, as far as it was read.
    message: Vec<u8>,
    /// Some of it was not read.
    has_holes: bool,
    /// The message that goes on.
    arriving: Option<u64>,
    /// The highest id of a request that was served.
    pub(super) last_id: u64,
    /// What the operation has to report: a violation was served.
    pub(super) lie: Option<PeerFault>,
}

impl Reading {
    pub(super) fn new(terms: LaneTerms) -> Self {
        Self {
            terms,
            epoch: Epoch::first(terms.size),
            base: 0,
            at: 0,
            tail: 0,
            released: 0,
            header: None,
            is_kept: false,
            is_copied: false,
            message: Vec::new(),
            has_holes: false,
            arriving: None,
            last_id: 0,
            lie: None,
        }
    }

    /// A new operation: the header of a switch that was not followed was kept, or may be read again.
    pub(super) fn begin(&mut self) {
        self.settle();
        self.is_kept = self.header.is_some();
    }

    /// Where the next header is, in bytes from the epoch's start.
    pub(super) fn offset(&self) -> u64 {
        (self.at - self.base) % self.epoch.size.size()
    }

    /// Bytes from the next header to the end of the lane, and to the tail.
    pub(super) fn room(&self) -> [u64; 2] {
        [self.epoch.size.size() - self.offset(), self.tail - self.at]
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn arriving(&self) -> Option<u64> {
        self.arriving
    }

    /// The whole of the message that was served last, if all of it was read.
    pub(super) fn message(&self) -> &[u8] {
        assert!(!self.has_holes, "a part of the message was never read");
        &self.message
    }

    pub(super) fn tail_loaded(&mut self, now: u64) {
        self.assert_trusting();
        self.settle();
        if now != self.tail {
            let others =
                if self.terms.least == self.terms.most { 0 } else { self.terms.most.size() };
            let reach = self.epoch.size.size() + others * MOST_OUTSTANDING as u64;
            match rules::tail(now, self.tail, self.at, reach) {
                Ok(tail) => self.tail = tail,
                Err(lie) => self.lie = Some(lie),
            }
        }
    }

    /// Before a read: whether it is one of a header, and not of a payload.
    pub(super) fn is_header(&mut self, offset: usize, len: usize) -> bool {
        self.assert_trusting();
        let size = self.epoch.size.size();
        assert!(offset as u64 + len as u64 <= size, "a read outside the lane");
        let Some(header) = self.header else {
            assert_eq!((offset as u64, len), (self.offset(), 16), "a header is read first");
            assert!(self.at < self.tail, "a header is read that was not published");
            return true;
        };
        if offset as u64 == self.offset() + 16 && len > 0 && header.len > 0 {
            assert!(len <= header.len as usize, "more is read than the header said");
            assert!(!self.is_copied, "a payload is read twice");
            return false;
        }
        let again = self.offset();
        self.settle();
        if std::mem::take(&mut self.is_kept) {
            self.header = None;
            return self.is_header(offset, len);
        }
        assert!(self.header.is_none(), "the header of a switch is read twice");
        assert!(offset as u64 != again || again == self.offset(), "a header is read twice");
        self.is_header(offset, len)
    }

    /// After a header was served.
    pub(super) fn header_served(&mut self, bytes: &[u8; 16]) {
        let [to_end, published] = self.room();
        let (size, limit) = (self.epoch.size.size(), self.terms.message.bytes);
        let place = Place { at: self.at, published, to_end, size, limit };
        let valid = match rules::header(bytes, place) {
            Ok(valid) => valid,
            Err(lie) => return self.lie = Some(lie),
        };
        self.is_copied = false;
        match valid.kind {
            // No code acts on it.
            Kind::Pad => {
                self.at += valid.size();
                return;
            }
            Kind::Request | Kind::Response if self.arriving.is_none() => {
                self.message.clear();
                self.has_holes = false;
            }
            Kind::Cancel if self.arriving == Some(valid.id) => self.arriving = None,
            _ => {}
        }
        if matches!(valid.kind, Kind::Request | Kind::Attach) {
            self.last_id = self.last_id.max(valid.id);
        }
        self.header = Some(valid);
    }

    /// After a payload was served.
    pub(super) fn payload_served(&mut self, bytes: &[u8]) {
        self.is_copied = true;
        self.message.extend_from_slice(bytes);
    }

    /// The reader stores Head.
    pub(super) fn head_stored(&mut self, head: u64) {
        assert!(head >= self.released && head <= self.tail, "a head past what was published");
        if head != self.at {
            let header = self.header.expect("a head where no record ends");
            assert_eq!(head, self.at + header.size(), "a head where no record ends");
            self.leave(header);
        }
        self.released = head;
    }

    /// The reader switches to another epoch, before it stores Head.
    pub(super) fn followed(&mut self, epoch: Epoch) {
        let switch = self.header.filter(|header| header.kind == Kind::Switch);
        let switch = switch.expect("an epoch is followed where no switch is");
        assert_eq!(epoch.to_wire(), switch.id, "another epoch is followed than was announced");
        assert_eq!(epoch.number, self.epoch.number.wrapping_add(1), "not the next epoch");
        assert!((self.terms.least..=self.terms.most).contains(&epoch.size), "not agreed");
        self.leave(switch);
        self.epoch = epoch;
        self.base = self.at;
    }

    /// Every record but a switch is consumed by the operation that reads it.
    fn settle(&mut self) {
        if let Some(header) = self.header.filter(|header| header.kind != Kind::Switch) {
            self.leave(header);
        }
    }

    fn leave(&mut self, header: Valid) {
        if matches!(header.kind, Kind::Request | Kind::Response) {
            self.arriving = header.more.then_some(header.id);
            self.has_holes |= header.len > 0 && !self.is_copied;
        }
        self.at += header.size();
        self.header = None;
        self.is_kept = false;
    }

    fn assert_trusting(&self) {
        if let Some(lie) = self.lie {
            panic!("the peer's memory is read on after a lie: {lie}");
        }
    }
}
