//! The seeds of the fuzzer: what a well-behaved peer sends, as an input of each target.
//!
//! `cargo run -p bellwire-fuzz --bin seeds` writes them to `fuzz/seeds/`, and `tests/replay.rs` checks that they are
//! there. Inputs that once broke a guarantee are in the same folders, each named after its fault.

mod netipc;
mod sessions;

use bellwire_core::ServiceName;
use bellwire_core::wire::{BoardHeader, Doorbell, PageHeader, PageState, Role};
use bellwire_vectors::Case;
use zerocopy::IntoBytes;

/// An input: its target, its name and its bytes.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The target's name.
    pub target: &'static str,
    /// The name of its file.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

const NAME: ServiceName = ServiceName::constant("cgroups-snapshot");

/// All seeds that consist of what a well-behaved peer sends.
pub fn all() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |target, name: &str, bytes: Vec<u8>| {
        seeds.push(Seed { target, name: name.to_owned(), bytes });
    };
    for case in vectors("control.txt") {
        let (bytes, fds) = (case.all("bytes"), case.number("fds") as u8);
        add("control", &case.name, [&[fds], &bytes[..]].concat());
        add("mailbox", &case.name, [&[0, fds], &sized(&bytes)[..]].concat());
    }
    let bad = vectors("control-bad.txt");
    let later = bad.iter().find(|case| case.name == "hello-versions-2-to-9").expect("a vector");
    add("control", "hello-of-a-later-version", [&[0], &later.all("bytes")[..]].concat());
    for case in vectors("batches.txt") {
        add("batch", &case.name, case.all("bytes"));
    }
    add("broadcast", "records-and-a-pad", broadcast());
    for (target, seeds) in [
        ("page", pages()),
        ("observe", observed()),
        ("mailbox", mailboxes()),
        ("handshake", handshakes()),
        ("netipc", netipc::all()),
    ] {
        seeds.into_iter().for_each(|(name, bytes)| add(target, name, bytes));
    }
    let of_several = sessions::all().into_iter().chain(facade());
    of_several.for_each(|(target, name, bytes)| add(target, name, bytes));
    seeds
}

/// The cases of a file of vectors: what they hold is what a well-behaved peer sends.
fn vectors(name: &str) -> Vec<Case> {
    let files = bellwire_vectors::files().into_iter();
    files.filter(|file| file.name == name).flat_map(|file| file.cases).collect()
}

/// A reader of a ring of 4 KiB, which takes two records, one of them behind a pad.
fn broadcast() -> Vec<u8> {
    let word = |units: u16| [&[2][..], &units.to_le_bytes()].concat();
    let header = |kind: u8, len: u16, sequence: u16| {
        let len = if kind == 3 { Vec::new() } else { len.to_le_bytes().to_vec() };
        [&[1, kind][..], &len[..], &sequence.to_le_bytes()].concat()
    };
    [
        // A ring of 4 KiB; the first record is number 1.
        vec![0, 1, 0],
        // Tail; a record of 32 bytes; Intent.
        vec![2],
        word(3),
        header(0, 32, 1),
        vec![7; 32],
        word(3),
        // Tail; a pad; Intent; a record; Intent.
        vec![2],
        word(258),
        header(3, 0, 0),
        word(258),
        header(0, 16, 2),
        vec![9; 16],
        word(258),
    ]
    .concat()
}

fn pages() -> Vec<(&'static str, Vec<u8>)> {
    let name = sized(NAME.as_str().as_bytes());
    let page = PageHeader::new(Role::Server, 7, 42, 16 << 10, 1 << 60, NAME);
    let board = BoardHeader::new(42, 1 << 60, NAME);
    let size = (16_u32 << 10).to_le_bytes();
    let closed = PageState::Closed.word(Some(bellwire_core::wire::CloseReason::Stopping));
    vec![
        ("page", [&[0, 1], &7_u64.to_le_bytes()[..], &size, page.as_bytes(), &name].concat()),
        ("board", [&[1], board.as_bytes(), &name].concat()),
        ("word-closed", [&[2], &closed.to_le_bytes()[..]].concat()),
        ("word-kind", [&[2], &3_u64.to_le_bytes()[..]].concat()),
        ("name", [&[3], NAME.as_str().as_bytes()].concat()),
        ("field", [&[4], &NAME.to_field()[..]].concat()),
        ("size", [&[5], &16_384_u64.to_le_bytes()[..]].concat()),
        ("payload", [&[5], &8_145_u64.to_le_bytes()[..]].concat()),
    ]
}

