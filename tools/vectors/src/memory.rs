//! The constant headers of pages and boards.

use bellwire_core::ServiceName;
use bellwire_core::wire::{BoardHeader, PageError, PageHeader, Role};
use zerocopy::{FromBytes, IntoBytes};

use crate::control::{SERVICE, SESSION};
use crate::text::{Case, variant};

const PID: u32 = 4242;
const CREATED: u64 = 1_700_000_000_000_000_000;
const LANE: u32 = 4096;

/// The header of an end's page in all vectors.
pub fn page(role: Role) -> PageHeader {
    PageHeader::new(role, SESSION, PID, LANE, CREATED, SERVICE)
}

fn case(name: &str, of: &str, fault: &str, bytes: &[u8]) -> Case {
    Case::new(name).with("of", of).with("fault", fault).bytes("bytes", bytes)
}

pub fn valid() -> Vec<Case> {
    let board = BoardHeader::new(PID, CREATED, SERVICE);
    vec![
        case("page-of-a-client", "client", "none", page(Role::Client).as_bytes()),
        case("page-of-a-server", "server", "none", page(Role::Server).as_bytes()),
        case("board", "board", "none", board.as_bytes()),
    ]
}

/// Each is to be the page of a client, or a board, of session 7 of `increment` with a lane of 4096 bytes.
pub fn bad() -> Vec<Case> {
    let honest = page(Role::Client);
    let other = ServiceName::constant("decrement");
    let changed = |at: usize, byte| {
        let mut bytes = honest.as_bytes().to_vec();
        bytes[at] = byte;
        bytes
    };
    let page = |name, fault, bytes: &[u8]| case(name, "client", fault, bytes);
    let mut board = BoardHeader::new(PID, CREATED, SERVICE).as_bytes().to_vec();
    board[0] = b'b';
    let other_board = BoardHeader::new(PID, CREATED, other);
    let role = self::page(Role::Server);
    let session = PageHeader::new(Role::Client, SESSION + 1, PID, LANE, CREATED, SERVICE);
    let lane = PageHeader::new(Role::Client, SESSION, PID, 2 * LANE, CREATED, SERVICE);
    let name = PageHeader::new(Role::Client, SESSION, PID, LANE, CREATED, other);
    vec![
        page("page-magic", "Magic", &changed(0, b'b')),
        page("page-layout", "Layout", &changed(8, 2)),
        page("page-role", "Mismatch role", role.as_bytes()),
        page("page-session", "Mismatch session", session.as_bytes()),
        page("page-lane-size", "Mismatch lane size", lane.as_bytes()),
        page("page-name", "Mismatch service name", name.as_bytes()),
        case("board-magic", "board", "Magic", &board),
        case("board-name", "board", "Mismatch service name", other_board.as_bytes()),
    ]
}

pub fn run(case: &Case) {
    let bytes = case.all("bytes");
    let checked = match case.get("of").unwrap() {
        "board" => BoardHeader::read_from_bytes(&bytes).unwrap().check(SERVICE),
        of => {
            let role = if of == "client" { Role::Client } else { Role::Server };
            PageHeader::read_from_bytes(&bytes).unwrap().check(role, SESSION, LANE, SERVICE)
        }
    };
    let fault = match checked {
        Ok(()) => "none".to_owned(),
        Err(PageError::Mismatch { field }) => format!("Mismatch {field}"),
        Err(other) => variant(other),
    };
    assert_eq!(case.get("fault"), Some(fault.as_str()), "{}", case.name);
}
