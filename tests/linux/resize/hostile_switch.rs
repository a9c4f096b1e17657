//! A peer whose Switch leads to an invalid lane. Each test is one violation, by a client against a server, and by a
//! server against a client.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use bellwire::{Geometry, PeerFault};
use bellwire_core::Word;
use bellwire_core::lane::{Epoch, MOST_OUTSTANDING};
use bellwire_core::wire::{Header, Kind, Message, Status, record_len};
use rustix::fs::{Mode, OFlags, SealFlags};
use zerocopy::IntoBytes;

use crate::hostile::client::poisons;
use crate::hostile::server::lies;
use crate::support::memory::Draft;
use crate::support::rogue::{Rogue, RogueSession, encode};
use crate::support::test_server::TestServer;

/// A lane that switches. Unmodified, it is what an honest peer does.
struct Switching {
    /// What the message on the control socket says.
    announced: Epoch,
    /// What the record says.
    record: u64,
    lane: Draft,
    /// How many descriptors come with the message.
    fds: usize,
    /// Passed instead of the lane.
    other: Option<OwnedFd>,
    /// Nothing is passed at all.
    silent: bool,
}

fn size(size: u64) -> Geometry {
    Geometry::new(size).unwrap()
}

impl Switching {
    /// To twice the lane, whose first record is that of `header`.
    fn honest(header: Header) -> Self {
        let next = Epoch { number: 2, size: Geometry::DEFAULT.doubled() };
        let bytes = header.as_bytes().to_vec();
        let lane = Draft { size: next.size.size() as usize, bytes, ..Draft::lane() };
        Self { announced: next, record: next.to_wire(), lane, fds: 1, other: None, silent: false }
    }

    /// What both the message and the record say.
    fn says(&mut self, epoch: Epoch) {
        (self.announced, self.record) = (epoch, epoch.to_wire());
    }

    fn tell(self, rogue: &mut RogueSession) {
        let fd = self.other.unwrap_or_else(|| self.lane.make());
        if !self.silent {
            let message = encode(&Message::Lane(self.announced), self.fds);
            rogue.send_control(&message, &vec![fd.as_fd(); self.fds]);
        }
        rogue.write(Header::new(Kind::Switch, Status::Ok, 0, 0).with_id(self.record), &[]);
        rogue.tail += record_len(0);
        rogue.publish();
    }
}

/// A header with another id.
trait WithId {
    fn with_id(self, id: u64) -> Self;
}

impl WithId for Header {
    fn with_id(mut self, id: u64) -> Self {
        self.id = id.into();
        self
    }
}

fn request() -> Header {
    Header::new(Kind::Request, Status::Ok, 2, 0)
}

fn response() -> Header {
    Header::new(Kind::Response, Status::Ok, 2, 0)
}

/// The session is poisoned for this, at either end.
#[track_caller]
fn is_a_lie(why: &str, alter: impl Fn(&mut Switching)) {
    poisons(|rogue| {
        let mut switching = Switching::honest(request());
        alter(&mut switching);
        switching.tell(rogue);
    });
    lies(
        |rogue| {
            let mut switching = Switching::honest(response());
            alter(&mut switching);
            switching.tell(rogue);
        },
        |fault| names(fault, why),
    );
}

/// Whether this is the fault, in the lane's next epoch.
fn names(fault: PeerFault, why: &str) -> bool {
    match fault {
        PeerFault::Memory { what: "a lane", why: found }
        | PeerFault::Switch { why: found, .. }
        | PeerFault::Control { why: found, .. } => found == why,
        _ => false,
    }
}

#[test]
fn an_honest_switch_of_the_same_making_is_followed() {
    // Otherwise the tests below would prove nothing.
    let fixture = TestServer::open();
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    Switching::honest(request()).tell(&mut rogue);
    rogue.sees(Word::Head, 32);
    rogue.sees(Word::Tail, 16);
    drop(rogue);
    let stats = fixture.close();
    assert_eq!((stats.poisoned, stats.answered), (0, 1));
}

#[test]
fn a_switch_without_its_descriptor() {
    is_a_lie("its record came without it", |switching| switching.silent = true);
}

#[test]
fn a_lane_with_no_descriptor_or_two() {
    for fds in [0, 2] {
        is_a_lie("one descriptor belongs to it", |switching| switching.fds = fds);
    }
}

#[test]
fn an_epoch_that_is_left_out() {
    let next = Epoch { number: 3, size: Geometry::DEFAULT.doubled() };
    is_a_lie("its epoch is not the next one", |switching| switching.says(next));
}

#[test]
fn an_epoch_that_comes_again() {
    for number in [0, 1, u32::MAX] {
        let again = Epoch { number, size: Geometry::DEFAULT.doubled() };
        is_a_lie("its epoch is not the next one", |switching| switching.says(again));
    }
}

