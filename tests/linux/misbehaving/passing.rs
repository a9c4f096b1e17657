//! Memory that is passed during a session: a lane's next epoch, or a message. Unmodified, each is what an honest peer
//! passes.

use std::os::fd::AsFd;

use bellwire_core::Geometry;
use bellwire_core::lane::Epoch;
use bellwire_core::wire::{Attachment, Header, Kind, Message, Status, record_len};
use rustix::fs::SealFlags;

use crate::support::memory::Draft;
use crate::support::rogue::{RogueSession, encode};

/// The seals of memory that is write-sealed.
pub(super) const IMMUTABLE: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Something passed, and the record that refers to it.
pub(crate) struct Passing {
    pub(crate) message: Message,
    pub(crate) record: Header,
    pub(crate) memory: Draft,
    /// Nothing is passed at all.
    pub(crate) is_silent: bool,
    /// It is passed twice.
    pub(crate) again: bool,
    pub(crate) fds: usize,
}

impl Passing {
    /// The next epoch, twice as large.
    pub(crate) fn lane() -> Self {
        let next = Epoch { number: 2, size: Geometry::DEFAULT.doubled() };
        let memory = Draft { size: next.size.size() as usize, ..Draft::lane() };
        Self::new(Message::Lane(next), Kind::Switch, next.to_wire(), memory)
    }

    /// The request 2, or its answer.
    pub(crate) fn message() -> Self {
        let bytes = b"text".to_vec();
        let memory = Draft { size: 8192, seals: IMMUTABLE, bytes, ..Draft::lane() };
        let announced = Message::Attachment(Attachment { id: 2, generation: 0, len: 5000 });
        Self::new(announced, Kind::Attach, 2, memory)
    }

    fn new(message: Message, kind: Kind, id: u64, memory: Draft) -> Self {
        let record = Header::new(kind, Status::Ok, id, 0);
        Self { message, record, memory, is_silent: false, again: false, fds: 1 }
    }

    pub(in crate::misbehaving) fn altered(mut self, alter: impl FnOnce(&mut Self)) -> Self {
        alter(&mut self);
        self
    }

    pub(crate) fn send(self, rogue: &mut RogueSession) {
        let fd = self.memory.make();
        let times = if self.is_silent { 0 } else { 1 + usize::from(self.again) };
        for _ in 0..times {
            let bytes = encode(&self.message, self.fds);
            rogue.send_control(&bytes, &vec![fd.as_fd(); self.fds]);
        }
        rogue.write(self.record, &[]);
        if matches!(self.message, Message::Lane(_)) && !self.memory.bytes.is_empty() {
            // The record in the lane that it leads to.
            rogue.tail += record_len(0);
        }
        rogue.publish();
    }

    pub(crate) fn announce(&mut self, alter: impl FnOnce(&mut Attachment)) {
        if let Message::Attachment(attachment) = &mut self.message {
            alter(attachment);
        }
    }

    pub(crate) fn announce_epoch(&mut self, number: u32, size: Geometry) {
        self.message = Message::Lane(Epoch { number, size });
    }

    /// The epoch that both the message and the record name.
    pub(crate) fn set_epoch(&mut self, number: u32, size: u64) {
        let epoch = Epoch { number, size: Geometry::new(size).unwrap() };
        self.message = Message::Lane(epoch);
        self.record.id = epoch.to_wire().into();
    }
}

