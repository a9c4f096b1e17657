//! What happens when memory or descriptors cannot be had: the call that needed them says so, and the session goes on at
//! its size.

use crate::support::blobs::Storage;
use crate::support::pair::{Lane, Pair, command};
use crate::support::roles::parse_stats;

const SMALL: usize = 4000;
/// Needs another lane, and neither parts nor a memfd of its own.
const LARGE: usize = 50_000;

/// Lanes carry what they can hold, and nothing goes in parts.
const WHOLE: &str = "stream=0";

/// Where something is lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

impl Pair {
    fn command(&mut self, end: End, line: &str) {
        let process = if end == End::Client { &mut self.client } else { &mut self.server };
        assert_eq!(process.ask(line), "done");
    }

    /// Request and answer of a message that this end sends.
    fn sizes(end: End, len: usize) -> (usize, usize) {
        if end == End::Client { (len, SMALL) } else { (SMALL, len) }
    }
}

/// A sender short of a resource: the error names it, and comes before the handler runs if the request needed it.
/// Small messages continue through the lane as it is, and the failed one goes through when there is enough again.
#[track_caller]
fn is_short(end: End, settings: &str, [take, give]: [&str; 2], resource: &str) {
    let mut pair = Pair::open(settings, settings);
    // Buffers of all sizes have their memory by now.
    pair.call(SMALL, SMALL, Storage::Private);
    let before = pair.lanes();
    let (request, answer) = Pair::sizes(end, LARGE);
    pair.command(end, take);
    for _ in 0..3 {
        let said = pair.try_submit(request, answer, Storage::Private);
        match end {
            End::Client => {
                assert!(said.starts_with("No Short"), "{said}");
                assert!(said.contains(&format!("resource: {resource}")), "{said}");
            }
            // A shortage of the server is reported to its operator.
            End::Server => assert_eq!(said, "Maybe Declined { status: Short }"),
        }
        pair.call(SMALL, SMALL, Storage::Private);
        let after = pair.lanes();
        let sizes = |lanes: [Lane; 2]| lanes.map(|lane| (lane.epoch, lane.size));
        assert_eq!(sizes(after), sizes(before));
    }
    if give.is_empty() {
        pair.end();
        return;
    }
    pair.command(end, give);
    pair.submit(request, answer, Storage::Private);
    let after = pair.lanes();
    let grown = usize::from(end == End::Server);
    assert!(after[grown].size > before[grown].size && after[grown].grows == 1, "{after:?}");
    assert_eq!(after[1 - grown].size, before[1 - grown].size);
    let stats = pair.end();
    // A request that was not sent ran no handler.
    let expected = if end == End::Client { 5 } else { 8 };
    assert_eq!((stats.accepted, stats.answered), (expected, expected), "{stats:?}");
}

#[test]
fn a_sender_at_its_limit_of_open_files() {
    for end in [End::Client, End::Server] {
        is_short(end, WHOLE, ["no-files", "files"], "Descriptors");
    }
}

#[test]
fn a_sender_at_its_limit_of_open_files_that_attaches() {
    for end in [End::Client, End::Server] {
        let attaching = format!("{WHOLE} attach=30000");
        let mut pair = Pair::open(&attaching, &attaching);
        pair.call(SMALL, SMALL, Storage::Private);
        let (request, answer) = Pair::sizes(end, LARGE);
        pair.command(end, "no-files");
        let said = pair.try_submit(request, answer, Storage::Private);
        let expected = if end == End::Client { "No Short" } else { "Maybe Declined" };
        assert!(said.starts_with(expected) && said.contains("Short"), "{said}");
        pair.call(SMALL, SMALL, Storage::Private);
        pair.command(end, "files");
        pair.submit(request, answer, Storage::Private);
        let lanes = pair.lanes();
        let attaching = usize::from(end == End::Server);
        assert_eq!((lanes[attaching].attaches, lanes[1 - attaching].attaches), (1, 0));
        pair.end();
    }
}

#[test]
fn a_sender_at_its_limit_of_file_sizes() {
    for end in [End::Client, End::Server] {
        is_short(end, WHOLE, ["file-size 100000", "file-sizes"], "Memory");
    }
}

#[test]
fn a_sender_without_space_for_another_file() {
    // A filter makes `fallocate` fail with ENOSPC: a memfd is on a mount of the kernel's own, which has no size
    // limit.
    for end in [End::Client, End::Server] {
        is_short(end, WHOLE, ["no-space 100000", ""], "Memory");
    }
}

#[test]
fn a_sender_with_too_many_descriptors_in_flight() {
    for end in [End::Client, End::Server] {
        is_short(end, WHOLE, ["in-flight", "nothing-in-flight"], "InFlight");
    }
}

/// A lane for this message exceeds the remaining address space, its buffers do not.
const HUGE: usize = 10 << 20;
const LITTLE: usize = 24 << 20;

#[test]
fn a_sender_without_address_space() {
    let mut pair = Pair::open(WHOLE, WHOLE);
    // Made while there is room for it.
    assert_eq!(pair.client.ask(&command("make", HUGE, SMALL, Storage::Private)), "done");
    pair.command(End::Client, &format!("space {LITTLE}"));
    for _ in 0..2 {
        let said = pair.client.ask("submit");
        assert!(said.starts_with("No Short") && said.contains("resource: Maps"), "{said}");
    }
    pair.command(End::Client, "spaces");
    assert_eq!(pair.client.ask("submit"), "ok");
    assert_eq!(pair.lanes()[0].size, 32 << 20);
    pair.call(SMALL, SMALL, Storage::Private);

    // The provider has made this answer before.
    assert_eq!(pair.client.ask(&command("submit", SMALL, HUGE, Storage::Kept)), "ok");
    pair.trim();
    pair.command(End::Server, &format!("space {}", HUGE / 2));
    let said = pair.try_submit(SMALL, HUGE, Storage::Sealed);
    assert!(said.starts_with("Maybe Handler") && said.contains("maps"), "{said}");
    // Passing what it has needs no more space.
    pair.submit(SMALL, HUGE, Storage::Kept);
    pair.command(End::Server, "spaces");
    pair.submit(SMALL, HUGE, Storage::Sealed);
    pair.end();
}

