//! A provider whose address space is limited from its start.

use crate::support::blobs::{self, Settings};
use crate::support::child::{Parent, Process};
use crate::support::limiter::ResourceLimiter;
use crate::support::test_server::Dir;

const MIB: usize = 1 << 20;

/// Provides blobs, with so many bytes besides what a process has anyway.
pub(super) fn play(parent: Parent) {
    let mut limiter = ResourceLimiter::default();
    limiter.apply(&["space", &(192 * MIB).to_string()]);
    let unknown = |words: &[&str]| panic!("what is {words:?}?");
    blobs::serve(parent, &Settings::default(), unknown);
}

/// Its memory is that much, not the machine's: an allocation beyond it would end the process.
#[test]
fn a_provider_of_little_address_space_takes_no_more_than_it_has_room_for() {
    let dir = Dir::new();
    let mut provider = Process::start("limits addresses", &dir.run_dir);
    let mut clients = [(); 4].map(|()| Process::start("blob-client", &dir.run_dir));
    let long = 60 * MIB;
    clients.iter_mut().for_each(|client| assert_eq!(client.ask("open"), "ok"));
    for (request, answer, refused) in [(long, 100, "No TooLarge"), (100, long, "TooLarge")] {
        // All at once.
        clients
            .iter_mut()
            .for_each(|client| client.send_line(&format!("call {request} {answer} 0 0")));
        for client in &mut clients {
            let reply = client.next_line();
            assert!(reply.contains(refused), "{reply}");
        }
    }
    for client in &mut clients {
        assert_eq!(client.ask(&format!("call {MIB} {MIB} 0 0")), "ok");
    }
    provider.ask("stats");
}
