#![allow(unsafe_code, reason = "a child changes its user")]
//! Clients that are not admitted, providers that do not own a name, and memory that no peer can write. Each refusal
//! tells an operator what to do.

mod attacks;
mod modes;
mod names;
mod namespaces;
mod races;
mod users;
mod waits;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::child::Parent;
use crate::support::guard::until;
use crate::support::rogue::Rogue;
use crate::support::services::{Echo, echo};
use crate::support::test_server::{client_config, server_config};
use bellwire::{Admission, Client, Group, ProviderState, RunDir, Server, ServerConfig, User};
use bellwire_core::Word;

/// The user without rights.
const NOBODY: u32 = 65534;

/// Plays `admission PART [nobody|as=UID/GID/GROUP] [admit=MODE] [trust=UID]`: as the arguments say, and as that user
/// if given.
pub(crate) fn play(parent: Parent, role: &str) {
    let words: Vec<_> = role.split(' ').collect();
    let value = |name| words.iter().find_map(|word| word.strip_prefix(name));
    if let Some(who) = value("as=") {
        let ids: Vec<u32> = who.split('/').map(|id| id.parse().unwrap()).collect();
        let [uid, gid, groups @ ..] = &ids[..] else { panic!("who is {who}?") };
        become_user(*uid, *gid, groups);
        // No admission depends on it.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    } else if words.contains(&"nobody") {
        become_user(NOBODY, NOBODY, &[]);
    }
    let admission = value("admit=").map_or(Admission::SameUser, admission);
    let trusted = value("trust=").map(|uid| uid.parse().unwrap());
    match words[1] {
        "client" => connect(parent, &users(trusted.as_slice())),
        "server" => serve(parent, &admission),
        "attacker" => attacks::play(parent),
        part => panic!("no such part: {part}"),
    }
}

/// The command accepts the same.
fn admission(mode: &str) -> Admission {
    match mode.split_once(':') {
        None if mode == "any" => Admission::Any,
        Some(("group", gid)) => Admission::Group(Group::from(gid.parse::<u32>().unwrap())),
        Some(("user", uid)) => Admission::Users(vec![uid.parse().unwrap()]),
        _ => Admission::SameUser,
    }
}

/// For all threads, and for good.
fn become_user(uid: u32, gid: u32, groups: &[u32]) {
    // SAFETY: the slice holds so many.
    assert_eq!(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }, 0);
    // SAFETY: changes this process alone.
    assert_eq!(unsafe { libc::setresgid(gid, gid, gid) }, 0);
    // SAFETY: changes this process alone.
    assert_eq!(unsafe { libc::setresuid(uid, uid, uid) }, 0);
}

/// Reports the outcome of each attempt to connect, and of each call.
fn connect(mut parent: Parent, trusted: &[User]) {
    let run_dir = RunDir::from_environment();
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        if let Some(count) = line.strip_prefix("many_clients ") {
            parent.send_line(&many_clients(&run_dir, count.parse().unwrap()));
            continue;
        }
        if line == "violate" {
            let mut session = Rogue::connect(&run_dir, "echo").open();
            session.set(Word::Tail, 1);
            session.is_poisoned();
            parent.send_line("poisoned");
            continue;
        }
        if line == "wait" {
            waits::wait(&parent, &run_dir);
            continue;
        }
        let trusted = if line == "call-trusting" { users(&[NOBODY]) } else { trusted.to_vec() };
        let config = client_config().trusted(trusted);
        let mut client = Client::<Echo>::with_config(&run_dir, config);
        let state = outcome_of_connect(&mut client);
        let reply = match line.as_str() {
            "call" | "call-trusting" if state == ProviderState::Ready => {
                format!("{:?}", client.call(&b"hello".to_vec()))
            }
            _ => format!("{state:?}"),
        };
        parent.send_line(&reply);
    }
}

/// Opens so many sessions at once. Returns how many there are, how many milliseconds that took, and the reasons of
/// refusals.
fn many_clients(run_dir: &RunDir, count: usize) -> String {
    let start = std::time::Instant::now();
    let new = || Client::<Echo>::with_config(run_dir, client_config());
    let mut clients: Vec<_> = std::iter::repeat_with(new).take(count).collect();
    // The first refresh begins the handshake.
    let _: Vec<_> = clients.iter_mut().map(Client::refresh).collect();
    let states: Vec<_> = clients.iter_mut().map(outcome_of_connect).collect();
    let ready = states.iter().filter(|state| **state == ProviderState::Ready).count();
    let refused =
        states.into_iter().filter(|state| *state != ProviderState::Ready).collect::<Vec<_>>();
    format!("{ready} {} {refused:?}", start.elapsed().as_millis())
}

/// Reports the outcome of each attempt to take the name, and keeps it until told to release it.
fn serve(mut parent: Parent, admission: &Admission) {
    let run_dir = RunDir::from_environment();
    let mut server = None;
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        let reply = match line.as_str() {
            "serve" => match start_admitting(&run_dir, admission) {
                Ok(started) => {
                    server = Some(started);
                    "serving".to_owned()
                }
                Err(error) => error,
            },
            "stop" => {
                server.take();
                "stopped".to_owned()
            }
            line => panic!("what is {line:?}?"),
        };
        parent.send_line(&reply);
    }
}

/// Serves; or the sentence that an operator reads.
fn start(run_dir: &RunDir) -> Result<Server, String> {
    start_admitting(run_dir, &Admission::SameUser)
}

fn start_admitting(run_dir: &RunDir, admission: &Admission) -> Result<Server, String> {
    let config = server_config(ServerConfig::default().admission(admission.clone()));
    let mut builder = Server::builder_with_config(run_dir, config);
    builder.serve::<Echo>(echo).map_err(|error| error.to_string())?;
    builder.start().map_err(|error| error.to_string())
}

fn users(uids: &[u32]) -> Vec<User> {
    uids.iter().copied().map(User::from).collect()
}

/// The outcome of a client's attempt to connect.
fn outcome_of_connect(client: &mut Client<Echo>) -> ProviderState {
    let mut state = client.refresh();
    until("it is let in or not", || {
        if state == ProviderState::Connecting {
            state = client.refresh();
        }
        state != ProviderState::Connecting
    });
    state
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether this process may act as root; says so if it may not.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not run: it takes root to become another user");
    }
    is_root
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}
