use std::os::windows::io::AsHandle;

use bellwire_win::peer::{self, Process, ProcessAccess, Sid};
use bellwire_win::prelude::*;

use crate::child;
use crate::support::{accept, bind, channels, connect, is_ready, ready, receive};

#[test]
fn both_ends_know_the_user_and_process_of_their_peer() {
    let (server, client) = channels();
    let own = peer::own_user().unwrap();
    for channel in [&server, &client] {
        let credentials = peer::Credentials::of(channel).unwrap();
        assert_eq!((credentials.pid, &credentials.user), (std::process::id(), &own));
        assert!(credentials.user().is_own() && credentials.is_among(&[]));
    }
    assert_eq!(own.to_string().parse::<Sid>().unwrap(), own);
}

#[test]
fn the_pipe_belongs_to_this_user() {
    let (_server, client) = channels();
    assert_eq!(peer::owner(&client), peer::own_user());
}

#[test]
fn a_client_cannot_claim_another_user() {
    let (server, client) = channels();
    client.send(b"hello", &[]).unwrap();
    receive(&server).unwrap();
    assert_eq!(peer::client_user(&server), peer::own_user());
}

#[test]
fn the_end_of_a_process_is_seen_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = child::start("peer::body_waits", dir.path());
    let process = Process::open(child.pid(), ProcessAccess::Handles).unwrap();
    assert!(!process.has_exited() && !is_ready(process.as_handle()));
    child.kill();
    assert!(ready(process.as_handle()));
    assert!(process.has_exited());
    assert_eq!(process.pid(), child.pid());
}

#[test]
fn body_waits() {
    if child::run_dir().is_some() {
        child::wait_to_be_killed();
    }
}

#[test]
fn a_process_that_is_none_is_an_error() {
    assert!(Process::open(3, ProcessAccess::Watch).is_err());
}

#[test]
fn two_processes_know_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "meet");
    let mut child = child::start("peer::body_meets", dir.path());
    let server = accept(&endpoint);
    let (parent, _) = receive(&server).unwrap();
    assert_eq!(String::from_utf8(parent).unwrap(), std::process::id().to_string());
    let credentials = peer::Credentials::of(&server).unwrap();
    assert_eq!(credentials.pid, child.pid());
    assert!(credentials.user().is_own() && credentials.is_among(&[]));
    server.send(b"close", &[]).unwrap();
    assert!(child.wait());
}

#[test]
fn body_meets() {
    let Some(dir) = child::run_dir() else { return };
    let client = connect(&dir, "meet");
    let server = peer::Credentials::of(&client).unwrap();
    client.send(server.pid.to_string().as_bytes(), &[]).unwrap();
    receive(&client).unwrap();
}
