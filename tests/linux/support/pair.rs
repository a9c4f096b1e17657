use bellwire::ServerStats;

use crate::support::blobs::Storage;
use crate::support::child::Process;
use crate::support::roles::parse_stats;
use crate::support::test_server::Dir;

/// One lane of a session in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) epoch: u64,
    pub(crate) size: u64,
    pub(crate) grows: u64,
    pub(crate) shrinks: u64,
    pub(crate) attaches: u64,
    pub(crate) bytes: u64,
}

/// A provider of blobs and its client, each in a process of its own, with a session open.
pub(crate) struct Pair {
    dir: Dir,
    pub(crate) server: Process,
    pub(crate) client: Process,
}

impl Pair {
    pub(crate) fn open(server: &str, client: &str) -> Self {
        let dir = Dir::new();
        let server = Process::start(format!("blobs {server}").trim_end(), &dir.run_dir);
        let client = open(&dir, client);
        Self { dir, server, client }
    }

    /// Another client of the same provider.
    pub(crate) fn another(&self) -> Process {
        open(&self.dir, "")
    }

    /// A request of so many bytes for so many, by a call that waits.
    #[track_caller]
    pub(crate) fn call(&mut self, request: usize, answer: usize, how: Storage) {
        assert_eq!(self.client.ask(&command("call", request, answer, how)), "ok");
    }

    /// The same, sent without waiting, so that the lanes grow for it. Returns the error if it failed.
    pub(crate) fn try_submit(&mut self, request: usize, answer: usize, how: Storage) -> String {
        self.client.ask(&command("submit", request, answer, how))
    }

    #[track_caller]
    pub(crate) fn submit(&mut self, request: usize, answer: usize, how: Storage) {
        assert_eq!(self.try_submit(request, answer, how), "ok");
    }

    /// The lanes of requests and of answers.
    pub(crate) fn lanes(&mut self) -> [Lane; 2] {
        parse_lanes(&self.client.ask("stats"))
    }

    #[track_caller]
    pub(crate) fn trim(&mut self) {
        assert_eq!(self.client.ask("trim"), "ok");
    }

    /// Ends the provider. Its session was the only one, from the first to the last.
    #[track_caller]
    pub(crate) fn end(mut self) -> ServerStats {
        let stats = parse_stats(&self.server.ask("stop"));
        assert_eq!((stats.admitted, stats.poisoned), (1, 0), "{stats:?}");
        stats
    }
}

/// A command to a client.
pub(crate) fn command(way: &str, request: usize, answer: usize, how: Storage) -> String {
    // A request for a payload in a memfd is itself in one.
    let by = if how == Storage::Kept { Storage::Private } else { how };
    format!("{way} {request} {answer} {} {}", how as u64, by as u64)
}

fn open(dir: &Dir, settings: &str) -> Process {
    let mut client = Process::start("blob-client", &dir.run_dir);
    assert_eq!(client.ask(format!("open {settings}").trim_end()), "ok");
    client
}

/// The lanes of requests and of answers, as another process reported them.
fn parse_lanes(line: &str) -> [Lane; 2] {
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    [0, 6].map(|at| {
        let [epoch, size, grows, shrinks, attaches, bytes] =
            numbers[at..at + 6].try_into().unwrap();
        Lane { epoch, size, grows, shrinks, attaches, bytes }
    })
}
