//! Whatever one client does, the reactor has time for the others.

use std::sync::Arc;
use std::thread;

use bellwire::{Client, Geometry, LaneConfig, Limits, ServerConfig};
use bellwire_core::lane::Epoch;
use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_core::wire::{Header, Kind, Message, Status};
use bellwire_core::{PeerMemory, Port, Word};
use bellwire_memfd::pass::{self, SendError};
use std::os::fd::AsFd;

use crate::support::guard::until;
use crate::support::rogue::{EndlessClient, Rogue, encode};
use crate::support::services::{Echo, services};
use crate::support::test_server::{Dir, TestServer, client_config, provide};

fn header(kind: Kind, id: u64, len: u32) -> Header {
    Header::new(kind, Status::Ok, id, len)
}

/// The server reads no requests while answers are pending, and validated nothing: it took the false Head for work, for
/// ever.
#[test]
fn a_violation_while_answers_are_not_read_is_noticed() {
    let lane = Geometry::new(4096).unwrap();
    let fixture = TestServer::with(ServerConfig::default().lane(LaneConfig::default().size(lane)));
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    for id in 1..=14 {
        rogue.write(header(Kind::Request, id, 1000), &[0; 1000]);
    }
    rogue.publish();
    until("an answer waits for room", || {
        rogue.link.peer().load(Word::WantSpace, Ordering::Acquire) != u64::MAX
    });
    rogue.set(Word::Tail, rogue.tail + 8);
    until("it is poisoned", || fixture.stats().poisoned == 1);
    assert_eq!(fixture.client::<Echo>().call(&vec![3]).unwrap(), [3]);
}

services! {
    /// Answers with as many bytes as requested.
    Bytes("bytes"): u64 => Vec<u8>;
}

/// The first answer takes what shared memory there is, so the second waits; and then no lane may hold it.
#[test]
fn a_kept_answer_that_no_lane_may_hold_still_arrives() {
    const LEN: usize = 10_000;
    let dir = Dir::new();
    let _server = provide::<Bytes>(&dir.run_dir, |_, len| Ok(vec![7; len as usize]));
    let limits = Limits { max_shared_bytes_per_session: 40_960, ..Limits::default() };
    let config = client_config().lane(client_config().lane.limits(limits));
    let mut client = Client::<Bytes>::with_config(&dir.run_dir, config);
    let session = client.connect().unwrap();
    let mut wanted =
        vec![session.submit(&(LEN as u64)).unwrap(), session.submit(&(LEN as u64)).unwrap()];
    until("both are answered", || {
        if let Some((ticket, answer)) = session.try_reply().unwrap() {
            assert_eq!(answer.unwrap(), [7; LEN]);
            wanted.retain(|wanted| *wanted != ticket);
        }
        wanted.is_empty()
    });
    assert_eq!(session.call(&3).unwrap(), [7; 3]);
}

/// A record refers to memory that never comes, behind an endless sequence of rings.
#[test]
fn rings_without_end_hide_no_missing_lane() {
    let fixture = TestServer::open();
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(rogue.link.arrived(), 8 << 20);
    let over = Arc::new(AtomicBool::new(false));
    let ringers: Vec<_> = (0..4)
        .map(|_| {
            let socket = rogue.link.arrived().try_clone_to_owned().unwrap();
            let over = Arc::clone(&over);
            thread::spawn(move || {
                let ring = encode(&Message::Ring, 0);
                while !over.load(Ordering::Relaxed) {
                    match pass::send(socket.as_fd(), &ring, &[]) {
                        Ok(()) | Err(SendError::WouldBlock) => {}
                        Err(_) => break,
                    }
                }
            })
        })
        .collect();
    let epoch = Epoch { number: 2, size: Geometry::DEFAULT.doubled() };
    rogue.put(header(Kind::Switch, epoch.to_wire(), 0), &[]);
    until("it is poisoned", || fixture.stats().poisoned == 1);
    over.store(true, Ordering::Relaxed);
    for ringer in ringers {
        ringer.join().unwrap();
    }
    assert_eq!(fixture.client::<Echo>().call(&vec![3]).unwrap(), [3]);
}

#[test]
fn a_stop_ends_though_a_client_never_does() {
    let fixture = TestServer::open();
    let endless = EndlessClient::start(fixture.run_dir());
    fixture.close();
    endless.stop();
}
