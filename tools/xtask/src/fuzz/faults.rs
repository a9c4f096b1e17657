//! Double fetches: a value is loaded again after it was checked. The fuzzer must find each, without seeds, within a number of
//! executions.

use std::fs;

use super::build::Build;
use super::campaign::{self, Finding, Run};
use crate::error::Error;
use crate::faults::{ACTIVE, Edit, Faults, edit};

/// The most executions that an injected fault may take to be found.
const EXECUTIONS: u64 = 50_000;
/// The target that must find them.
pub(super) const TARGET: &str = "consumer";

pub(crate) const FAULTS: Faults = Faults {
    edits: &EDITS,
    program: "fuzz/src/consumer/mod.rs",
    start: "pub fn run(input: &[u8]) {\n",
};

const EDITS: [Edit; 5] = [
    edit(
        "Tail is checked, and loaded again to be used",
        "core/src/lane/receiver.rs",
        "receiver.fetch(peer);",
        "if FAULT { receiver.peer_tail = peer.load(Word::Tail, Ordering::Acquire); } receiver.fetch(peer);",
    ),
    edit(
        "Head is checked, and loaded again to be used",
        "core/src/lane/sender.rs",
        "self.peer_head = now;",
        "self.peer_head = if FAULT { peer.load(Word::Head, Ordering::Acquire) } else { now };",
    ),
    edit(
        "a header is checked, and copied again to be used",
        "core/src/lane/receiver.rs",
        "return Some(Plain { kind, id, len, at });",
        "let header = if FAULT { receiver.read_header(peer) } else { header };
            let id = if FAULT { header.id.get() } else { id };
            return Some(Plain { kind, id, len: header.len.get(), at });",
    ),
    edit(
        "a payload's length is taken from the lane again",
        "core/src/lane/receiver.rs",
        "self.receiver.head += record_len(plain.len);",
        "self.receiver.head += record_len(if FAULT { self.receiver.read_header(peer).len.get() } else { plain.len });",
    ),
    edit(
        "a payload is copied twice",
        "core/src/lane/receiver.rs",
        "peer.read(plain.at + HEADER, into);",
        "peer.read(plain.at + HEADER, into); if FAULT { peer.read(plain.at + HEADER, into); }",
    ),
];

/// Searches for a fault of `build`, which has all of them, without a seed. How it was found, or why it was not.
pub(super) fn search_for(number: usize, build: &Build) -> Result<Result<String, String>, Error> {
    let dir = build.root.join("campaign");
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(Error::file("remove", &dir))?;
    }
    let run = Run {
        target: TARGET.to_owned(),
        program: build.program(TARGET),
        variable: Some((ACTIVE, number.to_string())),
        corpora: vec![dir.join("corpus")],
        artifacts: dir.join("artifacts"),
        log: dir.join("log"),
        // Runs of one seed differ: inputs are also chosen by how long they took.
        options: vec![
            format!("-runs={EXECUTIONS}"),
            "-seed=1".to_owned(),
            "-len_control=0".to_owned(),
            "-max_len=512".to_owned(),
        ],
    };
    let Finding { passed, progress, .. } = campaign::run(&run)?;
    Ok(match (passed, &progress.panic[..]) {
        (true, _) => Err(format!("it was not found in {EXECUTIONS} executions")),
        (false, []) => Err(format!("the run failed otherwise: see {}", run.log.display())),
        (false, [_, what, ..] | [what]) => {
            Ok(format!("after {} executions: {what}", progress.executions))
        }
    })
}
