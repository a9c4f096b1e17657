#![allow(unsafe_code, reason = "an impostor makes a pipe by hand")]

use std::os::windows::io::{AsHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use bellwire_win::doorbell::Event;
use bellwire_win::endpoint::{self, BindError, ConnectError, Endpoint, Liveness, RunDirError};
use bellwire_win::pass::ReceiveError;
use bellwire_win::peer::Sid;
use bellwire_win::prelude::*;
use bellwire_win::{clock, poll};
use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_FIRST_PIPE_INSTANCE, PIPE_ACCESS_DUPLEX};
use windows_sys::Win32::System::IO::OVERLAPPED;
use windows_sys::Win32::System::Pipes::{CreateNamedPipeW, PIPE_TYPE_MESSAGE};

use crate::child;
use crate::support::{
    accept, bind, connect, connect_when_there, is_ready, ready, receive, service, test_deadline,
    try_bind,
};

#[test]
fn a_client_and_a_server_talk() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "echo");
    assert!(endpoint.accept().unwrap().is_none());
    assert!(!is_ready(endpoint.as_handle()));
    let client = connect(dir.path(), "echo");
    let server = accept(&endpoint);
    client.send(b"hello", &[]).unwrap();
    assert_eq!(receive(&server).unwrap().0, b"hello");
    server.send(b"welcome", &[]).unwrap();
    assert_eq!(receive(&client).unwrap().0, b"welcome");
    assert_eq!(endpoint.service(), service("echo"));
    assert!(endpoint.pipe().starts_with(r"\\.\pipe\bellwire-"), "{}", endpoint.pipe());
}

#[test]
fn two_servers_never_both_own_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "one");
    let error = try_bind(dir.path(), "one").expect_err("it is taken");
    assert!(matches!(error, BindError::Taken { .. }), "{error}");
    let _other = bind(dir.path(), "two");
    drop(endpoint);
    let _again = bind(dir.path(), "one");
}

#[test]
fn one_of_many_concurrent_servers_binds_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let bound: Vec<_> = std::thread::scope(|scope| {
        let bind = || try_bind(dir.path(), "race");
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(bind)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1);
}

#[test]
fn a_pipe_that_another_process_created_first_is_not_shared() {
    let dir = tempfile::tempdir().unwrap();
    // Without the lock, which is what an impostor has not: the pipe's first instance alone keeps it apart.
    let pipe = endpoint::pipe_name(dir.path(), service("mine")).unwrap();
    let squatter = raw_instance(&pipe).expect("the first instance");
    if raw_instance(&pipe).is_some() {
        eprintln!("skipped: this system ignores FILE_FLAG_FIRST_PIPE_INSTANCE");
        return;
    }
    let error = try_bind(dir.path(), "mine").unwrap_err();
    assert!(matches!(error, BindError::Squatted { .. }), "{error}");
    drop(squatter);
    let _endpoint = bind(dir.path(), "mine");
}

#[test]
fn one_directory_has_one_name() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(dir.path().join("x")).unwrap();
    let name = |path: &Path| endpoint::pipe_name(path, service("same")).unwrap();
    assert_eq!(name(&dir.path().join("x").join("..")), name(dir.path()));
    assert_ne!(name(other.path()), name(dir.path()));
}

/// The first instance of a pipe, made by hand; `None` when there is one.
fn raw_instance(pipe: &str) -> Option<OwnedHandle> {
    let name: Vec<u16> = pipe.encode_utf16().chain([0]).collect();
    let mode = PIPE_ACCESS_DUPLEX | FILE_FLAG_FIRST_PIPE_INSTANCE;
    // SAFETY: the name ends with a zero and lives until the call is over.
    let handle = unsafe {
        CreateNamedPipeW(name.as_ptr(), mode, PIPE_TYPE_MESSAGE, 8, 0, 0, 0, ptr::null())
    };
    // SAFETY: made just now; nobody else knows it.
    (handle != INVALID_HANDLE_VALUE).then(|| unsafe { OwnedHandle::from_raw_handle(handle) })
}

#[test]
fn run_directories_are_apart() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _one = bind(here.path(), "same");
    let _two = bind(there.path(), "same");
}

#[test]
fn a_service_without_a_server_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("missing")] {
        let error = Endpoint::connect(&path, service("none"), &[], test_deadline()).unwrap_err();
        assert!(matches!(error, ConnectError::Absent { .. }), "{error}");
    }
    let endpoint = bind(dir.path(), "gone");
    drop(endpoint);
    let error = Endpoint::connect(dir.path(), service("gone"), &[], test_deadline()).unwrap_err();
    assert!(matches!(error, ConnectError::Absent { .. }), "{error}");
}

#[test]
fn a_stop_ends_a_wait_for_clients_without_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "idle");
    let stop = Event::create().unwrap();
    std::thread::scope(|scope| {
        let handles = [endpoint.as_handle(), stop.as_handle()];
        let waiter = scope.spawn(move || poll::wait(&handles, test_deadline()));
        stop.ring();
        assert_eq!(waiter.join().unwrap(), Ok(Some(1)));
    });
    assert!(endpoint.accept().unwrap().is_none());
    let until = clock::now().after(Duration::from_millis(5));
    assert_eq!(
        poll::wait(&[endpoint.as_handle()], Some(until)),
        Ok(None),
        "and so does a deadline"
    );
}

