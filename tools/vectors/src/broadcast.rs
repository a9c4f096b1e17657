//! Broadcast rings: their words and records as a publisher leaves them, what a reader takes from them, and what it refuses.

use std::cell::{Cell, RefCell};

use bellwire_core::broadcast::{ReceiveMemory, Received, Receiver, TransmitMemory, Transmitter};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{
    BroadcastHeader, BroadcastKind, BroadcastRecord, BroadcastRing, BroadcastWord,
};
use bellwire_core::{Geometry, PeerFault};
use zerocopy::IntoBytes;

use crate::control::SERVICE;
use crate::text::{Case, hex, number, unhex, variant};

const RING: BroadcastRing = BroadcastRing { number: 1, size: Geometry::SMALLEST };
const SIZE: usize = 4096;
const WORDS: [(&str, BroadcastWord); 4] = [
    ("oldest", BroadcastWord::Oldest),
    ("intent", BroadcastWord::Intent),
    ("latest", BroadcastWord::Latest),
    ("tail", BroadcastWord::Tail),
];

/// A ring in one thread.
struct Ring {
    words: [Cell<u64>; 4],
    records: RefCell<Vec<u8>>,
}

impl Ring {
    fn new() -> Self {
        Self { words: Default::default(), records: RefCell::new(vec![0; SIZE]) }
    }

    fn word(&self, word: BroadcastWord) -> &Cell<u64> {
        &self.words[WORDS.iter().position(|(_, of)| *of == word).unwrap()]
    }

    /// Adds the words, and the records that are not as `before`.
    fn show(&self, mut case: Case, before: &[u8]) -> Case {
        for ((name, _), word) in WORDS.iter().zip(&self.words) {
            case.push(name, format_args!("{:#x}", word.get()));
        }
        case.memory("records", &self.records.borrow(), before);
        case
    }

