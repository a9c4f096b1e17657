//! What was published arrives, whichever end is gone by then.

use bellwire::{CallError, Client, ClientConfig};

use crate::support::blob_server::{is_answer, request, request_by};
use crate::support::blobs::{Blobs, Settings, Storage};
use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::kernel;
use crate::support::roles::parse_stats;
use crate::support::test_server::Dir;

fn client(dir: &Dir, settings: &str) -> Client<Blobs> {
    let config: ClientConfig = Settings::parse(settings.split_whitespace()).client();
    let mut client = Client::with_config(&dir.run_dir, config);
    client.connect().unwrap();
    client
}

#[test]
fn a_large_answer_of_a_provider_that_was_killed_after_it_arrives() {
    for doorbell in 1..=3 {
        for how in [Storage::Private, Storage::Sealed] {
            for zombie in [false, true] {
                let dir = Dir::new();
                let mut server = Process::start("blobs stream=0", &dir.run_dir);
                let mut client = client(&dir, &format!("stream=0 doorbell={doorbell}"));
                let session = client.session().unwrap();
                let ticket =
                    session.submit(&request_by(50_000, Storage::Private, 8 << 20, how)).unwrap();
                // It checks whether there is something, and takes nothing.
                until("the answer is published", || session.arm().unwrap());
                if zombie {
                    server.kill_unwaited();
                } else {
                    server.kill();
                }
                let (answered, answer) = session.try_reply().unwrap().expect("it was published");
                assert_eq!(answered, ticket);
                is_answer(&answer.unwrap(), 8 << 20, how);
                let error = session.call(&request(100, 100)).unwrap_err();
                assert!(matches!(error, CallError::PeerGone { .. }), "{error}");
            }
        }
    }
}

#[test]
fn a_client_that_is_killed_while_its_lanes_grow_leaves_nothing_behind() {
    let dir = Dir::new();
    let mut server = Process::start("blobs stream=0", &dir.run_dir);
    let mut witness = client(&dir, "");
    witness.call(&request(100, 100)).unwrap();
    let fds = kernel::fds(server.pid());
    let memory = kernel::memory(server.pid());
    for round in 0..20_u64 {
        let mut doomed = Process::start("blob-client", &dir.run_dir);
        assert_eq!(doomed.ask("open stream=0"), "ok");
        // Large both ways, in lanes or in memfds.
        let how = (round % 2) * 2;
        doomed.send_line(&format!("submit {} {} {how} {how}", 100_000 << (round % 6), 8 << 20));
        witness.call(&request(100, 100)).unwrap();
        doomed.kill();
        witness.call(&request(100, 100)).unwrap();
    }
    until("all descriptors are given back", || kernel::fds(server.pid()) == fds);
    until("all memory is given back", || kernel::memory(server.pid()) == memory);
    drop(witness);
    let stats = parse_stats(&server.ask("stop"));
    assert_eq!((stats.admitted, stats.poisoned), (21, 0), "{stats:?}");
}
