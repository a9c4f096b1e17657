use std::fs;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;

use bellwire_memfd::endpoint::{
    BindError, ConnectError, Endpoint, Liveness, RunDirError, connect, list, lock_path,
    prepare_run_dir, socket_path,
};
use bellwire_memfd::pass::{self, SendError};
use bellwire_memfd::peer::User;
use bellwire_memfd::poll;
use bellwire_memfd::prelude::*;
use rustix::io::Errno;

use crate::child;
use crate::support::{service, test_deadline};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn umask() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find(|line| line.starts_with("Umask:")).unwrap().to_owned()
}

#[test]
fn an_endpoint_is_for_its_user_alone_and_leaves_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let before = umask();
    let endpoint = Endpoint::bind(dir.path(), service("a")).unwrap();
    assert_eq!(mode(endpoint.path()), 0o600);
    assert_eq!(mode(&lock_path(dir.path(), service("a"))), 0o600);
    assert_eq!(umask(), before);
}

#[test]
fn a_client_that_connects_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::bind(dir.path(), service("a")).unwrap();
    assert!(endpoint.accept().unwrap().is_none());
    let client = connect(dir.path(), service("a")).unwrap();
    assert!(poll::wait_readable(&[endpoint.as_fd()], test_deadline()).unwrap().any());
    let server = endpoint.accept().unwrap().unwrap();
    for fd in [&client, &server] {
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(rustix::fs::fcntl_getfl(fd).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    }
}

#[test]
fn a_client_passes_descriptors_once_its_connection_accepts_them() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::bind(dir.path(), service("a")).unwrap();
    let client = connect(dir.path(), service("a")).unwrap();
    if let Err(error) = pass::set_passrights(client.as_fd(), true) {
        return eprintln!("skipped: this kernel has no SO_PASSRIGHTS ({error}), Linux 6.16 has it");
    }
    let send = || pass::send(client.as_fd(), b"fd", &[client.as_fd()]);
    let refused = Err(SendError::System { source: Errno::PERM });
    assert_eq!(send(), refused, "before accept");
    let server = endpoint.accept().unwrap().unwrap();
    assert_eq!(send(), refused, "after accept");
    server.accept_objects();
    send().unwrap();
    assert_eq!(server.receive(&mut [0; 2], 1).unwrap().count(), 1);
}

#[test]
fn two_binders_make_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..50 {
        let barrier = Barrier::new(4);
        let owners: Vec<_> = std::thread::scope(|scope| {
            let bind = || {
                barrier.wait();
                Endpoint::bind(dir.path(), service("a"))
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(owners.iter().filter(|owner| owner.is_ok()).count(), 1);
        for refused in owners.iter().filter_map(|owner| owner.as_ref().err()) {
            assert!(matches!(refused, BindError::Taken { .. }), "{refused}");
        }
        assert!(connect(dir.path(), service("a")).is_ok());
    }
}

#[test]
fn a_name_that_is_not_served_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let absent = |error| matches!(error, ConnectError::Absent { .. });
    assert!(absent(connect(dir.path(), service("a")).unwrap_err()));
    let missing = dir.path().join("missing");
    assert!(absent(connect(&missing, service("a")).unwrap_err()));
    let endpoint = Endpoint::bind(dir.path(), service("a")).unwrap();
    let path = endpoint.path().to_owned();
    drop(endpoint);
    assert!(!path.exists(), "its socket goes with it");
    assert!(absent(connect(dir.path(), service("a")).unwrap_err()));
}

#[test]
fn the_socket_of_a_killed_process_is_stale_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let ready = Endpoint::bind(dir.path(), service("ready")).unwrap();
    let mut child = child::start("endpoint::body_that_serves", dir.path());
    assert!(poll::wait_readable(&[ready.as_fd()], test_deadline()).unwrap().any());
    let find = || {
        let all = list(dir.path()).unwrap();
        all.into_iter().find(|endpoint| endpoint.service == service("crash")).unwrap()
    };
    assert_eq!(find().liveness, Liveness::Alive(Some(child.id())));
    let error = Endpoint::bind(dir.path(), service("crash")).unwrap_err();
    assert!(matches!(error, BindError::Taken { .. }), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(find().liveness, Liveness::Stale);
    let error = connect(dir.path(), service("crash")).unwrap_err();
    assert!(matches!(error, ConnectError::Absent { .. }), "{error}");
    let _successor = Endpoint::bind(dir.path(), service("crash")).unwrap();
    assert_eq!(find().liveness, Liveness::Alive(Some(std::process::id())));
    assert!(connect(dir.path(), service("crash")).is_ok());
}

#[test]
fn body_that_serves() {
    let Some(dir) = child::run_dir() else { return };
    let _endpoint = Endpoint::bind(&dir, service("crash")).unwrap();
    let _ready = connect(&dir, service("ready")).unwrap();
    child::wait_to_be_killed();
}

#[test]
fn a_symbolic_link_is_neither_followed_nor_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let real = Endpoint::bind(dir.path(), service("real")).unwrap();
    let link = socket_path(dir.path(), service("link"));
    symlink(real.path(), &link).unwrap();
    let error = connect(dir.path(), service("link")).unwrap_err();
    assert!(matches!(error, ConnectError::NotASocket { .. }), "{error}");
    let error = Endpoint::bind(dir.path(), service("link")).unwrap_err();
    assert!(matches!(error, BindError::Squatted { .. }), "{error}");
    let target = dir.path().join("target");
    fs::write(&target, "").unwrap();
    symlink(&target, lock_path(dir.path(), service("other"))).unwrap();
    let error = Endpoint::bind(dir.path(), service("other")).unwrap_err();
    assert!(matches!(error, BindError::LockSquatted { .. }), "{error}");
    let linked = dir.path().join("linked");
    symlink(dir.path(), &linked).unwrap();
    let error = prepare_run_dir(&linked).unwrap_err();
    assert!(matches!(error, RunDirError::NotADirectory { .. }), "{error}");
}

