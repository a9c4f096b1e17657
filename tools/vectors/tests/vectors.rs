//! The files are what is made now, and core does what they say.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bellwire_vectors::{Case, files, number, parse, unhex};

fn stored(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire/vectors");
    std::fs::read_to_string(dir.join(name)).unwrap()
}

#[test]
fn the_files_are_what_the_command_writes() {
    let mut bytes = 0;
    for file in files() {
        let stored = stored(file.name);
        assert!(stored == file.text(), "{}: run cargo run -p bellwire-vectors", file.name);
        bytes += stored.len();
    }
    assert!(bytes < 300_000, "{bytes} bytes are too many");
}

/// From what stands in the files: whoever reads them finds all that it takes.
#[test]
fn core_does_what_the_files_say() {
    for file in files() {
        let cases = parse(&stored(file.name));
        assert!(cases == file.cases, "{}", file.name);
        let fails = |case: &&Case| catch_unwind(AssertUnwindSafe(|| (file.run)(case))).is_err();
        let failed: Vec<_> = cases.iter().filter(fails).map(|case| &case.name).collect();
        assert!(failed.is_empty(), "{}: {failed:?}", file.name);
    }
}

/// The memory of both ends, as somebody sees it who has nothing but the file.
#[derive(Default)]
struct Reader {
    memory: HashMap<String, Vec<u8>>,
    lanes: [Lane; 2],
    records: usize,
}

/// How far a lane was read.
#[derive(Clone, Copy)]
struct Lane {
    at: u64,
    epoch: u64,
    base: u64,
    size: u64,
}

impl Default for Lane {
    fn default() -> Self {
        Self { at: 0, epoch: 1, base: 0, size: 4096 }
    }
}

impl Reader {
    fn word(&self, end: &str, at: usize) -> u64 {
        let page = &self.memory[&format!("{end}-page")];
        u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
    }

    fn apply(&mut self, step: &Case) {
        for (key, value) in &step.lines {
            let Some((at, bytes)) = value.split_once(' ').filter(|_| key.contains('-')) else {
                continue;
            };
            let at = usize::try_from(number(at)).unwrap();
            let memory = self.memory.entry(key.clone()).or_insert_with(|| vec![0; 8192]);
            let bytes = unhex(bytes);
            memory[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Reads what an end has published since.
    fn follow(&mut self, of: usize, end: &str) {
        let mut lane = self.lanes[of];
        while lane.at < self.word(end, 0x080) {
            let offset = usize::try_from((lane.at - lane.base) % lane.size).unwrap();
            let header = &self.memory[&format!("{end}-lane-{}", lane.epoch)][offset..offset + 16];
            let len = u64::from(u32::from_le_bytes(header[..4].try_into().unwrap()));
            let id = u64::from_le_bytes(header[8..].try_into().unwrap());
            lane.at += 16 + len.next_multiple_of(16);
            match header[4] {
                3 => assert!((lane.at - lane.base).is_multiple_of(lane.size), "a pad at the end"),
                4 => (lane.epoch, lane.size, lane.base) = (id & 0xffff_ffff, id >> 32, lane.at),
                kind => assert!((1..=8).contains(&kind), "kind {kind} before {}", lane.at),
            }
            self.records += 1;
        }
        assert_eq!(lane.at, self.word(end, 0x080), "a record ends where Tail is");
        self.lanes[of] = lane;
    }
}

#[test]
fn the_transcript_can_be_followed_with_nothing_but_the_file() {
    let mut reader = Reader::default();
    for step in parse(&stored("session.txt")) {
        reader.apply(&step);
        if reader.memory.is_empty() {
            continue;
        }
        for (of, [end, peer]) in
            [["client", "server"], ["server", "client"]].into_iter().enumerate()
        {
            reader.follow(of, end);
            let head = reader.word(end, 0x100);
            assert!(head.is_multiple_of(16) && head <= reader.word(peer, 0x080), "{}", step.name);
        }
    }
    let states = ["client", "server"].map(|end| reader.word(end, 0x280));
    assert_eq!(states, [1 << 32 | 3; 2], "both have closed, for reason 1");
    let epochs = reader.lanes.map(|lane| lane.epoch);
    assert!(reader.records > 30 && epochs == [3, 1], "{} {epochs:?}", reader.records);
}
