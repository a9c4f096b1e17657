//! A server that many come to, and processes with many sessions each.

use bellwire::{Client, RunDir, ServerConfig, ServerStats};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::support::child::{Parent, Process};
use crate::support::limiter::drop_limit_capabilities;
use crate::support::services::{Echo, echo};
use crate::support::test_server::{Dir, client_config, provide_with, server_config};

/// Sets the process's limits so that it can open this many files, and send as few, under any user.
fn limit(files: u64) {
    drop_limit_capabilities();
    let limit = Rlimit { current: Some(files), maximum: Some(files) };
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// The role that serves, with so many descriptors and workers.
pub(super) fn serve(mut parent: Parent, files: u64, workers: usize) {
    limit(files);
    let config = server_config(ServerConfig::default().workers(workers));
    let server = provide_with::<Echo>(&RunDir::from_environment(), config, echo);
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        assert_eq!(line, "stats");
        parent.send_line(&format_counters(&server.stats()));
    }
}

/// The counters that are reported.
fn format_counters(stats: &ServerStats) -> String {
    let ServerStats { sessions, socket_rung, .. } = stats;
    format!("{sessions} {socket_rung}")
}

/// Sessions that a server has, and how many of them are rung by their socket.
pub(super) fn sessions(server: &mut Process) -> (usize, usize) {
    let reply = server.ask("stats");
    let (sessions, by_socket) = reply.split_once(' ').unwrap();
    (sessions.parse().unwrap(), by_socket.parse().unwrap())
}

/// The role that opens sessions, and calls on some of them.
pub(super) fn call(mut parent: Parent) {
    limit(20_000);
    let run_dir = RunDir::from_environment();
    let mut clients: Vec<Client<Echo>> = Vec::new();
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["open", count] => {
                for _ in 0..count.parse().unwrap() {
                    let mut client = Client::with_config(&run_dir, client_config());
                    client.connect().unwrap();
                    clients.push(client);
                }
                parent.send_line("opened");
            }
            ["call", step] => {
                for (at, client) in clients.iter_mut().enumerate().step_by(step.parse().unwrap()) {
                    let request = at.to_le_bytes().to_vec();
                    assert_eq!(client.session().unwrap().call(&request).unwrap(), request);
                }
                parent.send_line("called");
            }
            _ => panic!("what is {line:?}?"),
        }
    }
}

/// Processes that together have so many sessions open.
pub(super) fn open(dir: &Dir, processes: usize, sessions: usize) -> Vec<Process> {
    let start = |_| Process::start("scale clients", &dir.run_dir);
    let mut clients: Vec<Process> = (0..processes).map(start).collect();
    let each = format!("open {}", sessions / processes);
    clients.iter_mut().for_each(|client| client.send_line(&each));
    clients.iter_mut().for_each(|client| assert_eq!(client.next_line(), "opened"));
    clients
}