/// Pieces of pages, as inputs of `observe`: the first page is the client's.
fn observed() -> Vec<(&'static str, Vec<u8>)> {
    let piece = |second: bool, at: u16, bytes: &[u8]| {
        let place = (u16::from(second) << 15) | (at / 8);
        [&place.to_le_bytes()[..], &sized(bytes)].concat()
    };
    let word = |second, at, value: u64| piece(second, at, &value.to_le_bytes());
    let header = |second, role| {
        let header = PageHeader::new(role, 7, 42, 16 << 10, 1 << 60, NAME);
        piece(second, 0, header.as_bytes())
    };
    let closed = PageState::Closed.word(Some(bellwire_core::wire::CloseReason::Normal));
    let client = [
        header(false, Role::Client),
        word(false, 0x80, 4096),
        word(false, 0x180, u64::MAX),
        word(false, 0x288, Doorbell::Futex as u64),
        word(false, 0x308, 3),
        word(false, 0x400, 1),
        // The counters of requests made, answered, refused and failed; the lane; some latencies.
        piece(false, 0x408, &[9_u64, 5, 1, 2].map(u64::to_le_bytes).concat()),
        word(false, 0x480, (16 << 42) | 1),
        piece(false, 0x500, &[64_u64, 1, 0, 7].map(u64::to_le_bytes).concat()),
    ]
    .concat();
    let server = [header(true, Role::Server), word(true, 0x100, 4000), word(true, 0x400, 1)];
    vec![
        ("both-ends", [&client[..], &server.concat()].concat()),
        ("closed", [client, word(false, 0x280, closed)].concat()),
    ]
}

fn mailboxes() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        // Passed and then asked for, in order.
        ("a-lane-is-asked-for", vec![1, 2, 1, 5, 2, 1, 1]),
        ("a-lane-is-put-back", vec![1, 2, 1, 5, 2, 1, 0, 5, 2, 1, 1]),
        ("attachments-are-asked-for", vec![3, 1, 0, 4, 3, 2, 0, 4, 6, 1, 6, 2]),
        ("an-attachment-is-given-up", vec![7, 1, 3, 1, 0, 4, 7, 2]),
        ("five-lanes", vec![1, 2, 0, 1, 3, 0, 1, 4, 0, 1, 5, 0, 1, 6, 0]),
        ("too-much-memory", [[3, 1, 0, 0x90]; 8].concat()),
    ]
}

/// The parameters of both ends as inputs of `handshake`, and then what happens to each message in transit: 15 is nothing.
fn handshakes() -> Vec<(&'static str, Vec<u8>)> {
    let admission = [1, 2, 0, 0, 10, 0, 0, 8, 0];
    let client = [1, 2, 0, 1, 0, 2, 1, 10, 0, 0, 8, 0];
    let unchanged = [&[15][..], &[7, 0, 0, 0, 0, 0, 0, 0, 2, 1, 1, 15, 15, 15]].concat();
    let with = |changed: &[u8]| [&admission[..], &client, changed].concat();
    let hello = vectors("control.txt").first().expect("HELLO").all("bytes");
    let replaced = [&[6][..], &sized(&hello), &[0]].concat();
    vec![
        ("honest", with(&unchanged)),
        ("another-token", [&admission[..], &[1, 3], &client[2..], &[15, 15]].concat()),
        ("a-bit-of-hello", with(&[0, 8, 0, 1])),
        ("two-descriptors", with(&[7, 2, 15])),
        ("half-a-hello", with(&[8, 60, 0, 15])),
        ("another-hello", with(&replaced)),
    ]
}

