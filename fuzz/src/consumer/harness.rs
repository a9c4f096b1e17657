use std::cell::{Cell, RefCell};

use bellwire_core::lane::{Armed, Epoch, LaneTerms};
use bellwire_core::resize::{FollowError, Resource, Shortage};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{BATCH, Kind, MORE};
use bellwire_core::{Bell, Instant, OwnMemory, Park, PeerFault, PeerMemory, Port, Woken, Word};

use super::reading::Reading;
use super::writing::Writing;
use crate::script::Script;

/// The simulated peer of one end of a session: the values of its memory come from the input, and their use is checked.
pub(super) struct Fixture<'a> {
    pub(super) script: Script<'a>,
    pub(super) reading: RefCell<Reading>,
    pub(super) writing: RefCell<Writing>,
    /// The ids of requests that the peer may answer, if this end is the client.
    pub(super) asked: RefCell<Vec<u64>>,
    now: Cell<u64>,
    /// Loads of Head return the last valid value again.
    is_repeating: Cell<bool>,
    /// The peer's memory must not be read any more.
    pub(super) is_over: Cell<bool>,
}

/// One end of a session: its memory, its peer's, and the transport.
pub(super) struct Harness<'a>(pub(super) &'a Fixture<'a>);

impl<'a> Fixture<'a> {
    pub(super) fn new(script: Script<'a>, own: LaneTerms, peer: LaneTerms) -> Self {
        Self {
            script,
            reading: RefCell::new(Reading::new(peer)),
            writing: RefCell::new(Writing::new(own)),
            asked: RefCell::default(),
            now: Cell::new(1),
            is_repeating: Cell::new(false),
            is_over: Cell::new(false),
        }
    }

    /// Begins an operation.
    pub(super) fn begin(&self) {
        self.reading.borrow_mut().begin();
        self.writing.borrow_mut().begin();
    }

    /// Ends an operation that has reported this protocol violation, or none. Checks that it was injected, and that no
    /// harmful violation was missed.
    pub(super) fn end(&self, found: Option<PeerFault>) {
        let (reading, writing) = (self.reading.borrow(), self.writing.borrow());
        let Some(found) = found else {
            assert_eq!(reading.violation, None, "a protocol violation was not detected");
            return;
        };
        let is_of_a_value = match found {
            PeerFault::TailWentBack { .. }
            | PeerFault::TailTooFar { .. }
            | PeerFault::HeadWentBack { .. }
            | PeerFault::HeadTooFar { .. }
            | PeerFault::Misaligned { .. }
            | PeerFault::RecordTooLong { .. }
            | PeerFault::UnknownKind { .. }
            | PeerFault::UnknownFlags { .. } => true,
            // Other violations are in records that are valid in themselves.
            _ => reading.violation.is_some(),
        };
        let was_injected = reading.violation == Some(found) || writing.violations.contains(&found);
        assert!(
            was_injected || !is_of_a_value,
            "{found:?} is reported instead of {:?}",
            reading.violation
        );
    }

    /// After an operation that loaded Head: runs `reload`, which loads the last valid Head again. Only an end that
    /// accepted an invalid Head then reports that it went back.
    pub(super) fn repeat(&self, reload: impl FnOnce() -> Option<PeerFault>) {
        if self.writing.borrow().is_loaded {
            self.is_repeating.set(true);
            let found = reload();
            assert_eq!(found, None, "an unchecked head was used");
            self.is_repeating.set(false);
        }
    }

    /// Checks the values with which this end goes to sleep.
    pub(super) fn check(&self, armed: Armed) {
        if let Armed::Sleep { tail, head } = armed {
            self.check_sleep(tail, head);
        }
    }

    fn check_sleep(&self, tail: u64, head: Option<u64>) {
        assert_eq!(tail, self.reading.borrow().tail, "it sleeps on an unchecked tail");
        let checked = self.writing.borrow().head;
        assert!(head.is_none_or(|head| head == checked), "it sleeps on an unchecked head");
    }

    fn allocate(&self, epoch: Epoch) -> Result<(), Shortage> {
        let bytes = epoch.size.size();
        match self.script.byte() % 8 {
            7 => Err(Shortage { resource: Resource::Memory, bytes, code: 12 }),
            _ => Ok(()),
        }
    }

    fn tail(&self) -> u64 {
        let seen = self.reading.borrow().tail;
        if self.script.is_over() {
            return seen;
        }
        let tag = self.script.byte();
        match tag {
            0..32 => seen,
            32..224 => seen.wrapping_add(16 * u64::from(tag - 31)),
            224..240 => seen.wrapping_add(u64::from(tag)).wrapping_sub(232),
            240..248 => seen.wrapping_add(16 * u64::from(self.script.u16())),
            _ => self.script.u64(),
        }
    }

    fn head(&self) -> u64 {
        let (seen, published) = {
            let writing = self.writing.borrow();
            (writing.head, writing.published)
        };
        if self.is_repeating.get() {
            return seen;
        }
        let tag = self.script.byte();
        match tag {
            0..64 => seen,
            64..128 => published,
            128..224 => published.min(seen.wrapping_add(16 * u64::from(tag - 127))),
            224..240 => seen.wrapping_add(u64::from(tag)).wrapping_sub(232),
            _ => self.script.u64(),
        }
    }

    fn event_index(&self) -> u64 {
        let tag = self.script.byte();
        match tag {
            0..128 => u64::MAX,
            128..192 => self.writing.borrow().published,
            192..224 => self.reading.borrow().tail.wrapping_sub(16 * u64::from(tag - 192)),
            _ => self.script.u64(),
        }
    }

