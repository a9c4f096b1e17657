//! Other files at the endpoint's path.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bellwire::{Client, ErrorKind, ProviderState, RunDir};

use super::{is_root, outcome_of_connect, says, set_mode, start};
use crate::support::services::Echo;
use crate::support::test_server::{Dir, TestServer, client_config};

fn path(run_dir: &RunDir, file: &str) -> PathBuf {
    run_dir.path().join(file)
}

/// Neither end uses the file, and each says what to do. The file is left untouched.
#[track_caller]
fn is_refused(make: impl FnOnce(&RunDir), client: &str, server: &str) {
    let dir = Dir::new();
    make(&dir.run_dir);
    let socket = path(&dir.run_dir, "echo.sock");
    let before = fs::symlink_metadata(&socket).unwrap();
    let mut connecting = Client::<Echo>::with_config(&dir.run_dir, client_config());
    let ProviderState::Failed { kind, reason } = outcome_of_connect(&mut connecting) else {
        panic!("it connects")
    };
    assert_eq!(kind, ErrorKind::Refused, "{reason}");
    says(&reason, &["echo.sock", client]);
    says(&start(&dir.run_dir).unwrap_err(), &["echo.sock", server]);
    let after = fs::symlink_metadata(&socket).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
}

#[test]
fn a_symbolic_link_at_the_endpoint() {
    let fixture = TestServer::open();
    let target = path(fixture.run_dir(), "echo.sock");
    let link = |run_dir: &RunDir| symlink(&target, path(run_dir, "echo.sock")).unwrap();
    is_refused(link, "is not a socket: remove it", "is not this user's socket: remove it");
    let dangling = |run_dir: &RunDir| symlink("/nowhere", path(run_dir, "echo.sock")).unwrap();
    is_refused(dangling, "is not a socket: remove it", "is not this user's socket: remove it");
}

#[test]
fn a_file_at_the_endpoint() {
    let file = |run_dir: &RunDir| fs::write(path(run_dir, "echo.sock"), "precious").unwrap();
    is_refused(file, "is not a socket: remove it", "is not this user's socket: remove it");
}

#[test]
fn a_directory_at_the_endpoint() {
    let make = |run_dir: &RunDir| fs::create_dir(path(run_dir, "echo.sock")).unwrap();
    is_refused(make, "is not a socket: remove it", "is not this user's socket: remove it");
}

#[test]
fn a_pipe_at_the_endpoint() {
    let make = |run_dir: &RunDir| {
        let mode = rustix::fs::Mode::RUSR;
        let path = path(run_dir, "echo.sock");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    is_refused(make, "is not a socket: remove it", "is not this user's socket: remove it");
}

#[test]
fn a_symbolic_link_for_a_lock() {
    let dir = Dir::new();
    let target = dir.run_dir.path().join("target");
    fs::write(&target, "precious").unwrap();
    symlink(&target, path(&dir.run_dir, "echo.lock")).unwrap();
    says(&start(&dir.run_dir).unwrap_err(), &["echo.lock is not this user's lock", "remove it"]);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
}

#[test]
fn a_run_dir_that_others_can_write() {
    for mode in [0o777, 0o770, 0o722] {
        let dir = Dir::new();
        set_mode(dir.run_dir.path(), mode);
        let refused = start(&dir.run_dir).unwrap_err();
        says(&refused, &[&format!("{mode:04o}"), "chmod go-w, or set its sticky bit"]);
        assert!(!path(&dir.run_dir, "echo.sock").exists());
    }
}

#[test]
fn a_run_dir_of_another_user() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    std::os::unix::fs::chown(dir.run_dir.path(), Some(super::NOBODY), None).unwrap();
    let refused = start(&dir.run_dir).unwrap_err();
    says(&refused, &["belongs to uid 65534", "chown it or name another"]);
}

#[test]
fn a_run_dir_that_is_a_symbolic_link_or_a_file() {
    let dir = Dir::new();
    let real = dir.run_dir.path().join("real");
    fs::create_dir(&real).unwrap();
    let link = dir.run_dir.path().join("link");
    symlink(&real, &link).unwrap();
    let file = dir.run_dir.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [link, file] {
        let refused = start(&RunDir::new(&path)).unwrap_err();
        says(&refused, &["is not a directory: remove it or name another run directory"]);
    }
}

#[test]
fn a_run_dir_whose_path_is_too_long() {
    let dir = Dir::new();
    let deep = dir.run_dir.path().join("d".repeat(100));
    let refused = start(&RunDir::new(&deep)).unwrap_err();
    says(&refused, &["at most 107", "use a shorter run directory"]);
}
