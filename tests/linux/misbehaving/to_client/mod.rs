//! A hostile server and a real client.

mod descriptors;
mod records;
mod welcome;
mod words;

use bellwire_core::wire::{Header, Kind, Status};

use crate::hostile::server::lies;
use crate::support::rogue::RogueSession;

pub(super) fn rows() -> Vec<&'static str> {
    [welcome::rows(), words::ROWS.to_vec(), records::rows(), descriptors::rows()].concat()
}

fn response(id: u64, len: u32) -> Header {
    Header::new(Kind::Response, Status::Ok, id, len)
}

/// Commits the violation on a session whose client is to find a fault that names itself so in its message.
#[track_caller]
fn is_found(part: &str, lie: impl FnOnce(&mut RogueSession)) {
    lies(lie, |fault| {
        let text = fault.to_string();
        assert!(text.contains(part), "{text:?} lacks {part:?}");
        true
    });
}