/// A reader that has no descriptor left for a lane or a message has a spare one.
#[test]
fn a_reader_at_its_limit_of_open_files_keeps_reading() {
    for end in [End::Client, End::Server] {
        for doorbell in 1..=3 {
            keeps_reading(end, WHOLE, doorbell, |lane| lane.grows);
            keeps_reading(end, "stream=0 attach=30000", doorbell, |lane| lane.attaches);
        }
    }
}

#[track_caller]
fn keeps_reading(end: End, settings: &str, doorbell: u64, count: fn(&Lane) -> u64) {
    // The server's own doorbell cannot be a futex; the client's can be anything.
    let server = format!("{settings} doorbell={}", doorbell.max(2));
    let mut pair = Pair::open(&server, &format!("{settings} doorbell={doorbell}"));
    pair.call(SMALL, SMALL, Storage::Private);
    let sender = if end == End::Client { End::Server } else { End::Client };
    // Repeatedly: the spare is replaced.
    for round in 1..=4 {
        pair.command(end, "no-files");
        let (request, answer) = Pair::sizes(sender, LARGE << round);
        pair.submit(request, answer, Storage::Private);
        let lane = pair.lanes()[usize::from(sender == End::Server)];
        assert_eq!(count(&lane), round, "{end:?} {lane:?}");
    }
    pair.command(end, "files");
    pair.end();
}

/// A server that cannot map its client's lane retries, and serves its other clients meanwhile.
#[test]
fn a_server_without_address_space_follows_later() {
    let mut pair = Pair::open(WHOLE, WHOLE);
    let mut other = pair.another();
    pair.call(SMALL, SMALL, Storage::Private);
    // The handler has this much memory already.
    assert_eq!(other.ask(&command("call", SMALL, SMALL, Storage::Private)), "ok");
    pair.command(End::Server, &format!("space {LITTLE}"));
    pair.client.send_line(&command("submit", HUGE, SMALL, Storage::Private));
    for _ in 0..200 {
        assert_eq!(other.ask(&command("call", SMALL, SMALL, Storage::Private)), "ok");
    }
    pair.command(End::Server, "spaces");
    assert_eq!(pair.client.next_line(), "ok");
    pair.call(SMALL, SMALL, Storage::Private);
    let stats = parse_stats(&pair.server.ask("stop"));
    assert_eq!((stats.admitted, stats.poisoned, stats.answered), (2, 0, 204), "{stats:?}");
}

/// A client that cannot map its provider's lane reports that, and finds the answer at its next poll.
#[test]
fn a_client_without_address_space_loses_nothing() {
    let mut pair = Pair::open(WHOLE, WHOLE);
    pair.call(SMALL, SMALL, Storage::Private);
    pair.command(End::Client, &format!("space {LITTLE}"));
    let said = pair.client.ask(&command("call", SMALL, HUGE, Storage::Private));
    assert!(said.starts_with("Maybe Short") && said.contains("resource: Maps"), "{said}");
    // Whatever comes is behind that lane.
    let said = pair.client.ask(&command("call", SMALL, SMALL, Storage::Private));
    assert!(said.starts_with("Maybe Short") && said.contains("resource: Maps"), "{said}");
    pair.command(End::Client, "spaces");
    pair.call(SMALL, SMALL, Storage::Private);
    pair.submit(SMALL, HUGE, Storage::Private);
    let stats = pair.end();
    assert_eq!((stats.accepted, stats.answered), (5, 5));
}

/// A request in a memfd that the server cannot map was not executed, and may come again.
#[test]
fn a_server_without_address_space_for_a_message_refuses_it() {
    let mut pair = Pair::open(WHOLE, WHOLE);
    pair.call(SMALL, SMALL, Storage::Private);
    pair.command(End::Server, &format!("space {}", HUGE / 2));
    for _ in 0..3 {
        let said = pair.try_submit(HUGE, SMALL, Storage::Sealed);
        assert_eq!(said, "No Declined { status: Busy }");
        pair.call(SMALL, SMALL, Storage::Private);
    }
    pair.command(End::Server, "spaces");
    pair.submit(HUGE, SMALL, Storage::Sealed);
    let stats = pair.end();
    assert_eq!((stats.answered, stats.refused), (5, 3), "{stats:?}");
}

/// An answer in a memfd that the client cannot map is lost, and the next one is not.
#[test]
fn a_client_without_address_space_for_a_message_reports_it() {
    for way in ["call", "submit"] {
        let mut pair = Pair::open(WHOLE, WHOLE);
        pair.call(SMALL, SMALL, Storage::Private);
        // The provider's, so that nothing else is large here.
        assert_eq!(pair.client.ask(&command("make", SMALL, HUGE, Storage::Kept)), "done");
        pair.command(End::Client, &format!("space {}", HUGE / 2));
        for _ in 0..3 {
            let said = pair.client.ask(way);
            assert!(said.starts_with("Maybe Short") && said.contains("resource: Maps"), "{said}");
        }
        pair.command(End::Client, "spaces");
        assert_eq!(pair.client.ask(way), "ok");
        pair.call(SMALL, SMALL, Storage::Private);
        pair.end();
    }
}