    fn of(case: &Case) -> Self {
        let ring = Self::new();
        for (name, word) in WORDS {
            ring.word(word).set(case.number(name));
        }
        for (key, value) in &case.lines {
            if key == "records" {
                let (at, bytes) = value.split_once(' ').unwrap();
                ring.put(usize::try_from(number(at)).unwrap(), &unhex(bytes));
            }
        }
        ring
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.records.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl TransmitMemory for Ring {
    fn store(&self, word: BroadcastWord, value: u64, _: Ordering) {
        self.word(word).set(value);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.put(offset, bytes);
    }

    fn written(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}

impl ReceiveMemory for Ring {
    fn load(&self, word: BroadcastWord, _: Ordering) -> u64 {
        self.word(word).get()
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.records.borrow()[offset..offset + into.len()]);
    }
}

/// Events 1 to `count`, of 200 bytes and of which each byte is its number, and the end of the ring if `ends`.
fn written(count: u64, ends: bool) -> Ring {
    let ring = Ring::new();
    let mut writer = Transmitter::new(RING, &ring);
    for sequence in 1..=count {
        writer.send(&ring, sequence, &[u8::try_from(sequence).unwrap(); 200]).unwrap();
    }
    if ends {
        writer.end(&ring, 2);
    }
    ring
}

/// What a reader that begins at position 0 takes, until there is nothing more.
fn taken(ring: &Ring) -> Result<Vec<String>, PeerFault> {
    let (mut reader, mut bytes, mut all) = (Receiver::new(RING, 1), Vec::new(), Vec::new());
    loop {
        match reader.try_next(ring, &mut bytes)? {
            Received::Record { sequence, len, missed } => {
                all.push(format!("{sequence} {missed} {len} {}", hex(&bytes[..len.min(4)])));
            }
            Received::Next { number } => {
                all.push(format!("next {number}"));
                return Ok(all);
            }
            Received::Nothing => return Ok(all),
            Received::Overrun => panic!("nobody writes meanwhile"),
        }
    }
}

/// A ring of snapshots: 1 and 2 with the delta to 2 ahead of it, then the deltas to 3 and 4, which are passed in memory of their own.
fn deltas() -> Ring {
    let ring = Ring::new();
    let mut writer = Transmitter::new(RING, &ring);
    writer.send(&ring, 1, &[1; 200]).unwrap();
    writer.send_delta(&ring, 2, &[0xc2; 24]).unwrap();
    writer.send(&ring, 2, &[2; 200]).unwrap();
    writer.send_delta(&ring, 3, &[0xc3; 24]).unwrap();
    writer.send_delta(&ring, 4, &[0xc4; 30]).unwrap();
    ring
}

/// What a reader that holds snapshot 1 takes.
fn followed(ring: &Ring) -> Vec<String> {
    let (mut reader, mut bytes, mut all) = (Receiver::new(RING, 1), Vec::new(), Vec::new());
    for sequence in 2.. {
        match reader.delta(ring, sequence, &mut bytes).unwrap() {
            Received::Record { sequence, len, .. } => {
                all.push(format!("{sequence} {len} {}", hex(&bytes[..4])));
            }
            _ => break,
        }
    }
    all
}

/// What a reader takes that wants only the newest, and need not know deltas.
fn newest(ring: &Ring) -> String {
    let (mut reader, mut bytes) = (Receiver::from_oldest(RING), Vec::new());
    let found = reader.newest(ring, &mut bytes).unwrap();
    let Received::Record { sequence, len, .. } = found else { panic!("{found:?}") };
    assert_eq!(reader.newest(ring, &mut bytes), Ok(Received::Nothing));
    format!("{sequence} {len} {}", hex(&bytes[..4]))
}

pub fn valid() -> Vec<Case> {
    let header = BroadcastHeader::new(RING, 1, SERVICE);
    let header = Case::new("header").bytes("header", header.as_bytes());
    let rings = [
        ("empty", 0, false),
        ("three-events", 3, false),
        ("a-pad-at-the-end", 19, false),
        ("overrun", 40, false),
        ("replaced", 2, true),
    ];
    let ring = |(name, count, ends)| {
        let ring = written(count, ends);
        let case = ring.show(Case::new(name), &[0; SIZE]);
        taken(&ring).unwrap().iter().fold(case, |case, taken| case.with("taken", taken))
    };
    let deltas = deltas();
    let case = deltas.show(Case::new("deltas"), &[0; SIZE]);
    let case = case.with("newest", newest(&deltas));
    let case = followed(&deltas).iter().fold(case, |case, taken| case.with("delta", taken));
    [header].into_iter().chain(rings.map(ring)).chain([case]).collect()
}

pub fn run(case: &Case) {
    if case.name == "header" {
        assert_eq!(case.all("header"), BroadcastHeader::new(RING, 1, SERVICE).as_bytes());
        return;
    }
    let ring = Ring::of(case);
    let all = |key| -> Vec<_> {
        let lines = case.lines.iter().filter(|(of, _)| of == key);
        lines.map(|(_, value)| value.clone()).collect()
    };
    if case.name == "deltas" {
        assert_eq!(followed(&ring), all("delta"));
        assert_eq!([newest(&ring)][..], all("newest"));
    } else {
        assert_eq!(taken(&ring).unwrap(), all("taken"));
    }
}

pub fn bad() -> Vec<Case> {
    let record = |kind: BroadcastKind, sequence, len| {
        BroadcastRecord::new(kind, sequence, len).as_bytes().to_vec()
    };
    // A ring of one record, with a header in place of the second one's.
    let second = |name: &str, header: &[u8], fault: &str| {
        let ring = written(2, false);
        let at = usize::try_from(BroadcastRecord::space(200)).unwrap();
        ring.put(at, header);
        ring.show(Case::new(name), &[0; SIZE]).with("fault", fault)
    };
    let word = |name: &str, word, value, fault: &str| {
        let ring = written(2, false);
        ring.word(word).set(value);
        ring.show(Case::new(name), &[0; SIZE]).with("fault", fault)
    };
    let mut unknown = record(BroadcastKind::Data, 2, 200);
    unknown[4] = 9;
    vec![
        word("a-tail-between-records", BroadcastWord::Tail, 8, "Misaligned"),
        second("an-unknown-kind", &unknown, "UnknownKind"),
        second("a-record-behind-the-tail", &record(BroadcastKind::Data, 2, 400), "RecordTooLong"),
        second(
            "a-record-above-a-quarter-of-the-ring",
            &record(BroadcastKind::Data, 2, 1009),
            "RecordTooLong",
        ),
        second("a-pad-before-the-end", &record(BroadcastKind::Pad, 0, 200), "RecordTooLong"),
        second("a-delta-among-events", &record(BroadcastKind::Delta, 2, 200), "Unexpected"),
        second("a-number-again", &record(BroadcastKind::Data, 1, 200), "ReusedId"),
        second("a-next-with-a-payload", &record(BroadcastKind::Next, 2, 200), "RecordTooLong"),
        second("a-next-that-names-no-ring", &record(BroadcastKind::Next, 1 << 32, 0), "Switch"),
    ]
}

pub fn run_bad(case: &Case) {
    let fault = taken(&Ring::of(case)).unwrap_err();
    assert_eq!(Some(variant(fault).as_str()), case.get("fault"), "{fault}");
}
