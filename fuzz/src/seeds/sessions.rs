//! Seeds of records and sessions: lanes that the real sender wrote, and the memory of a well-behaved peer at each load.

use bellwire_core::Geometry;
use bellwire_core::lane::Lanes;
use bellwire_core::wire::{CloseReason, Header, Kind, Status};
use bellwire_sim::Sim;

pub(super) fn all() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut seeds = vec![
        ("record", "requests-and-a-close", written(&[(Kind::Request, 40), (Kind::Request, 0)])),
        ("record", "answers", written(&[(Kind::Response, 400), (Kind::Response, 7)])),
        ("record", "what-has-no-payload", written(&[(Kind::Cancel, 0), (Kind::Trim, 0)])),
        ("record", "a-pad", written(&[(Kind::Request, 1990), (Kind::Request, 1990)])),
    ];
    for (name, side, script) in sessions() {
        seeds.push(("consumer", name, [&[side], &script[..]].concat()));
    }
    seeds
}

/// The lane that a sender writes, as an input of the target `record`.
fn written(records: &[(Kind, u32)]) -> Vec<u8> {
    let size = Geometry::SMALLEST;
    let [writer, _] = Sim { lane: size, peer_lane: size, ..Sim::default() }.ends();
    let mut lanes = Lanes::new(size, size);
    let mut tails = Vec::new();
    for (id, (kind, len)) in (1..).zip(records) {
        let from = lanes.position();
        let header = Header::new(*kind, Status::Ok, id, *len);
        let payload = vec![b'a'; *len as usize];
        lanes.push(writer.own(), writer.peer(), header, &payload).expect("the lane holds it");
        tails.push(lanes.position() - from);
    }
    let from = lanes.position();
    lanes.push_close(writer.own(), CloseReason::Normal);
    tails.push(lanes.position() - from);

    let mut input = 4000_u16.to_le_bytes().to_vec();
    input.push(tails.len() as u8);
    input.extend(tails.iter().flat_map(|tail| (*tail as u16).to_le_bytes()));
    input.extend(writer.own().lane().start(4096));
    while input.last() == Some(&0) {
        input.pop();
    }
    input
}

// Inputs of the target `consumer`, in the order in which it reads them: an operation with its arguments, then the value
// of each load.
const CLIENT: u8 = 0;
const SERVER: u8 = 1;
const FIXED: u8 = 2;

/// The event index of a peer that does not want to be rung.
const NO_RING: u8 = 0;
/// A word that has not changed.
const UNCHANGED: u8 = 0;

/// `blocks` blocks of 16 bytes were published.
const fn more(blocks: u8) -> u8 {
    31 + blocks
}

/// A client's request of `len` bytes.
const fn submit(len: u8) -> [u8; 3] {
    [0, len, NO_RING]
}

/// A response of `len` bytes, to the request at index `which`, and the first byte of its payload.
const fn response(len: u8, which: u8) -> [u8; 5] {
    [0, len, 1, which, b'r']
}

/// A request of `len` bytes with the next id.
const fn request(len: u8) -> [u8; 5] {
    [1, len, 1, 0, b'q']
}

fn sessions() -> Vec<(&'static str, u8, Vec<u8>)> {
    let call = [&submit(5)[..], &[6, more(2)], &response(8, 0)].concat();
    let two = [&submit(1)[..], &submit(2), &[6, more(4)], &response(8, 1), &[6], &response(9, 0)];
    let wait = [9, 100, 0, UNCHANGED, UNCHANGED, 5, 1, UNCHANGED, more(2)];
    let waits = [&submit(9)[..], &wait, &response(3, 0)];
    let served = [&[0, more(2)][..], &request(8), &[6, 20, 11, NO_RING]].concat();
    let part = [1, 16, 0, 0, b'p'];
    let parts = [&[0, more(4)][..], &part, &[0], &[1, 16, 1, 0, b'e'], &[6, 3, 11, NO_RING]];
    let switch = [0, more(1), 4, 1, 1, 0, 0];
    vec![
        ("a-call", CLIENT, call.clone()),
        ("calls", CLIENT | FIXED, [&call[..], &call, &call].concat()),
        ("answers-out-of-order", CLIENT, two.concat()),
        ("a-call-that-parks", CLIENT, waits.concat()),
        ("a-call-that-spins", CLIENT | 4, waits.concat()),
        ("a-long-request", CLIENT, vec![3, 0x88, 0x13, 64, 0, 0, 0, 0, 0]),
        ("a-request-in-parts", CLIENT, vec![4, 0x30, 0x75, 0, 0, 64, 0, 0, 64, 0, 0, 64, 0, 0]),
        ("an-attached-request", CLIENT, vec![5, 0, 8, 0, 0, 0, NO_RING]),
        ("an-answer-in-another-epoch", CLIENT, [&submit(5)[..], &[6], &switch[1..], &[0]].concat()),
        ("a-request-is-served", SERVER, served.clone()),
        ("requests-are-served", SERVER | FIXED, [&served[..], &served, &served].concat()),
        ("a-request-arrives-in-parts", SERVER, parts.concat()),
        ("a-request-in-another-epoch", SERVER, [&switch[..], &served].concat()),
        ("a-long-answer", SERVER, [&served[..7], &[7, 0x88, 0x13, 64, 0, 0, 11, 0, 0]].concat()),
        ("an-answer-in-parts", SERVER, [&served[..7], &[8, 0, 60, 10, 0, 10, 0, 10, 0]].concat()),
        ("a-close", SERVER, vec![0, more(1), 9, 0, 0, 0]),
    ]
}
