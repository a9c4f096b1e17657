//! A run dir that is full.

use std::process::Command;

use bellwire::{Client, RunDir, Server};

use crate::support::child::Parent;
use crate::support::kernel::start_unshared;
use crate::support::services::{Echo, echo};
use crate::support::test_server::{Dir, client_config};

/// Mounts a small file system over the run dir, in its own mount namespace, and serves there.
pub(super) fn play(mut parent: Parent) {
    let run_dir = RunDir::from_environment();
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        let reply = match line.split_once(' ') {
            Some(("mount", options)) => mount(&run_dir, options),
            _ => serve(&run_dir),
        };
        parent.send_line(&reply);
    }
}

fn mount(run_dir: &RunDir, options: &str) -> String {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("mode=0700,{options}"), "none"])
        .arg(run_dir.path())
        .output()
        .expect("mount(8) is there");
    String::from_utf8(mounted.stderr).unwrap().replace('\n', " ")
}

/// Serves and is called, once.
fn serve(run_dir: &RunDir) -> String {
    let mut builder = Server::builder(run_dir);
    if let Err(error) = builder.serve::<Echo>(echo) {
        return error.to_string();
    }
    let server = builder.start().unwrap();
    let answer = Client::<Echo>::with_config(run_dir, client_config()).call(&vec![1]).unwrap();
    server.stop();
    format!("{answer:?}")
}

#[test]
fn a_full_run_dir_is_reported_and_one_with_room_is_served_in() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: it takes root to mount a file system");
        return;
    }
    let dir = Dir::new();
    let mut server = start_unshared(&["--mount"], "limits run-dir", &dir.run_dir);
    // For the directory itself and nothing; for the lock and no socket; for both.
    for (inodes, expected) in [(1, "No space left"), (2, "No space left"), (3, "[1]")] {
        let mounted = server.ask(&format!("mount nr_inodes={inodes}"));
        assert_eq!(mounted, "", "a file system cannot be mounted here");
        let reply = server.ask("serve");
        assert!(reply.contains(expected), "{inodes} inodes: {reply}");
        if inodes < 3 {
            assert!(reply.contains("echo"), "it does not say where: {reply}");
        }
    }
}
