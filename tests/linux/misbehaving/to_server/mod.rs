//! A hostile client and a real server.

mod control;
mod descriptors;
mod hello;
mod memory;
mod order;
mod records;
mod words;

use bellwire::{Client, IncidentCause, RefuseCode};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{PeerMemory, Port, Word};

use crate::handshake::hostile_client::{Joining, join};
pub(super) use crate::hostile::client::poisons;
use crate::support::rogue::{Rogue, RogueSession};
use crate::support::services::Echo;
use crate::support::test_server::TestServer;

fn request(id: u64, len: u32) -> Header {
    Header::new(Kind::Request, Status::Ok, id, len)
}

/// Commits the violation; the server finds the fault that names itself so.
#[track_caller]
fn is_found(part: &str, violation: impl FnOnce(&mut RogueSession)) {
    poisons(violation).is(part);
}

/// Whether the server has closed the session.
fn is_closed(rogue: &RogueSession) -> bool {
    rogue.link.peer().load(Word::State, Ordering::Acquire) & 0xffff_ffff == 3
}

/// The client is refused for what it does after it connected, with this code and a sentence that contains `part`. The
/// server's other session continues, and another client is admitted.
#[track_caller]
fn is_refused(code: RefuseCode, part: &str, act: impl FnOnce(&Rogue)) {
    let recorded_incidents = is_rejected(act, |rogue| rogue.is_refused(code, part));
    let is_expected = |cause: &IncidentCause| matches!(cause, IncidentCause::Refused { code: c, reason } if *c == code && reason.contains(part));
    assert!(
        matches!(&recorded_incidents[..], [cause] if is_expected(cause)),
        "{recorded_incidents:?}"
    );
}

/// The connection is closed without a reply: the client's message cannot be received at all.
#[track_caller]
fn is_dropped(act: impl FnOnce(&Rogue)) {
    let incidents = is_rejected(act, Rogue::is_closed);
    assert!(incidents.is_empty(), "{incidents:?}");
}

#[track_caller]
fn is_rejected(act: impl FnOnce(&Rogue), is_seen: impl FnOnce(&Rogue)) -> Vec<IncidentCause> {
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    let rogue = Rogue::connect(fixture.run_dir(), "echo");
    act(&rogue);
    is_seen(&rogue);
    assert_eq!(good.call(&b"still here".to_vec()).unwrap(), b"still here");
    let mut late: Client<Echo> = fixture.client();
    assert_eq!(late.call(&b"let in".to_vec()).unwrap(), b"let in");
    drop((good, late));
    let recorded_incidents = fixture.recorded_incidents();
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.handshakes_failed, stats.poisoned), (2, 1, 0), "{stats:?}");
    recorded_incidents
}

/// The client is refused for what it joins with.
#[track_caller]
fn is_refused_at_join(part: &str, alter: impl FnOnce(&mut Joining)) {
    is_refused(RefuseCode::Protocol, part, |rogue| join(rogue, alter));
}
