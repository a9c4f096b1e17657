//! A client's death when descriptors are too scarce to watch its process, and another process holds its socket open.

use bellwire::Client;

use super::many_clients;
use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::kernel;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

/// Of so few the server spares from the first sessions on: five eighths are taken.
const FILES: u64 = 40;

#[test]
fn a_dead_client_whose_process_is_not_watched_is_found_when_others_connect() {
    let dir = Dir::new();
    let mut server = Process::start(&format!("scale server {FILES} 0"), &dir.run_dir);
    // Until no descriptor is left to watch the next client's process.
    let mut others: Vec<Client<Echo>> = Vec::new();
    while open_descriptors(server.pid()) < 28 {
        let mut client = Client::with_config(&dir.run_dir, client_config());
        until_admitted(&mut client);
        others.push(client);
    }
    let mut victim = Process::start("scale clients", &dir.run_dir);
    let before = open_descriptors(server.pid());
    assert_eq!(victim.ask("open 1"), "opened");
    until("a session has its socket alone", || kernel::fds(server.pid()) == before + 1);
    // A client that dies before its server has opened the session is found at once.
    let all = others.len() + 1;
    until("all are counted", || many_clients::sessions(&mut server).0 == all);
    // A process with a copy of its socket prevents the hang-up.
    let _copies = kernel::copies(victim.pid());
    victim.kill();
    assert_eq!(many_clients::sessions(&mut server).0, all, "the dead one is not noticed");

    let mut late = Client::<Echo>::with_config(&dir.run_dir, client_config());
    until_admitted(&mut late);
    until("it is found", || many_clients::sessions(&mut server).0 == all);
}

/// A test beside this one may have more descriptors in flight, which count for the user, than this server may open.
fn until_admitted(client: &mut Client<Echo>) {
    until("it is let in", || client.call(&vec![2]).is_ok_and(|answer| answer == [2]));
}

/// How many descriptors a process has that are not about to be closed: what came with a session is closed by a thread
/// of its own.
fn open_descriptors(pid: u32) -> usize {
    let mut seen = 0;
    until("none is about to be closed", || {
        seen = kernel::fds(pid);
        (0..500).all(|_| kernel::fds(pid) == seen)
    });
    seen
}
