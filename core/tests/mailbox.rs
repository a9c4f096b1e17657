//! Messages of the control socket during a session. A descriptor is a number here.

use bellwire_core::lane::{Epoch, MAX_ATTACHED, MAX_OUTSTANDING};
use bellwire_core::mailbox::Mailbox;
use bellwire_core::wire::{Attachment, Message};
use bellwire_core::{Limits, PeerFault};

use crate::codec::encode;
use crate::pair::size;

const LIMITS: Limits = Limits {
    max_message: 100_000,
    max_lane: match bellwire_core::Geometry::new(65_536) {
        Ok(size) => size,
        Err(_) => unreachable!(),
    },
    max_shared_bytes_per_session: 1 << 20,
};

fn lane(number: u32, bytes: u64) -> Message {
    Message::Lane(Epoch { number, size: size(bytes) })
}

fn attachment(id: u64, len: u64) -> Message {
    Message::Attachment(Attachment { id, generation: 0, len })
}

fn accept(mailbox: &mut Mailbox<u32>, message: &Message, fds: &[u32]) -> Result<(), &'static str> {
    let bytes = encode(message, fds.len());
    mailbox.accept(&bytes, fds.to_vec()).map_err(|rejected| {
        let mut returned = rejected.descriptors;
        returned.sort_unstable();
        assert_eq!(returned, fds, "whoever closes them gets all of them");
        match rejected.fault {
            PeerFault::Control { len, fds: count, why } => {
                assert_eq!((len, count), (bytes.len(), fds.len()));
                why
            }
            fault => panic!("{fault}"),
        }
    })
}

#[test]
fn lanes_and_attachments_are_handed_out_in_their_order() {
    let mut mailbox = Mailbox::new(LIMITS);
    accept(&mut mailbox, &lane(2, 8192), &[20]).unwrap();
    accept(&mut mailbox, &attachment(7, 10), &[70]).unwrap();
    accept(&mut mailbox, &Message::Ring, &[]).unwrap();
    accept(&mut mailbox, &lane(3, 4096), &[30]).unwrap();
    accept(&mut mailbox, &attachment(5, 20), &[50]).unwrap();
    assert!(mailbox.has_lane() && mailbox.has_attachment());
    let epoch = |number, bytes| Epoch { number, size: size(bytes) };
    assert_eq!(mailbox.lane(epoch(2, 8192)), Ok(Some(20)));
    mailbox.put_back(epoch(2, 8192), 21);
    assert_eq!(mailbox.lane(epoch(2, 8192)), Ok(Some(21)), "what was put back comes first");
    assert_eq!(mailbox.lane(epoch(3, 4096)), Ok(Some(30)));
    assert_eq!(mailbox.lane(epoch(4, 4096)), Ok(None), "none was passed");
    let taken = mailbox.attachment(7).unwrap().unwrap();
    assert_eq!(taken, (Attachment { id: 7, generation: 0, len: 10 }, 70));
    assert_eq!(mailbox.attachment(5).unwrap().unwrap().1, 50);
    assert!(!mailbox.has_lane() && !mailbox.has_attachment());
    assert_eq!(mailbox.attachment(5), Ok(None));
}

#[test]
fn another_lane_or_message_than_the_one_announced_is_a_violation_and_stays() {
    let mut mailbox = Mailbox::new(LIMITS);
    accept(&mut mailbox, &lane(2, 8192), &[20]).unwrap();
    accept(&mut mailbox, &attachment(7, 10), &[70]).unwrap();
    for (number, bytes) in [(1, 8192), (3, 8192), (2, 4096), (2, 16_384)] {
        let violation = mailbox.lane(Epoch { number, size: size(bytes) });
        assert!(
            matches!(violation, Err(PeerFault::Memory { what: "a lane", .. })),
            "{violation:?}"
        );
    }
    for id in [0, 6, 8] {
        let violation = mailbox.attachment(id);
        assert!(
            matches!(violation, Err(PeerFault::Memory { what: "a message", .. })),
            "{violation:?}"
        );
    }
    let mut rest = mailbox.drain();
    rest.sort_unstable();
    assert_eq!(rest, [20, 70]);
    assert!(mailbox.drain().is_empty());
}

#[test]
fn more_lanes_than_may_be_outstanding_are_a_violation() {
    let mut mailbox = Mailbox::new(LIMITS);
    for number in 0..MAX_OUTSTANDING as u32 {
        accept(&mut mailbox, &lane(2 + number, 4096), &[number]).unwrap();
    }
    assert_eq!(accept(&mut mailbox, &lane(9, 4096), &[9]), Err("too many lanes"));
    mailbox.lane(Epoch { number: 2, size: size(4096) }).unwrap().unwrap();
    accept(&mut mailbox, &lane(9, 4096), &[9]).unwrap();
}

#[test]
fn more_attachments_than_may_be_outstanding_are_a_violation() {
    let mut mailbox = Mailbox::new(LIMITS);
    for id in 0..MAX_ATTACHED as u32 {
        accept(&mut mailbox, &attachment(id.into(), 1), &[id]).unwrap();
    }
    assert_eq!(accept(&mut mailbox, &attachment(99, 1), &[99]), Err("too many attachments"));
    mailbox.attachment(0).unwrap().unwrap();
    accept(&mut mailbox, &attachment(99, 1), &[99]).unwrap();
}

#[test]
fn a_lane_or_an_attachment_above_its_limit_is_a_violation() {
    let mut mailbox = Mailbox::new(LIMITS);
    let (long, large) =
        (attachment(1, LIMITS.max_message + 1), lane(2, 2 * LIMITS.max_lane.size()));
    assert_eq!(accept(&mut mailbox, &long, &[1]), Err("an attachment above the limit"));
    assert_eq!(accept(&mut mailbox, &large, &[2]), Err("a lane above the limit"));
    accept(&mut mailbox, &attachment(1, LIMITS.max_message), &[3]).unwrap();
}

/// Each is within its limit; together they are not.
#[test]
fn more_memory_than_the_session_may_share_is_a_violation() {
    let mut mailbox = Mailbox::new(LIMITS);
    accept(&mut mailbox, &lane(2, 65_536), &[0]).unwrap();
    // 25 pages each.
    for id in 0..9 {
        accept(&mut mailbox, &attachment(id, 100_000), &[1]).unwrap();
    }
    assert_eq!(accept(&mut mailbox, &attachment(9, 100_000), &[1]), Err("too much memory"));
    assert_eq!(accept(&mut mailbox, &lane(3, 65_536), &[1]), Err("too much memory"));
    accept(&mut mailbox, &attachment(9, 50_000), &[1]).unwrap();
    mailbox.attachment(0).unwrap().unwrap();
    accept(&mut mailbox, &attachment(10, 100_000), &[1]).unwrap();
    let roomy = Limits { max_message: u64::MAX, ..LIMITS };
    let violation = accept(&mut Mailbox::new(roomy), &attachment(1, u64::MAX), &[1]);
    assert_eq!(violation, Err("too much memory"));
}