    /// Returns an arbitrary header, or one that a well-behaved peer could write, or nearly so.
    fn header(&self) -> [u8; 16] {
        let tag = self.script.byte();
        if tag >= 240 {
            return self.script.array();
        }
        let reading = self.reading.borrow();
        let [to_end, published] = reading.room();
        let [of, more, which] = self.script.array();
        let kinds = [
            Kind::Response,
            Kind::Request,
            Kind::Response,
            Kind::Request,
            Kind::Switch,
            Kind::Attach,
            Kind::Pad,
            Kind::Cancel,
            Kind::Trim,
            Kind::Close,
        ];
        let kind = kinds[usize::from(tag) % kinds.len()];
        let most = to_end.min(published) - 16;
        let len = match (kind, of) {
            (Kind::Pad, _) => to_end - 16,
            (Kind::Request | Kind::Response, 0..128) => most.min(of.into()),
            (Kind::Request | Kind::Response, 128..224) => most.min(24 * u64::from(of - 128)),
            (Kind::Request | Kind::Response, 224..248) => most,
            (_, 250..) => u64::from(of),
            _ => 0,
        };
        let asked = self.asked.borrow();
        let id = match (kind, reading.arriving()) {
            (Kind::Switch, _) => {
                let number = reading.epoch().number.wrapping_add(u32::from(which % 16 != 15));
                u64::from(number) | 1 << (32 + 12 + of % 5)
            }
            (Kind::Response, None) | (Kind::Attach, _) if !asked.is_empty() => {
                asked[usize::from(which) % asked.len()]
            }
            (_, Some(id)) if which % 8 != 7 => id,
            (Kind::Cancel, _) => reading.last_id.saturating_sub((which % 4).into()),
            _ => reading.last_id + 1 + u64::from(which % 4),
        };
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[4] = kind as u8;
        bytes[5] = if len > 0 && kind != Kind::Pad && more % 4 == 0 { MORE } else { 0 };
        if kind == Kind::Request && more > 0xf8 {
            bytes[5] |= BATCH;
        }
        bytes[6] = if kind == Kind::Close { 1 + more % 4 } else { (more / 4) % 11 };
        bytes[8..].copy_from_slice(&id.to_le_bytes());
        bytes
    }
}

/// The source of payloads, which start at an offset from the input. A constant, so that the fuzzer sees no loop.
static BYTES: [u8; 256 + (32 << 10)] = {
    let mut bytes = [0; 256 + (32 << 10)];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (at ^ at >> 8) as u8;
        at += 1;
    }
    bytes
};

impl PeerMemory for Harness<'_> {
    fn load(&self, word: Word, order: Ordering) -> u64 {
        let fixture = self.0;
        assert!(!fixture.is_over.get(), "a load after the session's end");
        match word {
            Word::Tail => {
                let tail = fixture.tail();
                // A relaxed load is a hint, on which no access depends.
                if order == Ordering::Acquire {
                    fixture.reading.borrow_mut().tail_loaded(tail);
                }
                tail
            }
            Word::Head => {
                let head = fixture.head();
                fixture.writing.borrow_mut().head_loaded(head);
                head
            }
            Word::WantData | Word::WantSpace => fixture.event_index(),
            Word::RungAt if fixture.script.byte() & 1 == 0 => fixture.now.get(),
            _ => fixture.script.u64(),
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let fixture = self.0;
        assert!(!fixture.is_over.get(), "a read after the session's end");
        if into.is_empty() {
            return;
        }
        let is_header = fixture.reading.borrow_mut().is_header(offset, into.len());
        if is_header {
            let bytes = fixture.header();
            into.copy_from_slice(&bytes);
            fixture.reading.borrow_mut().header_served(&bytes);
        } else {
            let from = usize::from(fixture.script.byte());
            into.copy_from_slice(&BYTES[from..from + into.len()]);
            fixture.reading.borrow_mut().payload_served(into);
        }
    }
}

impl OwnMemory for Harness<'_> {
    fn store(&self, word: Word, value: u64, order: Ordering) {
        match word {
            Word::Tail | Word::Head => {
                assert_eq!(order, Ordering::Release, "{word:?} needs a release store");
                if word == Word::Tail {
                    self.0.writing.borrow_mut().tail_stored(value);
                } else {
                    self.0.reading.borrow_mut().head_stored(value);
                }
            }
            _ => {}
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.writing.borrow_mut().wrote(offset, bytes);
    }
}

impl<'a> Port for Harness<'a> {
    type Own = Self;
    type Peer = Self;

    fn own(&self) -> &Self {
        self
    }

    fn peer(&self) -> &Self {
        self
    }

    fn now(&self) -> Instant {
        let now = &self.0.now;
        now.set(now.get() + 1000);
        Instant::from_nanos(now.get())
    }

    fn ring(&self, _: Bell) {}

    fn park(&mut self, park: Park) -> Woken {
        let fixture = self.0;
        fixture.check_sleep(park.tail, park.head);
        let [how, long] = fixture.script.array();
        fixture.now.set(fixture.now.get() + (u64::from(long) << 16));
        match how % 16 {
            _ if fixture.script.is_over() => Woken::PeerGone,
            0 => Woken::Deadline,
            1 => Woken::Cancelled,
            2 if long % 4 == 0 => Woken::PeerGone,
            _ => Woken::Rung,
        }
    }

    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        self.0.allocate(epoch)
    }

    fn adopt(&mut self, epoch: Epoch) {
        self.0.writing.borrow_mut().adopted(epoch);
    }

    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        self.0.allocate(epoch)?;
        self.0.reading.borrow_mut().followed(epoch);
        Ok(())
    }
}