#[test]
fn an_epoch_that_comes_twice() {
    let twice = |rogue: &mut RogueSession, header: Header| {
        // The second switch is in the lane that the first leads to.
        let mut switching = Switching::honest(header);
        let again = Header::new(Kind::Switch, Status::Ok, switching.record, 0);
        switching.lane.bytes = again.as_bytes().to_vec();
        let message = encode(&Message::Lane(switching.announced), 1);
        for _ in 0..2 {
            rogue.send_control(&message, &[switching.lane.make().as_fd()]);
        }
        switching.silent = true;
        switching.tell(rogue);
    };
    poisons(|rogue| twice(rogue, request()));
    lies(|rogue| twice(rogue, response()), |fault| names(fault, "its epoch is not the next one"));
}

#[test]
fn a_ring_below_the_least() {
    for small in [4096, 8192] {
        is_a_lie("it is smaller than the least that was agreed", |switching| {
            switching.says(Epoch { number: 2, size: size(small) });
            switching.lane.size = small as usize;
        });
    }
}

#[test]
fn a_ring_above_the_limit() {
    for large in [128 << 20, 1 << 30] {
        // A server finds the message; a client, to which the record refers it, finds the record.
        let above = Epoch { number: 2, size: size(large) };
        let switching = |header| {
            let mut switching = Switching::honest(header);
            switching.says(above);
            switching
        };
        poisons(|rogue| switching(request()).tell(rogue));
        lies(
            |rogue| switching(response()).tell(rogue),
            |fault| names(fault, "it is larger than the limit"),
        );
        is_a_lie("it is larger than the limit", |switching| switching.record = above.to_wire());
        // Of which the record says nothing.
        is_a_lie("a lane above the limit", |switching| switching.announced = above);
    }
}

#[test]
fn a_size_that_is_no_lanes() {
    for size in [0, 1, 4095, 12_345, 2048, 1 << 31] {
        is_a_lie("its size is no lane's", |switching| switching.record = 2 | size << 32);
    }
}

#[test]
fn a_lane_that_lacks_a_seal() {
    for seal in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE, SealFlags::SEAL] {
        is_a_lie("a seal is missing", |switching| switching.lane.seals -= seal);
    }
    is_a_lie("a seal is missing", |switching| switching.lane.seals = SealFlags::empty());
}

#[test]
fn a_lane_of_another_size_than_its_record_says() {
    for size in [4096, 16 << 10, (32 << 10) - 1, (32 << 10) + 1, 64 << 10] {
        is_a_lie("it has another size than announced", |switching| switching.lane.size = size);
    }
}

#[test]
fn a_lane_without_all_its_pages() {
    is_a_lie("its pages are not allocated", |switching| switching.lane.sparse = true);
}

/// Its seals are those of a lane, and it cannot be mapped for reading.
#[test]
fn a_descriptor_that_can_only_be_written() {
    is_a_lie("it cannot be read", |switching| {
        let lane = switching.lane.make();
        let path = format!("/proc/self/fd/{}", lane.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        switching.other = Some(rustix::fs::open(&path, flags, Mode::empty()).unwrap());
    });
}

#[test]
fn a_pipe_a_socket_or_a_device_for_a_lane() {
    use std::os::unix::net::UnixStream;
    let others: [fn() -> OwnedFd; 4] = [
        || std::io::pipe().unwrap().0.into(),
        || UnixStream::pair().unwrap().0.into(),
        || std::fs::File::open("/dev/zero").unwrap().into(),
        || rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap(),
    ];
    for other in others {
        is_a_lie("it is no memfd", |switching| switching.other = Some(other()));
    }
}

#[test]
fn a_descriptor_for_another_epoch() {
    let why = "it was announced with another epoch or size";
    is_a_lie(why, |switching| switching.announced.number = 3);
    is_a_lie(why, |switching| switching.announced.size = Geometry::DEFAULT);
}

#[test]
fn more_lanes_than_may_be_outstanding() {
    let too_many = |rogue: &mut RogueSession| {
        for number in 2..=2 + MOST_OUTSTANDING as u32 {
            let epoch = Epoch { number, size: Geometry::DEFAULT };
            rogue.send_control(&encode(&Message::Lane(epoch), 1), &[Draft::lane().make().as_fd()]);
        }
    };
    poisons(too_many);
    lies(
        |rogue| {
            too_many(rogue);
            // A client that is rung by a futex reads its socket when a record says so.
            rogue.put(Header::new(Kind::Switch, Status::Ok, 0, 0).with_id(9 << 32 | 2), &[]);
        },
        |fault| names(fault, "too many lanes") || names(fault, "its size is no lane's"),
    );
}
