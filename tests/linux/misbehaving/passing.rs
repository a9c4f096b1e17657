//! Memory that is passed during a session: a lane's next epoch, or a message. Unmodified, each is what an honest peer
//! passes.

use std::os::fd::{AsFd, OwnedFd};

use bellwire_core::Geometry;
use bellwire_core::lane::Epoch;
use bellwire_core::wire::{Attachment, Header, Kind, Message, Status, record_len};
use rustix::fs::SealFlags;

use super::impostor;
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
    /// Passed instead of the memory.
    pub(crate) other: Option<OwnedFd>,
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
        let memory = Draft { size: 8192, seals: IMMUTABLE, sparse: false, bytes: b"text".to_vec() };
        let announced = Message::Attachment(Attachment { id: 2, generation: 0, len: 5000 });
        Self::new(announced, Kind::Attach, 2, memory)
    }

    fn new(message: Message, kind: Kind, id: u64, memory: Draft) -> Self {
        let record = Header::new(kind, Status::Ok, id, 0);
        Self { message, record, memory, other: None, is_silent: false, again: false, fds: 1 }
    }

    pub(crate) fn tell(self, rogue: &mut RogueSession) {
        let fd = self.other.unwrap_or_else(|| self.memory.make());
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

    pub(crate) fn announce_epoch(&mut self, epoch: Epoch) {
        self.message = Message::Lane(epoch);
    }

    /// The epoch that both the message and the record name.
    pub(crate) fn say_epoch(&mut self, number: u32, size: u64) {
        let epoch = Epoch { number, size: Geometry::new(size).unwrap() };
        self.announce_epoch(epoch);
        self.record.id = epoch.to_wire().into();
    }

    /// A descriptor that can only be written.
    pub(crate) fn write_only(&mut self) {
        self.other = Some(impostor::write_only(&self.memory));
    }
}

