#![allow(unsafe_code, reason = "a child changes its user")]
//! Who is not let in, who does not own a name, and what nobody can write. Each refusal tells an operator what to do.

mod attacks;
mod names;
mod namespaces;
mod races;
mod users;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bellwire::{Client, ClientConfig, RunDir, Server, ServerConfig, State, User};

use crate::support::child::Parent;
use crate::support::guard::until;
use crate::support::house::patient;
use crate::support::services::{Echo, echo};

/// The user without rights.
const NOBODY: u32 = 65534;

/// Plays `admission PART [nobody]`: as told, and as nobody if told so.
pub(crate) fn play(parent: Parent, role: &str) {
    let words: Vec<_> = role.split(' ').collect();
    if words.contains(&"nobody") {
        become_nobody();
    }
    match words[1] {
        "client" => connect(parent),
        "server" if words.contains(&"admitting-nobody") => serve(parent, &[NOBODY]),
        "server" => serve(parent, &[]),
        "attacker" => attacks::play(parent),
        part => panic!("no such part: {part}"),
    }
}

/// For all threads, and for good.
fn become_nobody() {
    // SAFETY: no groups are read.
    assert_eq!(unsafe { libc::setgroups(0, std::ptr::null()) }, 0);
    // SAFETY: changes this process alone.
    assert_eq!(unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) }, 0);
    // SAFETY: changes this process alone.
    assert_eq!(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) }, 0);
}

/// Tells what comes of each try to connect, and of each call.
fn connect(mut parent: Parent) {
    let run_dir = RunDir::from_environment();
    parent.tell("ready");
    while let Some(line) = parent.hear() {
        let listed: &[u32] = if line == "call-trusting" { &[NOBODY] } else { &[] };
        let config = ClientConfig { trusted: users(listed), ..patient() };
        let mut client = Client::<Echo>::with_config(&run_dir, config);
        let state = settled(&mut client);
        let told = match line.as_str() {
            "call" | "call-trusting" if state == State::Ready => {
                format!("{:?}", client.call(&b"hello".to_vec()))
            }
            _ => format!("{state:?}"),
        };
        parent.tell(&told);
    }
}

/// Tells what comes of each try to take the name, and keeps it until it is told to let go.
fn serve(mut parent: Parent, admitted: &[u32]) {
    let run_dir = RunDir::from_environment();
    let mut server = None;
    parent.tell("ready");
    while let Some(line) = parent.hear() {
        let told = match line.as_str() {
            "serve" => match start_admitting(&run_dir, admitted) {
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
        parent.tell(&told);
    }
}

/// Serves; or the sentence that an operator reads.
fn start(run_dir: &RunDir) -> Result<Server, String> {
    start_admitting(run_dir, &[])
}

fn start_admitting(run_dir: &RunDir, admitted: &[u32]) -> Result<Server, String> {
    let config = ServerConfig { admitted: users(admitted), ..ServerConfig::default() };
    let mut builder = Server::builder_with(run_dir, config);
    builder.serve::<Echo>(echo).map_err(|error| error.to_string())?;
    builder.start().map_err(|error| error.to_string())
}

fn users(uids: &[u32]) -> Vec<User> {
    uids.iter().copied().map(User::from).collect()
}

/// What a client's try to connect comes to.
fn settled(client: &mut Client<Echo>) -> State {
    let mut state = client.refresh();
    until("it is let in or not", || {
        if state == State::Connecting {
            state = client.refresh();
        }
        state != State::Connecting
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
fn says(told: &str, parts: &[&str]) {
    for part in parts {
        assert!(told.contains(part), "{told:?} lacks {part:?}");
    }
}