#[test]
fn another_kind_of_file_is_not_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(socket_path(dir.path(), service("file")), "precious").unwrap();
    let error = connect(dir.path(), service("file")).unwrap_err();
    assert!(matches!(error, ConnectError::NotASocket { .. }), "{error}");
    let error = Endpoint::bind(dir.path(), service("file")).unwrap_err();
    assert!(matches!(error, BindError::Squatted { .. }), "{error}");
    let kept = fs::read(socket_path(dir.path(), service("file"))).unwrap();
    assert_eq!(kept, b"precious");
    let _stream = UnixListener::bind(socket_path(dir.path(), service("stream"))).unwrap();
    let error = connect(dir.path(), service("stream")).unwrap_err();
    assert!(matches!(error, ConnectError::NotASocket { .. }), "{error}");
}

#[test]
fn a_run_directory_is_made_for_its_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    prepare_run_dir(&run).unwrap();
    assert_eq!(mode(&run), 0o700);
    prepare_run_dir(&run).unwrap();
    for bad in [0o770, 0o707, 0o777, 0o722] {
        set_mode(&run, bad);
        let error = prepare_run_dir(&run).unwrap_err();
        assert!(matches!(error, RunDirError::WritableByOthers { mode, .. } if mode == bad));
    }
    for good in [0o755, 0o1777, 0o750] {
        set_mode(&run, good);
        prepare_run_dir(&run).unwrap();
    }
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(prepare_run_dir(&file), Err(RunDirError::NotADirectory { .. })));
    let orphan = dir.path().join("no/parent");
    assert!(matches!(prepare_run_dir(&orphan), Err(RunDirError::System { .. })));
}

#[test]
fn an_endpoint_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    const NOBODY: u32 = 65534;
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::bind(dir.path(), service("a")).unwrap();
    std::os::unix::fs::chown(endpoint.path(), Some(NOBODY), None).unwrap();
    let error = connect(dir.path(), service("a")).unwrap_err();
    assert!(
        matches!(error, ConnectError::Squatted { owner, .. } if owner.uid() == NOBODY),
        "{error}"
    );
    let trusting = bellwire_memfd::endpoint::connect_trusting(
        dir.path(),
        service("a"),
        &[NOBODY.into()],
        None,
    );
    assert!(trusting.is_ok());
    let owner = fs::symlink_metadata(endpoint.path()).unwrap().uid();
    assert_eq!(owner, NOBODY);
    let run = dir.path().join("run");
    prepare_run_dir(&run).unwrap();
    std::os::unix::fs::chown(&run, Some(NOBODY), None).unwrap();
    let error = prepare_run_dir(&run).unwrap_err();
    assert!(matches!(error, RunDirError::ForeignOwner { owner: NOBODY, .. }), "{error}");
}

#[test]
fn a_path_too_long_for_an_address_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(100));
    let error = Endpoint::bind(&deep, service("a")).unwrap_err();
    assert!(matches!(error, BindError::PathTooLong { .. }), "{error}");
    let error = connect(&deep, service("a")).unwrap_err();
    assert!(matches!(error, ConnectError::PathTooLong { .. }), "{error}");
}

