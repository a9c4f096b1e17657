use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::netipc_wire::{Hello, INCREMENT, SNAPSHOT, chunk, header, table};
use crate::services::MAX_RESPONSE;
use bellwire_hostile::wire::{Target, pause, rest};

/// The payload of one datagram of the largest size.
const ROOM: usize = 65_536 - 32;
const MAX_REQUEST: usize = 1 << 20;

/// What the sessions of one service send, again and again or once.
struct Stream {
    service: &'static str,
    datagrams: Vec<Vec<u8>>,
    is_endless: bool,
}

/// Says HELLO, waits for the answer every other time, and leaves.
pub(super) fn hellos(target: &Target) {
    loop {
        drop(greet(target, "blob"));
        drop(open(target, "blob"));
    }
}

/// Sends all chunks of a message except the last, in as many sessions as the server admits.
pub(super) fn chunks(target: &Target) {
    let mut datagrams = message(0, 1, &vec![7; MAX_REQUEST]);
    datagrams.pop();
    keep_sending(target, 1_000, &[Stream { service: "blob", datagrams, is_endless: false }]);
}

/// Requests snapshots, and answers of 1 MiB, as long as there is room for a request, and reads none.
pub(super) fn stalled(target: &Target) {
    let blob = message(0, 1, &MAX_RESPONSE.to_ne_bytes());
    let snapshot = vec![[header(1, 0, SNAPSHOT, 4, 1, 1), vec![1, 0, 0, 0]].concat()];
    let stream = |service, datagrams| Stream { service, datagrams, is_endless: true };
    keep_sending(target, 200, &[stream("blob", blob), stream("cgroups-snapshot", snapshot)]);
}

/// Requests 4 MiB of answers in each batch, which is more than a message holds, without pause.
pub(super) fn batches(target: &Target) {
    let items = vec![(16_u64 << 10).to_ne_bytes().to_vec(); 256];
    let datagrams = message(1, items.len(), &table(&items));
    keep_sending(target, 16, &[Stream { service: "blob", datagrams, is_endless: true }]);
}

/// The datagrams of a request.
fn message(flags: u16, items: usize, payload: &[u8]) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(ROOM).try_into().unwrap_or(u32::MAX);
    let items = items.try_into().unwrap_or(u32::MAX);
    let pieces = (0..).zip(payload.chunks(ROOM));
    let datagram = |(index, piece): (u32, &[u8])| match index {
        0 => [&header(1, flags, INCREMENT, payload.len(), items, 1)[..], piece].concat(),
        _ => [&chunk(1, payload.len() + 32, index, count, piece.len())[..], piece].concat(),
    };
    pieces.map(datagram).collect()
}

/// Opens sessions of each stream's service in turn, and sends what they take.
fn keep_sending(target: &Target, most: usize, streams: &[Stream]) {
    let mut sessions: Vec<(OwnedFd, &Stream, usize)> = Vec::new();
    for stream in streams.iter().cycle() {
        if sessions.len() < most {
            sessions.extend(open(target, stream.service).map(|socket| (socket, stream, 0)));
        }
        sessions.retain_mut(|(socket, stream, next)| {
            // No more than all of it at a time: others have to be served, too.
            for _ in 0..stream.datagrams.len() {
                let Some(datagram) = stream.datagrams.get(*next) else { break };
                match rustix::net::send(&*socket, datagram, FLAGS) {
                    Ok(_) => *next += 1,
                    Err(Errno::AGAIN) => break,
                    Err(_) => return false,
                }
                if stream.is_endless {
                    *next %= stream.datagrams.len();
                }
            }
            let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            !matches!(rustix::net::recv(&*socket, &mut [0; 1][..], peek), Ok((0, _)))
        });
        rest();
    }
}

const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Connects, and sends HELLO.
fn greet(target: &Target, service: &str) -> Option<OwnedFd> {
    let socket = target.connect(service)?;
    rustix::net::send(&socket, &Hello::default().datagram(), FLAGS).ok()?;
    Some(socket)
}

/// Opens a session; `None`, after a pause, if the server refuses or does not answer.
fn open(target: &Target, service: &str) -> Option<OwnedFd> {
    let socket = greet(target, service)?;
    let timeout = Timespec { tv_sec: 2, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout));
    let mut ack = [0; 80];
    let received = rustix::net::recv(&socket, &mut ack[..], RecvFlags::DONTWAIT);
    let is_open = received.is_ok_and(|(len, _)| len == ack.len()) && ack[14..16] == [0, 0];
    if is_open { Some(socket) } else { pause() }
}
