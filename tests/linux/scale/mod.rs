//! Many sessions: what they cost together, and what they do to each other.

mod backlog;
mod crowd;
mod fairness;
mod herd;
mod idle;
mod unwatched;

use crate::support::child::Parent;

/// Plays `scale PART`.
pub(crate) fn play(parent: Parent, words: &str) {
    match words.split(' ').collect::<Vec<_>>()[..] {
        ["server", files, workers] => {
            crowd::serve(parent, files.parse().unwrap(), workers.parse().unwrap());
        }
        ["clients"] => crowd::call(parent),
        ["herd", clients] => herd::play(parent, clients.parse().unwrap()),
        ref part => panic!("no such part: {part:?}"),
    }
}