#[test]
fn a_full_backlog_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let _endpoint = Endpoint::bind(dir.path(), service("a")).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match connect(dir.path(), service("a")) {
            Ok(connection) => waiting.push(connection),
            Err(error) => break error,
        }
        assert!(waiting.len() < 10_000);
    };
    let limited = matches!(&error, ConnectError::System { source, .. } if *source == Errno::MFILE);
    assert!(limited || matches!(error, ConnectError::Busy { .. }), "{error}");
}

/// Neither has a held lock; on one of them a process listens.
#[test]
fn a_live_squatter_is_distinguished_from_a_stale_socket() {
    let dir = tempfile::tempdir().unwrap();
    let states = || {
        let listed = list(dir.path()).unwrap();
        listed.into_iter().map(|endpoint| endpoint.liveness).collect::<Vec<_>>()
    };
    let squatter = UnixListener::bind(socket_path(dir.path(), service("a"))).unwrap();
    drop(UnixListener::bind(socket_path(dir.path(), service("b"))).unwrap());
    assert_eq!(states(), [Liveness::Squatted, Liveness::Stale]);
    drop(squatter);
    assert_eq!(states(), [Liveness::Stale, Liveness::Stale]);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped in part: only root can give files away");
        return;
    }
    // The holder of the lock is not the owner of the socket.
    let endpoint = Endpoint::bind(dir.path(), service("a")).unwrap();
    assert_eq!(states()[0], Liveness::Alive(Some(std::process::id())));
    std::os::unix::fs::chown(endpoint.path(), Some(65534), None).unwrap();
    assert_eq!(states()[0], Liveness::Squatted);
}

/// A stand-in has systemd's name and keeps the socket open, as systemd does while its unit is idle.
#[test]
fn a_socket_of_systemd_is_listed_as_activated_without_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    let systemd = dir.path().join("systemd");
    symlink("/bin/sh", &systemd).unwrap();
    let listener = UnixListener::bind(socket_path(dir.path(), service("a"))).unwrap();
    listener.set_nonblocking(true).unwrap();
    let state = || list(dir.path()).unwrap()[0].liveness;
    let mut command = Command::new(systemd);
    command.arg0("sh").args(["-c", "echo >&2; read line"]).stdin(Stdio::piped());
    let socket = OwnedFd::from(listener.try_clone().unwrap());
    let mut manager = command.stdout(socket).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    assert_eq!(manager.stderr.take().unwrap().read(&mut [0]).unwrap(), 1);
    assert_eq!(state(), Liveness::Activated);
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // Whoever binds a socket of another user can take systemd's name, too.
    if rustix::process::geteuid().is_root() {
        let path = socket_path(dir.path(), service("a"));
        std::os::unix::fs::chown(path, Some(65534), None).unwrap();
        assert_eq!(state(), Liveness::Squatted);
    }
    drop(manager.stdin.take());
    manager.wait().unwrap();
    assert_eq!(state(), Liveness::Squatted);
}

#[test]
fn a_dropped_endpoint_does_not_remove_its_successors_socket() {
    let dir = tempfile::tempdir().unwrap();
    let first = Endpoint::bind(dir.path(), service("a")).unwrap();
    // Both files are removed by hand: the name is free again.
    fs::remove_file(first.path()).unwrap();
    fs::remove_file(lock_path(dir.path(), service("a"))).unwrap();
    let second = Endpoint::bind(dir.path(), service("a")).unwrap();
    drop(first);
    assert!(second.path().exists());
    assert!(connect(dir.path(), service("a")).is_ok());
}

#[test]
fn a_list_has_services_and_files_named_like_one() {
    let dir = tempfile::tempdir().unwrap();
    let _b = Endpoint::bind(dir.path(), service("b")).unwrap();
    let _a = Endpoint::bind(dir.path(), service("a")).unwrap();
    fs::write(dir.path().join("NOT-A-NAME.sock"), "").unwrap();
    fs::write(dir.path().join("file.sock"), "").unwrap();
    let endpoints = list(dir.path()).unwrap();
    let names: Vec<_> = endpoints.iter().map(|endpoint| endpoint.service.as_str()).collect();
    assert_eq!(names, ["a", "b", "file"]);
    assert_eq!(endpoints[2].liveness, Liveness::Squatted);
    for endpoint in &endpoints[..2] {
        assert_eq!(endpoint.mode, Some(0o600));
        assert!(endpoint.owner.is_some_and(User::is_own));
        assert_eq!(endpoint.liveness, Liveness::Alive(Some(std::process::id())));
    }
    assert!(list(&dir.path().join("missing")).is_err());
}