#[test]
fn every_one_of_many_clients_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "many");
    std::thread::scope(|scope| {
        for number in 0..24_u8 {
            let dir = dir.path();
            scope.spawn(move || {
                let client = connect(dir, "many");
                client.send(&[number], &[]).unwrap();
                assert_eq!(receive(&client).unwrap().0, [number]);
            });
        }
        for _ in 0..24 {
            let server = accept(&endpoint);
            let (bytes, _) = receive(&server).unwrap();
            server.send(&bytes, &[]).unwrap();
            // What was sent before a close still arrives.
        }
    });
}

#[test]
fn an_endpoint_stays_ready_until_the_last_client_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "two");
    let _clients = [connect(dir.path(), "two"), connect(dir.path(), "two")];
    for left in [1, 0] {
        assert!(ready(endpoint.as_handle()));
        assert!(endpoint.accept().unwrap().is_some());
        assert_eq!(is_ready(endpoint.as_handle()), left > 0);
    }
    assert!(endpoint.accept().unwrap().is_none());
}

#[test]
fn an_endpoint_is_ready_for_clients_that_came_while_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..100 {
        std::thread::scope(|scope| {
            let early = scope.spawn(|| connect_when_there(dir.path(), "early"));
            let endpoint = bind(dir.path(), "early");
            let _client = early.join().unwrap();
            assert!(ready(endpoint.as_handle()));
        });
    }
}

#[test]
fn a_full_backlog_is_busy_at_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let _endpoint = bind(dir.path(), "full");
    let mut waiting = Vec::new();
    let error = loop {
        let soon = Some(clock::now().after(Duration::from_millis(20)));
        match Endpoint::connect(dir.path(), service("full"), &[], soon) {
            Ok(channel) => waiting.push(channel),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100);
    };
    assert!(matches!(error, ConnectError::Busy { .. }), "{error}");
    assert!(!waiting.is_empty());
}

#[test]
fn clients_that_left_before_they_were_accepted_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "hasty");
    for _ in 0..10 {
        drop(connect(dir.path(), "hasty"));
        while let Some(channel) = endpoint.accept().unwrap() {
            assert_eq!(receive(&channel).map(|_| ()), Err(ReceiveError::Closed));
        }
    }
    let client = connect(dir.path(), "hasty");
    let server = accept(&endpoint);
    client.send(b"x", &[]).unwrap();
    assert_eq!(receive(&server).unwrap().0, b"x");
}

#[test]
fn users_are_admitted_by_identifier() {
    let dir = tempfile::tempdir().unwrap();
    let users = [Sid::local_system(), Sid::administrators()];
    let admission = bellwire_win::admission::Admission::Users(users.to_vec());
    let _endpoint =
        Endpoint::reserve(dir.path(), service("listed"), &admission, false, None).unwrap();
    let _client = connect(dir.path(), "listed");
}

#[test]
fn a_run_directory_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = try_bind(&file, "x").unwrap_err();
    assert!(matches!(error, BindError::RunDir(RunDirError::NotADirectory { .. })), "{error}");
    let made = dir.path().join("made");
    let _endpoint = bind(&made, "x");
    assert!(made.is_dir());
}

#[test]
fn endpoints_are_listed_with_their_serving_process() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "served");
    std::fs::write(endpoint::lock_path(dir.path(), service("left")), "7\n").unwrap();
    std::fs::write(dir.path().join("Other.lock"), "").unwrap();
    let found = Endpoint::list(dir.path()).unwrap();
    let found: Vec<_> = found.iter().map(|found| (found.service, found.liveness)).collect();
    let alive = Liveness::Alive(Some(std::process::id()));
    assert_eq!(found, [(service("left"), Liveness::Stale), (service("served"), alive)]);
    drop(endpoint);
    assert!(!endpoint::lock_path(dir.path(), service("served")).exists(), "nothing is left behind");
}

#[test]
fn a_server_that_is_killed_leaves_nothing_in_its_successors_way() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = child::start("endpoint::body_serves", dir.path());
    let client = connect_when_there(dir.path(), "mortal");
    let error = try_bind(dir.path(), "mortal").unwrap_err();
    assert!(matches!(error, BindError::Taken { .. }), "{error}");
    server.kill();
    server.wait();
    assert_eq!(receive(&client).map(|_| ()), Err(ReceiveError::Closed));
    assert!(!endpoint::lock_path(dir.path(), service("mortal")).exists());
    drop(client);
    let _successor = bind(dir.path(), "mortal");
}

#[test]
fn body_serves() {
    let Some(dir) = child::run_dir() else { return };
    let endpoint = bind(&dir, "mortal");
    let _server = accept(&endpoint);
    child::wait_to_be_killed();
}

/// Whoever waits for connections has the system write to memory when the wait ends, and that may be told late to the
/// thread that began it.
#[test]
fn nothing_is_written_to_memory_that_an_endpoint_has_freed() {
    const CANARY: [u64; 4] = [0x5555_5555_5555_5555; size_of::<OVERLAPPED>() / size_of::<u64>()];
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..50 {
        let endpoint = bind(dir.path(), "elsewhere");
        let elsewhere = std::thread::spawn(move || {
            drop(endpoint);
            // They lie where what was freed has lain.
            (0..64).map(|_| Box::new(CANARY)).collect::<Vec<_>>()
        });
        assert!(elsewhere.join().unwrap().iter().all(|canary| **canary == CANARY));
    }
}
