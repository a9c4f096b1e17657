//! `bellwire provide --admit`, with a real other user, and users by name.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{Ended, Place, Running, Signal};

/// The command as nobody, who is in no group besides its own; `None` where that cannot be.
pub(crate) fn as_nobody(place: &Place, args: &[&str]) -> Option<Ended> {
    let run = |args: &[&str]| {
        let inner = place.command(args);
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.env("BELLWIRE_RUN_DIR", place.run_dir()).env_remove("BELLWIRE_TOKEN");
        Ended::of(&mut command)
    };
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || run(&["--version"]).status != Some(0) {
        eprintln!("not run: this needs root, setpriv, and a command that nobody may execute");
        return None;
    }
    Some(run(args))
}

fn provider(place: &Place, who: &str) -> Running {
    place.provide(&["cgroups", &place.root_option(), "--admit", who])
}

pub(crate) fn open(place: &Place) {
    let parent = place.run_dir().parent().unwrap().to_owned();
    fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn users_admitted_by_name_or_number_stay_admitted_after_a_kill() {
    // Who may not reach the socket tries for as long as it has time.
    for (who, expected, timeout) in [
        ("same-user", 1, "100ms"),
        ("user:nobody", 0, "9s"),
        ("user:daemon,65534", 0, "9s"),
        ("user:daemon", 4, "9s"),
        ("group:65534", 0, "9s"),
        ("group:0", 1, "100ms"),
        ("any", 0, "9s"),
    ] {
        let place = Place::new();
        open(&place);
        for _ in 0..2 {
            let mut provider = provider(&place, who);
            let get = ["get", "cgroups", "--timeout", timeout];
            let Some(ended) = as_nobody(&place, &get) else { return };
            assert_eq!(ended.status, Some(expected), "{who}: {ended:?}");
            if expected != 0 {
                assert!(ended.stderr.contains("--admit"), "{who}: {ended:?}");
            }
            provider.end_by(Signal::Kill);
        }
    }
}

#[test]
fn a_provider_of_another_user_is_trusted_by_name() {
    let place = Place::new();
    open(&place);
    let _provider = provider(&place, "any");
    // Root's socket, given away: whoever looks at it takes it for nobody's.
    let socket = place.run_dir().join("cgroups-snapshot.sock");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    std::os::unix::fs::chown(&socket, Some(65534), None).unwrap();
    let refused = place.run(&["get", "cgroups", "--timeout", "100ms"]);
    assert!(refused.stderr.contains("belongs to uid 65534"), "{refused:?}");
    for name in ["nobody", "65534"] {
        place.exits(0, &["get", "cgroups", "--timeout", "9s", "--trust", name]);
    }
    // It has the provider's name and is not the lock holder's.
    let listed = place.run(&["ls"]);
    assert!(listed.stdout.contains("squatted"), "{listed:?}");
}

#[test]
fn an_unknown_user_is_a_wrong_command_line() {
    let place = Place::new();
    for args in [
        &["provide", "cgroups", "--admit", "everyone"][..],
        &["provide", "cgroups", "--admit", "user:no-such-user"],
        &["provide", "cgroups", "--admit", "group:no-such-group"],
        &["ls", "--trust", "no-such-user"],
    ] {
        place.exits(2, args);
    }
}
