//! Ten thousand sessions that do nothing, in a server that can open twice as many files.

use std::fs;

use super::many_clients;
use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::kernel;
use crate::support::test_server::Dir;

const FILES: usize = 20_000;
const SESSIONS: usize = 10_000;
const WORKERS: usize = 2;

/// The names of a process's threads that are not its own.
fn bellwires(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    names.filter(|name| name.starts_with("bellwire-")).collect()
}

#[test]
fn ten_thousand_sessions_cost_a_server_no_thread_no_wake_up_and_fewer_descriptors_than_it_may_have()
{
    let dir = Dir::new();
    let mut server = Process::start(&format!("scale server {FILES} {WORKERS}"), &dir.run_dir);
    let (pid, threads) = (server.pid(), 2 + WORKERS);
    let mut clients = many_clients::open(&dir, 4, SESSIONS);
    until("all are counted", || many_clients::sessions(&mut server).0 == SESSIONS);
    let (_, by_socket) = many_clients::sessions(&mut server);
    assert!((SESSIONS / 2..SESSIONS).contains(&by_socket), "{by_socket} are rung by their socket");

    let names = bellwires(pid);
    assert!(names.len() <= threads, "{names:?}");
    let fds = kernel::fds(pid);
    assert!(fds <= FILES, "{fds} descriptors");
    let memory = kernel::memory(pid);
    let bytes: u64 = memory.values().map(|(_, size)| size).sum();
    assert!(memory.len() >= 4 * SESSIONS, "{} pieces of memory", memory.len());
    let each = bytes / SESSIONS as u64;
    assert!(each <= 48 << 10, "{each} bytes of shared memory a session");
    kernel::assert_no_wake_ups(|| kernel::sleeps(pid));
    println!("{fds} descriptors, {by_socket} rung by socket, {each} B a session, {names:?}");

    for client in &mut clients {
        assert_eq!(client.ask("call 50"), "called");
    }
    drop(clients);
    until("nothing is left behind", || {
        many_clients::sessions(&mut server).0 == 0 && kernel::fds(pid) < 100
    });
    assert!(kernel::memory(pid).len() < 100);
}
