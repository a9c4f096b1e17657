//! Ends in different namespaces, as in containers. User namespaces that do not map every user: those that they do not map look
//! all the same there.

use std::process::Command;

use bellwire::{RunDir, Server};

use super::{is_root, says, set_mode};
use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::kernel::{can_unshare, start_unshared};
use crate::support::roles::parse_stats;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, TestServer};

/// What a container may have of its own besides users.
const NAMESPACES: [&[&str]; 6] = [
    &["--pid", "--fork", "--kill-child"],
    &["--pid", "--fork", "--kill-child", "--mount-proc"],
    &["--net"],
    &["--mount", "--ipc", "--uts", "--cgroup"],
    &["--user", "--map-root-user"],
    &[
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--net",
        "--ipc",
        "--uts",
    ],
];

/// Its own files appear to belong to an unmapped user: it takes no name, since the owner of the run dir could take it
/// away.
#[test]
fn a_server_in_an_unmapped_user_namespace_trusts_no_run_dir() {
    if !can_unshare() {
        return;
    }
    let dir = Dir::new();
    let mut server = start_unshared(&["--user"], "admission server", &dir.run_dir);
    says(&server.ask("serve"), &["belongs to uid 65534", "chown it or name another"]);
}

#[test]
fn a_client_in_an_unmapped_user_namespace_trusts_no_server() {
    if !can_unshare() {
        return;
    }
    let fixture = TestServer::open();
    let mut client = start_unshared(&["--user"], "admission client", fixture.run_dir());
    says(&client.ask("connect"), &["belongs to uid 65534", "remove it, or list that user"]);
    // Not even if configured to trust that uid: it is the overflow uid.
    says(&client.ask("call-trusting"), &["not a trusted provider", "it runs as uid 65534"]);
    assert_eq!(fixture.close().admitted, 0);
}

/// The overflow uid stands for every unmapped user there: listing it admits no one.
#[test]
fn a_user_that_is_not_mapped_is_not_admitted_though_its_number_is() {
    if !can_unshare() || !is_root() {
        return;
    }
    let dir = Dir::new();
    let options = ["--user", "--map-root-user"];
    set_mode(dir.run_dir.path(), 0o711);
    let mut server = start_unshared(&options, "admission server admit=user:65534", &dir.run_dir);
    assert_eq!(server.ask("serve"), "serving");
    let mut good = Process::start("admission client", &dir.run_dir);
    says(&good.ask("call"), &["Ok("]);
    let mut nobody = Process::start("admission client nobody", &dir.run_dir);
    says(&nobody.ask("connect"), &["Refused", "Credentials", "uid 65534 is not admitted"]);
    says(&good.ask("call"), &["Ok("]);
}

/// Nor does its group, whatever the file modes; where any user may reach the socket, the uid is not checked.
#[test]
fn an_unmapped_user_is_admitted_only_where_any_user_is() {
    if !can_unshare() || !is_root() {
        return;
    }
    let dir = Dir::new();
    set_mode(dir.run_dir.path(), 0o711);
    let options = ["--user", "--map-root-user"];
    for (mode, expected) in [("group:0", "Refused"), ("any", "Ok(")] {
        let role = format!("admission server admit={mode}");
        let mut server = start_unshared(&options, &role, &dir.run_dir);
        assert_eq!(server.ask("serve"), "serving");
        set_mode(&dir.run_dir.path().join("echo.sock"), 0o666);
        // In root's group, which is mapped, as a user that is not.
        let mut client = Process::start("admission client as=65533/0", &dir.run_dir);
        says(&client.ask("call"), &[expected]);
        assert_eq!(server.ask("stop"), "stopped");
    }
    // An unmapped group has no gid for chown.
    let role = "admission server admit=group:65534";
    let mut server = start_unshared(&options, role, &dir.run_dir);
    says(&server.ask("serve"), &["echo.sock"]);
}

/// They call each other, and each sees the other die, in a call and between calls.
fn work_together(
    run_dir: &RunDir,
    mut server: Process,
    mut client: Process,
    again: impl FnOnce() -> Process,
) {
    assert_eq!(client.ask("open"), "opened");
    assert_eq!(client.ask("call 100"), "called");
    client.send_line("hold 5");
    assert_eq!(server.next_line(), "came 5");
    server.kill();
    says(&client.next_line(), &["PeerGone"]);
    drop(server);
    // What was killed is unshare(1), whose child the kernel kills after it.
    until("its names are free", || {
        Server::builder(run_dir).serve::<Echo>(|_, bytes| Ok(bytes)).is_ok()
    });
    let mut server = again();
    assert_eq!(client.ask("open"), "opened");
    assert_eq!(parse_stats(&server.ask("stats")).sessions, 1);
    client.kill();
    until("the client's death is seen", || parse_stats(&server.ask("stats")).sessions == 0);
}

/// Runs both in and out of a container, in each combination.
fn in_each_combination(start_inside: impl Fn(&'static str, &RunDir) -> Process) {
    for [server_inside, client_inside] in [[false, true], [true, false], [true, true]] {
        println!("the provider inside: {server_inside}, the client: {client_inside}");
        let dir = Dir::new();
        let start = |role, is_inside| match is_inside {
            true => start_inside(role, &dir.run_dir),
            false => Process::start(role, &dir.run_dir),
        };
        let server = start("server", server_inside);
        let again = || start("server", server_inside);
        work_together(&dir.run_dir, server, start("client", client_inside), again);
    }
}

#[test]
fn ends_in_different_namespaces_call_each_other_and_see_each_other_die() {
    if !is_root() || !can_unshare() {
        return;
    }
    for options in NAMESPACES {
        println!("{options:?}");
        in_each_combination(|role, run_dir| start_unshared(options, role, run_dir));
    }
}

#[test]
fn a_run_dir_that_is_bind_mounted_into_a_container_is_the_same_one() {
    if !is_root() || !can_unshare() {
        return;
    }
    let other = Dir::new();
    in_each_combination(|role, run_dir| {
        let bind = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", bind]).args([run_dir.path(), other.run_dir.path()]);
        command.arg(std::env::current_exe().unwrap());
        Process::start_by(command, role, &other.run_dir)
    });
}