fn facade() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    use bellwire_cgroups::{Hierarchy, Index, Meta, Mode, SnapshotWriter, synthetic};
    let report = |columns: u32, backends: [u8; 4]| {
        let numbers = |count: u32| (1..=u64::from(count)).flat_map(u64::to_le_bytes);
        let head = [&1_u32.to_le_bytes()[..], &42_u32.to_le_bytes(), &(1_u64 << 60).to_le_bytes()];
        let limits = [16_384_u64, 1024].map(u64::to_le_bytes).concat();
        let counts = [2, columns].map(u32::to_le_bytes).concat();
        let mut report = [&head.concat()[..], &[2, 0, 0, 0], &backends, &limits, &counts].concat();
        report.extend(numbers(columns));
        for name in [NAME, ServiceName::constant("bellwire-stats")] {
            report.extend(name.to_field());
            report.extend(numbers(columns));
        }
        report
    };
    let snapshot = |count, label: Option<&str>| {
        let scanned_at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
        let meta = Meta { scanned_at, mode: Mode::V2, skipped: 1 };
        let mut entries = synthetic::entries(count, 7);
        let label = label.map(|label| ("image".to_owned(), label.to_owned()));
        entries.iter_mut().step_by(2).for_each(|entry| entry.labels.extend(label.clone()));
        let mounted = label
            .map(|_| Hierarchy { name: "unified".into(), root: "/sys/fs/cgroup/unified".into() });
        let writer = SnapshotWriter::with_hierarchies(&entries, mounted.as_slice());
        let writer = writer.expect("valid entries");
        let mut bytes = vec![0; writer.encoded_len()];
        writer.write_to(meta, &mut bytes).expect("it has this length");
        bytes
    };
    vec![
        ("snapshot", "empty", snapshot(0, None)),
        ("snapshot", "one", snapshot(1, None)),
        ("snapshot", "five", snapshot(5, None)),
        ("snapshot", "labels", snapshot(3, Some("example/web:1"))),
        ("snapshot", "delta", {
            let before = Index::validate(&crate::snapshot::before()).expect("valid");
            let mut entries = synthetic::entries(22, 7);
            entries.drain(3..6);
            let meta = Meta { scanned_at: std::time::UNIX_EPOCH, mode: Mode::V2, skipped: 0 };
            let after = crate::snapshot::bytes_of(&mut entries, meta);
            before.delta(&after).expect("few changes")
        }),
        ("report", "older", report(24, [0; 4])),
        ("report", "io-uring-not-had", report(27, [1, 2, 0, 0])),
        ("report", "newer", report(30, [9, 9, 1, 1])),
        ("report", "more-ended-than-fit", {
            let mut report = report(27, [1, 0, 0, 0]);
            // Refused and lost, of all services and of the first.
            for at in [48, 48 + 27 * 8 + 64] {
                report[at + 6 * 8..at + 8 * 8].fill(0xff);
            }
            report
        }),
        ("message", "text", "Grüße".as_bytes().to_vec()),
        ("message", "number", 7_u64.to_le_bytes().to_vec()),
        ("message", "nothing", Vec::new()),
        ("codec", "fixed", codec(0, &[&[1, 0, 1, 0], &[7; 20], &[3, 0, 1, 0, 9, 0, 0, 0]])),
        ("codec", "varied", {
            let part = [1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
            let head = [&[3, 0, 0, 0, 1, 0, 1, 255, 1, 0, 0, 0, 2, 0, 0, 0][..], b"sda"].concat();
            codec(1, &[&head, &part, b"l", &[1, 0, 2, 0], &[9, 9]])
        }),
        ("codec", "protocol-buffers", {
            let nested = [0x1a, 3, 0x0a, 1, b'b'];
            codec(2, &[&[0x0a, 1, b'a', 0x12, 2, 3, 4], &nested, &[0x22, 5, 8, 1, 0x12, 1, 7]])
        }),
        ("codec", "serde", codec(3, &[&[4, 4, 0, 1, 1, 2, 1, 3, 2, b'h', b'i', 1, 1, b'x']])),
        ("codec", "serde-a-level-a-byte", codec(3, &[&[4, 1].repeat(4_096)])),
        ("codec", "serde-values-without-bytes", codec(3, &[&[1], &[0xff; 8], &[0x7f]])),
    ]
}

/// A message, and by which codec.
fn codec(which: u8, pieces: &[&[u8]]) -> Vec<u8> {
    [&[which], &pieces.concat()[..]].concat()
}

/// Bytes after their length, as `Script::sized` reads them.
fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes(), bytes].concat()
}
