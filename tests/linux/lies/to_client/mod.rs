//! A hostile server and a real client.

mod descriptors;
mod records;
mod welcome;
mod words;

use bellwire::{Client, PeerFault};
use bellwire_core::wire::{Header, Kind, Status};

use crate::hostile::server::lies;
use crate::support::rogue::RogueSession;
use crate::support::services::Echo;
use crate::support::test_server::TestServer;

pub(super) fn rows() -> Vec<&'static str> {
    [welcome::rows(), words::ROWS.to_vec(), records::rows(), descriptors::rows()].concat()
}

fn response(id: u64, len: u32) -> Header {
    Header::new(Kind::Response, Status::Ok, id, len)
}

/// Commits the violation while the requests 2 and 3 wait: the call fails with this fault and may have run, the
/// session is not used again, and another client's session, with an honest server, continues.
#[track_caller]
fn fails(lie: impl FnOnce(&mut RogueSession), is_expected: impl Fn(PeerFault) -> bool) {
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    lies(lie, is_expected);
    assert_eq!(good.call(&b"still here".to_vec()).unwrap(), b"still here");
    drop(good);
    assert_eq!(fixture.close().poisoned, 0);
}

/// The same, for a fault that names itself so in its message.
#[track_caller]
fn fails_with(part: &str, lie: impl FnOnce(&mut RogueSession)) {
    fails(lie, |fault| {
        let text = fault.to_string();
        assert!(text.contains(part), "{text:?} lacks {part:?}");
        true
    });
}
