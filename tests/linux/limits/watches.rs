//! A user without inotify instances.

use std::fs;

use bellwire::{Client, RunDir};

use crate::errors::system_error;
use crate::support::child::Parent;
use crate::support::guard::TEST_TIMEOUT;
use crate::support::kernel::{can_unshare, start_unshared};
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

/// Waits for a provider in a user namespace that may have no instance.
pub(super) fn play(mut parent: Parent) {
    fs::write("/proc/sys/user/max_inotify_instances", "0").unwrap();
    let mut client = Client::<Echo>::with_config(&RunDir::from_environment(), client_config());
    parent.send_line("ready");
    let _ = parent.next_line();
    let error = client.wait_available(TEST_TIMEOUT).unwrap_err();
    assert_eq!(system_error(&error).1, libc::EMFILE);
    parent.send_line(&error.to_string());
}

#[test]
fn a_wait_without_an_inotify_instance_names_the_limit_to_raise() {
    if !can_unshare() {
        return;
    }
    let dir = Dir::new();
    let options = ["--user", "--map-root-user"];
    let reply = start_unshared(&options, "limits watches", &dir.run_dir).ask("wait");
    assert!(reply.contains("raise fs.inotify.max_user_instances"), "{reply}");
}
