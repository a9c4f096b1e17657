//! A peer that passes memory as nobody honest does. Each test is one violation, sent over the pipe by a client to a server and
//! by a server to a client.
#![allow(unsafe_code, reason = "writes memory that it has sent")]

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;

use bellwire_core::lane::{Epoch, Lanes, MAX_ATTACHED, MAX_OUTSTANDING};
use bellwire_core::resize::{self, FollowError};
use bellwire_core::wire::{Attachment, Header, Kind, MAX_CONTROL, Message, PAGE_SIZE, Status};
use bellwire_core::{Geometry, Park, PeerFault, Port, Woken};
use bellwire_win::doorbell::Event;
use bellwire_win::link::{DrainOutcome, Link};
use bellwire_win::prelude::*;
use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Memory::{
    FILE_MAP_WRITE, MapViewOfFile, PAGE_READONLY, PAGE_READWRITE, SEC_COMMIT, SEC_RESERVE,
    SECTION_QUERY, UnmapViewOfFile,
};

use crate::region::{duplicate, section};
use crate::session::{lanes, sealed};
use crate::support::{Pair, is_ready, pair, test_deadline};

/// A message of 5000 bytes, as an honest peer attaches it.
const LEN: u64 = 5000;

/// Both ends, each with its lanes; the first one lies.
fn ends() -> [[(Link, Lanes); 2]; 2] {
    let session = || pair(usize::try_from(Geometry::DEFAULT.size()).unwrap(), None);
    let (Pair { server, client, .. }, there) = (session(), session());
    [[(client, lanes()), (server, lanes())], [(there.server, lanes()), (there.client, lanes())]]
}

