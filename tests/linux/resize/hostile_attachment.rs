//! A peer that passes a message which is not as it should be. Each test is one violation, by a client against a
//! server, and by a server against a client.

use std::os::fd::{AsFd, OwnedFd};

use bellwire::PeerFault;
use bellwire_core::Word;
use bellwire_core::lane::MOST_ATTACHED;
use bellwire_core::wire::{Attachment, Header, Kind, Message, Status};
use rustix::fs::SealFlags;

use crate::hostile::client::poisons;
use crate::hostile::server::lies;
use crate::support::memory::{Draft, SEALS};
use crate::support::rogue::{Rogue, RogueSession, encode};
use crate::support::test_server::TestServer;

/// The seals of memory that is write-sealed.
const IMMUTABLE: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// A message in a memfd of its own. Unmodified, it is what an honest peer sends.
struct Passing {
    announced: Attachment,
    memory: Draft,
    fds: usize,
    /// Passed instead.
    other: Option<OwnedFd>,
    /// Nothing is passed at all.
    silent: bool,
}

impl Passing {
    /// The request 2, or its answer.
    fn honest() -> Self {
        let memory =
            Draft { size: 8192, seals: IMMUTABLE, sparse: false, bytes: b"a message".to_vec() };
        let announced = Attachment { id: 2, generation: 0, len: 5000 };
        Self { announced, memory, fds: 1, other: None, silent: false }
    }

    fn tell(self, rogue: &mut RogueSession) {
        let fd = self.other.unwrap_or_else(|| self.memory.make());
        if !self.silent {
            let message = encode(&Message::Attachment(self.announced), self.fds);
            rogue.send_control(&message, &vec![fd.as_fd(); self.fds]);
        }
        rogue.put(Header::new(Kind::Attach, Status::Ok, 2, 0), &[]);
    }
}

/// The session is poisoned for this, at either end.
#[track_caller]
fn is_a_lie(why: &str, alter: impl Fn(&mut Passing)) {
    let tell = |rogue: &mut RogueSession| {
        let mut passing = Passing::honest();
        alter(&mut passing);
        passing.tell(rogue);
    };
    poisons(tell);
    lies(tell, |fault| names(fault, why));
}

fn names(fault: PeerFault, why: &str) -> bool {
    match fault {
        PeerFault::Memory { what: "a message", why: found }
        | PeerFault::Control { why: found, .. } => found == why,
        _ => false,
    }
}

#[test]
fn an_honest_message_of_the_same_making_is_taken() {
    // Otherwise the tests below would prove nothing.
    let fixture = TestServer::open();
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    Passing::honest().tell(&mut rogue);
    rogue.sees(Word::Tail, 16 + 5008);
    drop(rogue);
    let stats = fixture.close();
    assert_eq!((stats.poisoned, stats.answered), (0, 1));
}

#[test]
fn a_record_without_its_message() {
    is_a_lie("its record came without it", |passing| passing.silent = true);
}

#[test]
fn a_message_with_no_descriptor_or_two() {
    for fds in [0, 2] {
        is_a_lie("one descriptor belongs to it", |passing| passing.fds = fds);
    }
}

#[test]
fn a_message_that_its_sender_can_still_write() {
    // Seals that suffice for a lane, which is copied out, do not suffice for a reference.
    is_a_lie("a seal is missing", |passing| passing.memory.seals = SEALS);
}

#[test]
fn a_message_that_lacks_a_seal() {
    for seal in [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        is_a_lie("a seal is missing", |passing| passing.memory.seals -= seal);
    }
}

#[test]
fn a_message_of_another_length_than_it_says() {
    for len in [0, 1, 4096, 8193, 64 << 20] {
        is_a_lie("it has another size than announced", |passing| passing.announced.len = len);
    }
    is_a_lie("it has another size than announced", |passing| passing.memory.size = 5000);
}

#[test]
fn a_message_above_the_limit() {
    for len in [(64 << 20) + 1, u64::MAX] {
        is_a_lie("an attachment above the limit", |passing| passing.announced.len = len);
    }
}

#[test]
fn a_message_with_another_number() {
    for id in [0, 1, 3, u64::MAX] {
        is_a_lie("it was announced for another message", |passing| passing.announced.id = id);
    }
}

#[test]
fn a_message_without_all_its_pages() {
    is_a_lie("its pages are not allocated", |passing| {
        passing.announced.len = 1 << 20;
        passing.memory.size = 1 << 20;
        passing.memory.sparse = true;
    });
}

#[test]
fn a_pipe_or_a_socket_for_a_message() {
    use std::os::unix::net::UnixStream;
    let others: [fn() -> OwnedFd; 2] =
        [|| std::io::pipe().unwrap().0.into(), || UnixStream::pair().unwrap().0.into()];
    for other in others {
        is_a_lie("it is no memfd", |passing| passing.other = Some(other()));
    }
}

#[test]
fn more_messages_than_may_be_on_their_way() {
    let too_many = |rogue: &mut RogueSession| {
        let fd = Passing::honest().memory.make();
        for id in 2..=2 + MOST_ATTACHED as u64 {
            let message = Message::Attachment(Attachment { id, generation: 0, len: 5000 });
            rogue.send_control(&encode(&message, 1), &[fd.as_fd()]);
        }
        // A client that is rung by a futex reads its socket when a record says so; one that is there takes one.
        rogue.put(Header::new(Kind::Attach, Status::Ok, 3, 0), &[]);
    };
    poisons(too_many);
    lies(too_many, |fault| {
        names(fault, "too many attachments") || names(fault, "it was announced for another message")
    });
}
