//! Payloads in memfds of their own: which process holds them, and when their memory is free again.

use std::collections::BTreeSet;

use bellwire::Client;
use bellwire_core::wire::Message;

use crate::support::blob_server::request_by;
use crate::support::blobs::{Blobs, Storage};
use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::kernel;
use crate::support::pair::{Pair, command};
use crate::support::rogue::RogueListener;
use crate::support::test_server::{Dir, client_config};

/// The memfds of payloads that a process has mapped, or has descriptors of.
fn payloads(pid: u32) -> BTreeSet<u64> {
    let memory = kernel::memory(pid).into_iter();
    let mapped = memory.filter(|(_, (name, _))| name == "payload").map(|(inode, _)| inode);
    mapped.chain(kernel::memfds(pid, "bellwire-payload")).collect()
}

#[test]
fn one_memfd_serves_all_sessions_that_it_is_sent_to() {
    let mut pair = Pair::open("", "");
    let mut others = [pair.another(), pair.another()];
    let keep = command("keep", 100, 5 << 20, Storage::Kept);
    let pids: Vec<u32> = [pair.client.pid(), pair.server.pid()]
        .into_iter()
        .chain(others.each_ref().map(Process::pid))
        .collect();
    assert_eq!(pair.client.ask(&keep), "ok");
    for other in &mut others {
        assert_eq!(other.ask(&keep), "ok");
    }
    let one = payloads(pair.server.pid());
    assert_eq!(one.len(), 1);
    for pid in &pids {
        assert_eq!(payloads(*pid), one);
    }
    // Dropping it does not affect other holders.
    assert_eq!(pair.client.ask("drop"), "done");
    assert_eq!(payloads(pair.client.pid()).len(), 0);
    assert_eq!(payloads(others[0].pid()), one);
    pair.call(100, 100, Storage::Private);
}

/// What a client passes, to any receiver.
#[test]
fn a_request_in_a_memfd_is_passed_and_not_copied() {
    let sealed = request_by(3 << 20, Storage::Sealed, 8, Storage::Private);
    let mut passed = Vec::new();
    for _ in 0..2 {
        let dir = Dir::new();
        let listener = RogueListener::bind(&dir.run_dir, "blobs");
        let mut client = Client::<Blobs>::with_config(&dir.run_dir, client_config());
        let rogue = listener.meet(|| client.connect().map(|_| ()).unwrap());
        for _ in 0..2 {
            client.session().unwrap().submit(&sealed).unwrap();
            let (message, fds) = rogue.control();
            assert!(matches!(message, Message::Attachment(found) if found.len == 3 << 20));
            passed.push(rustix::fs::fstat(&fds[0]).unwrap().st_ino);
        }
    }
    assert_eq!(passed, [passed[0]; 4]);
}

#[test]
fn the_memory_of_a_payload_is_free_when_the_last_one_drops_it() {
    for settings in ["", "workers=2"] {
        let mut pair = Pair::open(settings, "");
        pair.call(100, 100, Storage::Private);
        let pids = [pair.client.pid(), pair.server.pid()];
        let before = pids.map(kernel::fds);
        for round in 1..=5 {
            // Both the request and the answer are in memfds.
            assert_eq!(pair.client.ask(&command("keep", 1 << 20, 2 << 20, Storage::Sealed)), "ok");
            // The answers that are kept, and the request that is.
            assert_eq!(payloads(pids[0]).len(), round + 1);
        }
        assert_eq!(pair.client.ask("drop"), "done");
        pair.call(100, 100, Storage::Private);
        for (pid, before) in pids.into_iter().zip(before) {
            until("no map is left", || payloads(pid).is_empty());
            until("no descriptor is left", || kernel::fds(pid) == before);
        }
        pair.end();
    }
}

#[test]
fn an_abandoned_answer_in_a_memfd_is_released() {
    let mut pair = Pair::open("", "");
    pair.call(100, 100, Storage::Private);
    let before = kernel::fds(pair.client.pid());
    assert_eq!(pair.client.ask(&format!("abandon {} {} 2 0", 100, 2 << 20)), "abandoned");
    pair.call(100, 3 << 20, Storage::Sealed);
    pair.call(100, 100, Storage::Private);
    until("its descriptor is closed", || kernel::fds(pair.client.pid()) == before);
    assert!(payloads(pair.client.pid()).is_empty());
    pair.end();
}
