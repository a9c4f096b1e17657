use bellwire_core::PeerFault;
use bellwire_core::lane::{Epoch, LaneTerms, MAX_OUTSTANDING};
use bellwire_core::wire::Kind;

use crate::rules::{self, Place, Valid};

/// A model of a reader: which values of its peer's lane it was served, and what it may do next.
///
/// The model knows the served values, and nothing of the code. A header is read once, where the previous record ended,
/// and only if the checked tail covers it; its payload is read once, up to the length in the served header. A second
/// load returns another value, so that the code would use a value that it has not checked.
#[derive(Debug)]
pub(super) struct Reading {
    terms: LaneTerms,
    epoch: Epoch,
    /// The first position in the epoch.
    base: u64,
    /// Records before this were consumed.
    at: u64,
    /// The last valid tail.
    pub(super) tail: u64,
    released: u64,
    /// The header that was served at `at`.
    header: Option<Valid>,
    /// The header is from a previous operation, which did not follow that switch.
    is_kept: bool,
    is_copied: bool,
    /// The bytes that were read of the current message.
    message: Vec<u8>,
    /// A part of the message was not read.
    has_holes: bool,
    /// The id of the message of which more parts will come.
    arriving: Option<u64>,
    /// The highest id of a request that was served.
    pub(super) last_id: u64,
    /// The injected protocol violation, which the operation must report.
    pub(super) violation: Option<PeerFault>,
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
            violation: None,
        }
    }

    /// Begins an operation. The reader may keep the header of a switch that was not followed, or read it again.
    pub(super) fn begin(&mut self) {
        self.finish_record();
        self.is_kept = self.header.is_some();
    }

    /// The offset of the next header in the lane.
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

    /// The last message, all of which must have been read.
    pub(super) fn message(&self) -> &[u8] {
        assert!(!self.has_holes, "a part of the message was never read");
        &self.message
    }

    pub(super) fn tail_loaded(&mut self, now: u64) {
        self.assert_no_violation();
        self.finish_record();
        if now != self.tail {
            let others =
                if self.terms.least == self.terms.most { 0 } else { self.terms.most.size() };
            let reach = self.epoch.size.size() + others * MAX_OUTSTANDING as u64;
            match rules::tail(now, self.tail, self.at, reach) {
                Ok(tail) => self.tail = tail,
                Err(violation) => self.violation = Some(violation),
            }
        }
    }

    /// Before a read: returns whether it reads a header, and not a payload.
    pub(super) fn is_header(&mut self, offset: usize, len: usize) -> bool {
        self.assert_no_violation();
        let size = self.epoch.size.size();
        assert!(offset as u64 + len as u64 <= size, "a read outside the lane");
        let Some(header) = self.header else {
            assert_eq!((offset as u64, len), (self.offset(), 16), "a header is read first");
            assert!(self.at < self.tail, "an unpublished header is read");
            return true;
        };
        if offset as u64 == self.offset() + 16 && len > 0 && header.len > 0 {
            assert!(len <= header.len as usize, "more is read than the length in the header");
            assert!(!self.is_copied, "a payload is read twice");
            return false;
        }
        let again = self.offset();
        self.finish_record();
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
            Err(violation) => return self.violation = Some(violation),
        };
        self.is_copied = false;
        match valid.kind {
            // The reader skips it.
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
        assert!(head >= self.released && head <= self.tail, "a head beyond the published tail");
        if head != self.at {
            let header = self.header.expect("a head where no record ends");
            assert_eq!(head, self.at + header.size(), "a head where no record ends");
            self.advance(header);
        }
        self.released = head;
    }

    /// The reader switches to another epoch, before it stores Head.
    pub(super) fn followed(&mut self, epoch: Epoch) {
        let switch = self.header.filter(|header| header.kind == Kind::Switch);
        let switch = switch.expect("an epoch is followed without a switch");
        assert_eq!(epoch.to_wire(), switch.id, "the epoch differs from the announced one");
        assert_eq!(epoch.number, self.epoch.number.wrapping_add(1), "not the next epoch");
        assert!((self.terms.least..=self.terms.most).contains(&epoch.size), "not agreed");
        self.advance(switch);
        self.epoch = epoch;
        self.base = self.at;
    }

    /// Consumes the current record unless it is a switch: any other record is consumed by the operation that reads it.
    fn finish_record(&mut self) {
        if let Some(header) = self.header.filter(|header| header.kind != Kind::Switch) {
            self.advance(header);
        }
    }

    fn advance(&mut self, header: Valid) {
        if matches!(header.kind, Kind::Request | Kind::Response) {
            self.arriving = header.more.then_some(header.id);
            self.has_holes |= header.len > 0 && !self.is_copied;
        }
        self.at += header.size();
        self.header = None;
        self.is_kept = false;
    }

    fn assert_no_violation(&self) {
        if let Some(violation) = self.violation {
            panic!("the peer's memory is read after a protocol violation: {violation}");
        }
    }
}
