//! Whom each admission admits, by the modes that it sets on the socket and the run dir, and that a restart does not
//! change that.

use std::os::unix::fs::MetadataExt;

use bellwire::RunDir;
use tempfile::TempDir;

use super::{is_root, says, set_mode};
use crate::support::child::Process;

/// The provider's user, in a group besides its own.
const PROVIDER: &str = "as=2001/2001/3001";
/// A user of that group and others; one whose own group it is; one of neither.
const MEMBER: &str = "as=2002/2002/3000/3001";
const OWN_GROUP: &str = "as=2003/3001";
const STRANGER: &str = "as=2004/2004";

/// A directory in which the provider makes the run dir.
fn provider_dir() -> (TempDir, RunDir) {
    let dir = TempDir::new().unwrap();
    set_mode(dir.path(), 0o755);
    std::os::unix::fs::chown(dir.path(), Some(2001), Some(2001)).unwrap();
    let run_dir = RunDir::new(dir.path().join("run"));
    (dir, run_dir)
}

fn server(run_dir: &RunDir, mode: &str) -> Process {
    let mut server = Process::start(&format!("admission server {PROVIDER} admit={mode}"), run_dir);
    assert_eq!(server.ask("serve"), "serving", "{mode}");
    server
}

fn call_as(run_dir: &RunDir, who: &str) -> String {
    Process::start(&format!("admission client {who} trust=2001"), run_dir).ask("call")
}

/// Mode, owner and group.
fn rights(run_dir: &RunDir, name: &str) -> (u32, u32, u32) {
    let stat = std::fs::symlink_metadata(run_dir.path().join(name)).unwrap();
    (stat.mode() & 0o7777, stat.uid(), stat.gid())
}

/// The result for each of the five, for each start of the provider: after a stop, and after a kill.
#[track_caller]
fn admits(mode: &str, socket: (u32, u32), dir: (u32, u32), others: [&str; 3]) {
    if !is_root() {
        return;
    }
    let (_dir, run_dir) = provider_dir();
    let clients = ["as=2001/2001", "as=0/0", MEMBER, OWN_GROUP, STRANGER];
    let expected = [&["Ok(", "Ok("], &others[..]].concat();
    let check = |run_dir: &RunDir| {
        assert_eq!(rights(run_dir, "echo.sock"), (socket.0, 2001, socket.1), "{mode}");
        assert_eq!(rights(run_dir, "."), (dir.0, 2001, dir.1), "{mode}");
        for (client, expected) in clients.iter().zip(&expected) {
            let call_as = call_as(run_dir, client);
            assert!(call_as.contains(expected), "{mode}, {client}: {call_as}");
        }
    };
    let mut first = server(&run_dir, mode);
    check(&run_dir);
    assert_eq!(first.ask("stop"), "stopped");
    assert_eq!(first.ask("serve"), "serving");
    check(&run_dir);
    first.kill();
    let _second = server(&run_dir, mode);
    check(&run_dir);
}

#[test]
fn the_same_user_alone() {
    let kept_off = "uid 2002 may not connect to";
    let others = [kept_off, "uid 2003 may not connect to", "uid 2004 may not connect to"];
    admits("same-user", (0o600, 2001), (0o700, 2001), others);
}

#[test]
fn a_group_by_either_kind_of_membership() {
    let others = ["Ok(", "Ok(", "uid 2004 may not connect to"];
    admits("group:3001", (0o660, 3001), (0o750, 3001), others);
}

#[test]
fn the_users_that_are_listed() {
    let others = ["Ok(", "uid 2003 is not admitted", "it admits uid 2002 besides"];
    admits("user:2002", (0o666, 2001), (0o755, 2001), others);
}

#[test]
fn any_user() {
    admits("any", (0o666, 2001), (0o755, 2001), ["Ok(", "Ok(", "Ok("]);
}

/// File modes are the first barrier, but admission does not rely on them.
#[test]
fn a_user_outside_the_group_is_refused_though_the_files_are_accessible() {
    if !is_root() {
        return;
    }
    let (_dir, run_dir) = provider_dir();
    let _server = server(&run_dir, "group:3001");
    set_mode(run_dir.path(), 0o755);
    set_mode(&run_dir.path().join("echo.sock"), 0o666);
    let refused = call_as(&run_dir, STRANGER);
    says(&refused, &["Credentials", "uid 2004 is not admitted", "run the client as uid 2001"]);
    says(&refused, &["it admits members of gid 3001 besides"]);
    says(&call_as(&run_dir, MEMBER), &["Ok("]);
}

/// The run dir existed before: its owner's modes stay, and a provider that no client could reach does not start.
#[test]
fn a_run_dir_that_admitted_users_cannot_enter_is_an_error_with_advice() {
    if !is_root() {
        return;
    }
    let (_dir, run_dir) = provider_dir();
    let mut closed = server(&run_dir, "same-user");
    assert_eq!(closed.ask("stop"), "stopped");
    for mode in ["group:3001", "user:2002", "any"] {
        let mut server =
            Process::start(&format!("admission server {PROVIDER} admit={mode}"), &run_dir);
        says(
            &server.ask("serve"),
            &["mode 0700 and group 2001", "chmod o+x, or chgrp and chmod g+x"],
        );
    }
    // A group's, with its group kept for new files, or sticky: as systemd and tmpfiles make them.
    for mode in [0o2750, 0o3770, 0o1771] {
        std::os::unix::fs::chown(run_dir.path(), Some(2001), Some(3001)).unwrap();
        set_mode(run_dir.path(), mode);
        let _server = server(&run_dir, "group:3001");
        assert_eq!(rights(&run_dir, "echo.sock"), (0o660, 2001, 3001), "{mode:o}");
        says(&call_as(&run_dir, MEMBER), &["Ok("]);
    }
}

#[test]
fn a_group_without_the_provider_is_an_error_with_advice() {
    if !is_root() {
        return;
    }
    let (_dir, run_dir) = provider_dir();
    for _ in 0..2 {
        let role = format!("admission server {PROVIDER} admit=group:3002");
        let mut server = Process::start(&role, &run_dir);
        let error = server.ask("serve");
        says(&error, &["to gid 3002: run as root, or as a member of that group"]);
    }
}