/// Faults of memory that is passed during a session, and the name of each, for either end.
macro_rules! passings {
    () => {
        pub(super) mod lane {
            use super::*;

            rows! { lane_is_refused {
                without_its_descriptor(MISSING, |passing| passing.is_silent = true);
                with_no_descriptor(ONE_FD, |passing| passing.fds = 0);
                with_two_descriptors(ONE_FD, |passing| passing.fds = 2);
                of_no_epoch(NOT_NEXT, |passing| passing.say_epoch(0, 32 << 10));
                of_this_epoch(NOT_NEXT, |passing| passing.say_epoch(1, 32 << 10));
                of_an_epoch_too_far(NOT_NEXT, |passing| passing.say_epoch(3, 32 << 10));
                of_the_last_epoch(NOT_NEXT, |passing| passing.say_epoch(u32::MAX, 32 << 10));
                below_the_least(LEAST, |passing| passing.say_epoch(2, 8 << 10));
                of_the_smallest_size(LEAST, |passing| passing.say_epoch(2, 4 << 10));
                whose_record_is_above_the_limit(MOST, |passing| {
                    passing.record.id = (2 | 128 << 52).into();
                });
                whose_record_has_no_size(NO_LANE, |passing| passing.record.id = 2.into());
                whose_record_has_a_size_of_one(NO_LANE, |passing| {
                    passing.record.id = (2 | 1 << 32).into();
                });
                whose_record_has_no_power_of_two(NO_LANE, |passing| {
                    passing.record.id = (2 | 12_345 << 32).into();
                });
                whose_record_has_half_a_page(NO_LANE, |passing| {
                    passing.record.id = (2 | 2048 << 32).into();
                });
                whose_record_has_only_a_sign(NO_LANE, |passing| {
                    passing.record.id = (2 | 1 << 63).into();
                });
                announced_above_the_limit(ABOVE_LANE, |passing| {
                    let size = Geometry::LARGE.doubled();
                    passing.announce_epoch(Epoch { number: 2, size });
                });
                that_comes_twice(NOT_NEXT, |passing| {
                    passing.memory.bytes = passing.record.as_bytes().to_vec();
                    passing.again = true;
                });
                without_seals(A_SEAL, |passing| passing.memory.seals = SealFlags::empty());
                announced_for_a_later_epoch(OTHER_EPOCH, |passing| {
                    let size = Geometry::DEFAULT.doubled();
                    passing.announce_epoch(Epoch { number: 3, size });
                });
                announced_with_another_size(OTHER_EPOCH, |passing| {
                    passing.announce_epoch(Epoch { number: 2, size: Geometry::DEFAULT });
                });
                without_the_seal_against_shrinking(A_SEAL, |passing| {
                    passing.memory.seals -= SealFlags::SHRINK;
                });
                without_the_seal_against_growing(A_SEAL, |passing| {
                    passing.memory.seals -= SealFlags::GROW;
                });
                without_the_seal_against_writing(A_SEAL, |passing| {
                    passing.memory.seals -= SealFlags::FUTURE_WRITE;
                });
                without_the_seal_against_seals(A_SEAL, |passing| {
                    passing.memory.seals -= SealFlags::SEAL;
                });
                of_no_bytes(SIZE, |passing| {
                    (passing.memory.size, passing.memory.sparse) = (0, true);
                });
                one_byte_short(SIZE, |passing| passing.memory.size -= 1);
                one_byte_long(SIZE, |passing| passing.memory.size += 1);
                half_as_large(SIZE, |passing| passing.memory.size /= 2);
                twice_as_large(SIZE, |passing| passing.memory.size *= 2);
                without_any_page(SPARSE, |passing| passing.memory.sparse = true);
                that_can_only_be_written(UNREADABLE, |passing| passing.write_only());
            } }
        }

        pub(super) mod message {
            use super::*;

            rows! { message_is_refused {
                without_its_descriptor(MISSING, |passing| passing.is_silent = true);
                with_no_descriptor(ONE_FD, |passing| passing.fds = 0);
                with_two_descriptors(ONE_FD, |passing| passing.fds = 2);
                with_number_zero(OTHER_MESSAGE, |passing| passing.announce(|it| it.id = 0));
                with_an_old_number(OTHER_MESSAGE, |passing| passing.announce(|it| it.id = 1));
                with_a_later_number(OTHER_MESSAGE, |passing| passing.announce(|it| it.id = 3));
                with_the_last_number(OTHER_MESSAGE, |passing| {
                    passing.announce(|it| it.id = u64::MAX);
                });
                of_no_length(SIZE, |passing| passing.announce(|it| it.len = 0));
                that_says_one_page_less(SIZE, |passing| passing.announce(|it| it.len = 4096));
                that_says_one_byte_more(SIZE, |passing| passing.announce(|it| it.len = 8193));
                that_says_all_that_is_allowed(SIZE, |passing| {
                    passing.announce(|it| it.len = 64 << 20);
                });
                above_the_limit(ABOVE, |passing| passing.announce(|it| it.len = (64 << 20) + 1));
                of_the_greatest_length(ABOVE, |passing| {
                    passing.announce(|it| it.len = u64::MAX);
                });
                of_no_whole_pages(SIZE, |passing| passing.memory.size = 5000);
                without_seals(A_SEAL, |passing| passing.memory.seals = SealFlags::empty());
                that_its_sender_can_still_write(A_SEAL, |passing| passing.memory.seals = SEALS);
                without_the_seal_against_writing(A_SEAL, |passing| {
                    passing.memory.seals -= SealFlags::WRITE;
                });
                without_the_seal_against_shrinking(A_SEAL, |passing| {
                    passing.memory.seals -= SealFlags::SHRINK;
                });
                without_the_seal_against_growing(A_SEAL, |passing| {
                    passing.memory.seals -= SealFlags::GROW;
                });
                without_the_seal_against_seals(A_SEAL, |passing| {
                    passing.memory.seals -= SealFlags::SEAL;
                });
                without_any_page(SPARSE, |passing| {
                    (passing.memory.sparse, passing.memory.bytes) = (true, Vec::new());
                });
                that_can_only_be_written(UNREADABLE, |passing| passing.write_only());
            } }
        }

        pub(super) mod instead_of_a_lane {
            use super::*;

            impostors!(is_no_lane);
        }

        pub(super) mod instead_of_a_message {
            use super::*;

            impostors!(is_no_message);
        }
    };
}

/// The fault that a client reports; a server counts it, and closes.
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
    pub(in crate::misbehaving) const NO_MEMFD: &str = "it is no memfd";
    pub(in crate::misbehaving) const HUGE: &str = "it lies on huge pages";
}
