//! User namespaces that do not map every user: those that they do not map look all the same there.

use std::process::Command;

use super::{is_root, says, set_mode};
use crate::support::child::Process;
use crate::support::kernel::start_unshared;
use crate::support::test_server::{Dir, TestServer};

/// Whether unshare(1) makes user namespaces here; says so if not.
fn can_unshare() -> bool {
    let made = Command::new("unshare").args(["--user", "true"]).output();
    let can = made.as_ref().is_ok_and(|made| made.status.success());
    if !can {
        eprintln!("not run: unshare --user does not work here: {made:?}");
    }
    can
}

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
    says(&client.ask("call-trusting"), &["not a provider to trust", "it runs as uid 65534"]);
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
fn one_that_is_not_mapped_is_admitted_where_anybody_is_and_nowhere_else() {
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