fn send(link: &Link, message: &Message, handles: &[BorrowedHandle<'_>]) {
    let mut bytes = [0; MAX_CONTROL];
    let len = message.encode(u16::try_from(handles.len()).unwrap(), &mut bytes);
    link.channel().send(&bytes[..len], handles).unwrap();
}

fn memory(size: u64) -> OwnedHandle {
    let size = usize::try_from(size).unwrap();
    section(INVALID_HANDLE_VALUE, size, PAGE_READWRITE | SEC_COMMIT)
}

/// What is wrong with memory that was made by hand, beside its size.
fn bad_memory(size: u64) -> [(OwnedHandle, &'static str); 5] {
    let bytes = usize::try_from(size).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(size).unwrap();
    let event = Event::create().unwrap().as_handle().try_clone_to_owned().unwrap();
    [
        (event, "it is not shared memory"),
        (file.try_clone().unwrap().into(), "it is not shared memory"),
        (section(file.as_raw_handle(), bytes, PAGE_READONLY), "it is a section of a file"),
        (duplicate(memory(size).as_handle(), SECTION_QUERY).unwrap(), "it cannot be read"),
        (
            section(INVALID_HANDLE_VALUE, bytes, PAGE_READWRITE | SEC_RESERVE),
            "its pages are not allocated",
        ),
    ]
}

fn next() -> Epoch {
    Epoch { number: 2, size: Geometry::DEFAULT.doubled() }
}

/// A lane that goes on. As it comes it is what an honest peer does.
struct Switching {
    announced: Option<Epoch>,
    record: Epoch,
    lane: OwnedHandle,
    count: usize,
}

impl Switching {
    fn honest() -> Self {
        let lane = memory(next().size.size());
        Self { announced: Some(next()), record: next(), lane, count: 1 }
    }

    /// Sends it to the other end, and returns how that receives it.
    fn received_by_victim(
        &self,
        [rogue, victim]: &mut [(Link, Lanes); 2],
    ) -> Result<(), FollowError> {
        let (link, lanes) = rogue;
        if let Some(announced) = self.announced {
            send(link, &Message::Lane(announced), &vec![self.lane.as_handle(); self.count]);
        }
        lanes.offer(self.record);
        lanes.switch(link.own()).unwrap();
        let _ = lanes.commit(link.own(), link.peer());
        let (link, lanes) = victim;
        let record = lanes.peek(link.peer()).map_err(FollowError::Peer)?.unwrap();
        assert_eq!(record.kind, Kind::Switch);
        resize::follow(link, lanes, &record)
    }
}

#[track_caller]
fn is_a_violation(why: &str, alter: impl Fn(&mut Switching)) {
    for mut ends in ends() {
        let mut switching = Switching::honest();
        alter(&mut switching);
        let Err(FollowError::Peer(fault)) = switching.received_by_victim(&mut ends) else {
            panic!("it was believed")
        };
        assert!(names(fault, why), "{fault:?}");
    }
}

fn names(fault: PeerFault, why: &str) -> bool {
    match fault {
        PeerFault::Memory { why: found, .. }
        | PeerFault::Switch { why: found, .. }
        | PeerFault::Control { why: found, .. } => found == why,
        _ => false,
    }
}

#[test]
fn an_honest_switch_of_the_same_making_is_followed() {
    // Or the tests below would show nothing.
    for mut ends in ends() {
        assert_eq!(Switching::honest().received_by_victim(&mut ends), Ok(()));
    }
}

#[test]
fn a_switch_without_its_handle() {
    is_a_violation("its record came without it", |switching| switching.announced = None);
}

#[test]
fn a_lane_with_no_handle_or_two() {
    for count in [0, 2] {
        is_a_violation("one descriptor belongs to it", |switching| switching.count = count);
    }
}

#[test]
fn a_skipped_or_repeated_epoch() {
    for number in [0, 1, 3, u32::MAX] {
        is_a_violation("its epoch is not the next one", |switching| {
            switching.record.number = number;
            switching.announced = Some(switching.record);
        });
    }
}

#[test]
fn a_handle_for_another_epoch_or_size() {
    let why = "it was announced with another epoch or size";
    is_a_violation(why, |switching| switching.announced = Some(Epoch { number: 3, ..next() }));
    let other = Epoch { size: Geometry::DEFAULT, ..next() };
    is_a_violation(why, |switching| switching.announced = Some(other));
}

#[test]
fn a_lane_above_the_limit() {
    let above = Epoch { size: Geometry::new(128 << 20).unwrap(), ..next() };
    is_a_violation("a lane above the limit", |switching| switching.announced = Some(above));
    is_a_violation("it is larger than the limit", |switching| switching.record = above);
}

#[test]
fn a_lane_whose_size_differs_from_its_record() {
    for size in [4096, 16 << 10, (32 << 10) - 4096, (32 << 10) + 1, 64 << 10] {
        is_a_violation("it has another size than announced", |switching| {
            switching.lane = memory(size);
        });
    }
}

#[test]
fn a_handle_of_no_memory_for_a_lane() {
    for at in 0..bad_memory(PAGE_SIZE as u64).len() {
        let bad = || bad_memory(next().size.size()).into_iter().nth(at).unwrap();
        is_a_violation(bad().1, |switching| switching.lane = bad().0);
    }
}

#[test]
fn more_lanes_than_may_be_outstanding() {
    for [(rogue, _), (mut victim, _)] in ends() {
        for number in 2..=2 + MAX_OUTSTANDING as u32 {
            let epoch = Epoch { number, size: Geometry::DEFAULT };
            send(&rogue, &Message::Lane(epoch), &[memory(epoch.size.size()).as_handle()]);
        }
        let woken = victim.park(Park { tail: 0, head: None, until: test_deadline() });
        assert_eq!(woken, Woken::PeerGone);
        assert!(victim.fault().is_some_and(|fault| names(fault, "too many lanes")));
    }
}

/// A message in memory of its own. As it comes it is what an honest peer does.
struct Passing {
    announced: Option<Attachment>,
    memory: OwnedHandle,
    count: usize,
}

impl Passing {
    fn honest() -> Self {
        let announced = Some(Attachment { id: 2, generation: 0, len: LEN });
        Self { announced, memory: memory(8192), count: 1 }
    }

    fn received_by_victim(
        &self,
        [(rogue, _), (victim, _)]: &mut [(Link, Lanes); 2],
    ) -> Result<usize, FollowError> {
        if let Some(announced) = self.announced {
            let handles = vec![self.memory.as_handle(); self.count];
            send(rogue, &Message::Attachment(announced), &handles);
        }
        victim.take_attachment(2).map(|(_, map)| map.len())
    }
}

#[track_caller]
fn is_no_message(why: &str, alter: impl Fn(&mut Passing)) {
    for mut ends in ends() {
        let mut passing = Passing::honest();
        alter(&mut passing);
        let Err(FollowError::Peer(fault)) = passing.received_by_victim(&mut ends) else {
            panic!("it was believed")
        };
        assert!(names(fault, why), "{fault:?}");
    }
}

#[test]
fn an_honest_message_of_the_same_making_is_taken() {
    for mut ends in ends() {
        assert_eq!(Passing::honest().received_by_victim(&mut ends), Ok(5000));
    }
}

#[test]
fn a_record_without_its_message() {
    is_no_message("its record came without it", |passing| passing.announced = None);
}

#[test]
fn a_message_with_no_handle_or_two() {
    for count in [0, 2] {
        is_no_message("one descriptor belongs to it", |passing| passing.count = count);
    }
}

#[test]
fn a_message_whose_length_differs_from_its_announcement() {
    for len in [1, 4096, 8193, 64 << 20] {
        is_no_message("it has another size than announced", |passing| {
            passing.announced = Some(Attachment { id: 2, generation: 0, len });
        });
    }
    for size in [4096, 12_288] {
        is_no_message("it has another size than announced", |passing| {
            passing.memory = memory(size);
        });
    }
}

#[test]
fn a_message_above_the_limit() {
    for len in [(64 << 20) + 1, u64::MAX] {
        is_no_message("an attachment above the limit", |passing| {
            passing.announced = Some(Attachment { id: 2, generation: 0, len });
        });
    }
}

#[test]
fn a_message_that_its_sender_can_still_write_does_not_change_under_a_reader_that_distrusts_it() {
    // The server, in this pair.
    let [[(rogue, _), (mut victim, _)], _] = ends();
    let kept = memory(8192);
    let attachment = Attachment { id: 1, generation: 0, len: LEN };
    send(&rogue, &Message::Attachment(attachment), &[kept.as_handle()]);
    let (_, message) = victim.take_attachment(1).unwrap();
    write(&kept, b"other");
    assert_eq!(message[..5], [0; 5]);
}

/// Writes to memory by a second map of it.
fn write(memory: &OwnedHandle, bytes: &[u8]) {
    // SAFETY: a fresh mapping of the whole section.
    let view = unsafe { MapViewOfFile(memory.as_raw_handle(), FILE_MAP_WRITE, 0, 0, 0) };
    assert!(!view.Value.is_null());
    // SAFETY: the mapping made above has at least a page, more than `bytes`; nobody else has it mapped.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), view.Value.cast(), bytes.len()) };
    // SAFETY: the mapping made above, not used any more.
    unsafe { UnmapViewOfFile(view) };
}

#[test]
fn a_message_with_another_number() {
    for id in [0, 1, 3, u64::MAX] {
        is_no_message("it was announced for another message", |passing| {
            passing.announced = Some(Attachment { id, generation: 0, len: LEN });
        });
    }
}

#[test]
fn a_handle_of_no_memory_for_a_message() {
    for at in 0..bad_memory(8192).len() {
        let bad = || bad_memory(8192).into_iter().nth(at).unwrap();
        is_no_message(bad().1, |passing| passing.memory = bad().0);
    }
}

#[test]
fn messages_without_a_record_are_left_in_the_pipe() {
    for [(rogue, _), (mut victim, _)] in ends() {
        let sealed = sealed(&[1; 10]);
        for id in 1..=MAX_ATTACHED as u64 {
            rogue.pass_attachment(id, 0, &sealed).unwrap();
        }
        assert_eq!(victim.take_control(), Ok(DrainOutcome::More));
        assert!(is_ready(victim.channel().arrived()), "there is more");
        // Asked for in another order than it came.
        let error = victim.take_attachment(2).unwrap_err();
        assert!(matches!(error, FollowError::Peer(PeerFault::Memory { .. })), "{error}");
        for id in 1..=MAX_ATTACHED as u64 {
            assert_eq!(victim.take_attachment(id).unwrap().1.len(), 10);
        }
    }
}

#[test]
fn a_request_in_a_lane_that_was_followed_is_read() {
    for [(mut rogue, mut sending), (mut victim, mut lanes)] in ends() {
        resize::grow(&mut rogue, &mut sending, next().size).unwrap();
        let header = Header::new(Kind::Request, Status::Ok, 1, 9000);
        sending.push(rogue.own(), rogue.peer(), header, &[7; 9000]).unwrap();
        let _ = sending.commit(rogue.own(), rogue.peer());
        let record = lanes.peek(victim.peer()).unwrap().unwrap();
        resize::follow(&mut victim, &mut lanes, &record).unwrap();
        let record = lanes.peek(victim.peer()).unwrap().unwrap();
        let mut bytes = [0; 9000];
        lanes.copy(victim.peer(), &record, &mut bytes);
        assert_eq!(bytes, [7; 9000]);
    }
}