/// Faults of memory that is passed during a session, and the name of each, for an end whose peer notices
/// `is_found(PART, VIOLATION)`.
macro_rules! passings {
    () => {
        rows! { lane: lane_is_refused {
            without_its_descriptor(MISSING, |passing| passing.is_silent = true);
            with_no_descriptor(ONE_FD, |passing| passing.fds = 0);
            with_two_descriptors(ONE_FD, |passing| passing.fds = 2);
            of_no_epoch(NOT_NEXT, |passing| passing.set_epoch(0, 32 << 10));
            of_this_epoch(NOT_NEXT, |passing| passing.set_epoch(1, 32 << 10));
            of_an_epoch_too_far(NOT_NEXT, |passing| passing.set_epoch(3, 32 << 10));
            of_the_last_epoch(NOT_NEXT, |passing| passing.set_epoch(u32::MAX, 32 << 10));
            below_the_least(LEAST, |passing| passing.set_epoch(2, 8 << 10));
            of_the_smallest_size(LEAST, |passing| passing.set_epoch(2, 4 << 10));
            whose_record_is_above_the_limit(MOST, |passing| passing.record.id = (2 | 128 << 52).into());
            whose_record_has_no_size(NO_LANE, |passing| passing.record.id = 2.into());
            whose_record_has_a_size_of_one(NO_LANE, |passing| passing.record.id = (2 | 1 << 32).into());
            whose_record_has_no_power_of_two(NO_LANE, |passing| passing.record.id = (2 | 12_345 << 32).into());
            whose_record_has_half_a_page(NO_LANE, |passing| passing.record.id = (2 | 2048 << 32).into());
            whose_record_has_only_a_sign(NO_LANE, |passing| passing.record.id = (2 | 1 << 63).into());
            announced_above_the_limit(ABOVE_LANE, |passing| passing.announce_epoch(2, Geometry::LARGE.doubled()));
            that_is_passed_twice(NOT_NEXT, |passing| {
                passing.memory.bytes = passing.record.as_bytes().to_vec();
                passing.again = true;
            });
            announced_for_a_later_epoch(OTHER_EPOCH, |passing| passing.announce_epoch(3, Geometry::DEFAULT.doubled()));
            announced_with_another_size(OTHER_EPOCH, |passing| passing.announce_epoch(2, Geometry::DEFAULT));
        } }

        rows! { message: message_is_refused {
            without_its_descriptor(MISSING, |passing| passing.is_silent = true);
            with_no_descriptor(ONE_FD, |passing| passing.fds = 0);
            with_two_descriptors(ONE_FD, |passing| passing.fds = 2);
            with_number_zero(OTHER_MESSAGE, |passing| passing.announce(|it| it.id = 0));
            with_an_old_number(OTHER_MESSAGE, |passing| passing.announce(|it| it.id = 1));
            with_a_later_number(OTHER_MESSAGE, |passing| passing.announce(|it| it.id = 3));
            with_the_last_number(OTHER_MESSAGE, |passing| passing.announce(|it| it.id = u64::MAX));
            of_no_length(SIZE, |passing| passing.announce(|it| it.len = 0));
            announced_one_page_too_short(SIZE, |passing| passing.announce(|it| it.len = 4096));
            announced_one_byte_too_long(SIZE, |passing| passing.announce(|it| it.len = 8193));
            of_the_largest_allowed_announced_length(SIZE, |passing| passing.announce(|it| it.len = 64 << 20));
            above_the_limit(ABOVE, |passing| passing.announce(|it| it.len = (64 << 20) + 1));
            of_the_greatest_length(ABOVE, |passing| passing.announce(|it| it.len = u64::MAX));
            of_no_whole_pages(SIZE, |passing| passing.memory.size = 5000);
            that_its_sender_can_still_write(A_SEAL, |passing| passing.memory.seals = SEALS);
        } }

        bad_memory! { memory_of_a_lane: lane_memory_is_refused }

        bad_memory! { memory_of_a_message: message_memory_is_refused }

        #[track_caller]
        fn lane_is_refused(why: &str, alter: impl FnOnce(&mut Passing)) {
            is_found(why, |rogue| Passing::lane().altered(alter).send(rogue));
        }

        #[track_caller]
        fn message_is_refused(why: &str, alter: impl FnOnce(&mut Passing)) {
            is_found(why, |rogue| Passing::message().altered(alter).send(rogue));
        }

        #[track_caller]
        fn lane_memory_is_refused(why: &str, alter: impl FnOnce(&mut Draft)) {
            lane_is_refused(why, |passing| alter(&mut passing.memory));
        }

        #[track_caller]
        fn message_memory_is_refused(why: &str, alter: impl FnOnce(&mut Draft)) {
            message_is_refused(why, |passing| alter(&mut passing.memory));
        }
    };
}

/// The fault that either end reports.
pub(super) mod why {
    pub(in crate::misbehaving) const MISSING: &str = "its record came without it";
    pub(in crate::misbehaving) const ONE_FD: &str = "one descriptor belongs to it";
    pub(in crate::misbehaving) const NOT_NEXT: &str = "its epoch is not the next one";
    pub(in crate::misbehaving) const LEAST: &str = "it is smaller than the least that was agreed";
    pub(in crate::misbehaving) const MOST: &str = "it is larger than the limit";
    pub(in crate::misbehaving) const NO_LANE: &str = "its size is no lane's";
    pub(in crate::misbehaving) const OTHER_EPOCH: &str =
        "it was announced with another epoch or size";
    pub(in crate::misbehaving) const OTHER_MESSAGE: &str = "it was announced for another message";
    pub(in crate::misbehaving) const A_SEAL: &str = "a seal is missing";
    pub(in crate::misbehaving) const SIZE: &str = "it has another size than announced";
    pub(in crate::misbehaving) const SPARSE: &str = "its pages are not allocated";
    pub(in crate::misbehaving) const UNREADABLE: &str = "it cannot be read";
    pub(in crate::misbehaving) const ABOVE_LANE: &str = "a lane above the limit";
    pub(in crate::misbehaving) const ABOVE: &str = "an attachment above the limit";
    pub(in crate::misbehaving) const NOT_SHARED: &str = "it is not shared memory";
    pub(in crate::misbehaving) const HUGE: &str = "it lies on huge pages";
}
