//! The attacks: for each resource that a peer can make a server hold, a client that maximizes it. No attack returns.

mod attachments;
mod closes;
mod connects;
mod descriptors;
mod lanes;
mod netipc;
mod pads;
mod queue;
mod records;
mod sessions;
mod sparse;
mod stalled;
mod switches;
mod unfinished;

use bellwire_hostile::wire::Target;

/// One way to make a server hold resources.
#[derive(Debug)]
pub(crate) struct Attack {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) about: &'static str,
    /// How many workers the attacked server has.
    pub(crate) workers: usize,
    /// Runs the attack; does not return.
    pub(crate) run: fn(&Target),
}

const fn attack(name: &'static str, about: &'static str, run: fn(&Target)) -> Attack {
    Attack { name, about, workers: 0, run }
}

const fn with_workers(name: &'static str, about: &'static str, run: fn(&Target)) -> Attack {
    Attack { name, about, workers: 2, run }
}

/// All attacks.
pub(crate) static ATTACKS: [Attack; 32] = [
    attack(
        "sessions-kept",
        "opens and closes sessions, keeps the server's pages and lanes",
        sessions::kept,
    ),
    attack("sessions-by-path", "the same, keeping O_PATH descriptors alone", sessions::by_path),
    attack("sessions-idle", "opens as many sessions as it can, and does nothing", sessions::idle),
    attack("sessions-churn", "opens 1 000 sessions and closes them together", sessions::churn),
    attack("lanes-kept", "has lanes grow and trimmed, keeps each", lanes::kept),
    attack(
        "attachments-kept",
        "asks for answers in memfds, never takes them",
        attachments::unconsumed,
    ),
    attack("attachments-mapped", "takes them, and keeps each", attachments::kept),
    attack("snapshots-kept", "keeps every generation of a snapshot", attachments::snapshots),
    attack("parts", "64 messages in parts up to max_message that never end", unfinished::parts),
    attack("stalled", "200 sessions ask for 1 MiB again and again, and read nothing", stalled::run),
    with_workers("stalled-workers", "the same of a server with workers", stalled::run),
    with_workers("queue", "64 sessions keep 1 000 requests of 8 KB each queued", queue::flood),
    with_workers("queue-left", "queues requests, leaves, and comes again", queue::abandoned),
    attack("sparse-attachments", "requests in memfds without pages", sparse::attachments),
    attack("sparse-lanes", "lanes without pages", sparse::lanes),
    attack("pads", "100 sessions publish 65 536 pads by each store", pads::run),
    attack("closes", "descriptors whose close blocks, everywhere", closes::run),
    attack("records", "cancels, trims and empty batches without pause", records::small),
    attack("batches", "batches of a million items", records::batches),
    attack(
        "malformed",
        "requests that are answered malformed, in 100 sessions",
        records::malformed,
    ),
    attack("minimal", "minimal requests without pause in 100 sessions", records::minimal),
    attack("switches", "lanes that go on in another memfd without pause", switches::run),
    attack("connects", "thousands connect and say nothing", connects::silent),
    attack("hellos", "thousands say HELLO and nothing more", connects::hello),
    attack("joins", "joins with memory that is refused, again and again", connects::join),
    attack(
        "descriptors",
        "1 000 sessions with eight descriptors each on the socket",
        descriptors::queued,
    ),
    attack("rings", "1 000 sessions rung by socket that read no ring", stalled::rings),
    attack("empty-messages", "control messages without a byte, without pause", descriptors::empty),
    attack("netipc-hellos", "says HELLO of netipc and leaves, without pause", netipc::hellos),
    attack("netipc-chunks", "messages of netipc of 1 MiB that never end", netipc::chunks),
    attack("netipc-stalled", "200 clients of netipc ask, and read nothing", netipc::stalled),
    attack("netipc-batches", "batches of netipc whose answers exceed any limit", netipc::batches),
];

/// The attack of that name.
pub(crate) fn named(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}
