//! Many sessions: what they cost together, and what they do to each other.

mod backlog;
mod fairness;
mod idle;
mod many_clients;
mod reconnect_storm;
mod unwatched;

use crate::support::child::Parent;

/// Plays `scale PART`.
pub(crate) fn play(parent: Parent, words: &str) {
    match words.split(' ').collect::<Vec<_>>()[..] {
        ["server", files, workers] => {
            many_clients::serve(parent, files.parse().unwrap(), workers.parse().unwrap());
        }
        ["clients"] => many_clients::call(parent),
        ["reconnect-storm", clients] => reconnect_storm::play(parent, clients.parse().unwrap()),
        ref part => panic!("no such part: {part:?}"),
    }
}
