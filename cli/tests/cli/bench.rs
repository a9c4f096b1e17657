//! `bellwire bench` is `bellwire-bench`, but for what it measures itself.

use std::process::Command;

use crate::support::{Ended, bellwire, has_shell};
use crate::trace::{alone, script};

#[test]
fn the_benchmark_gets_all_arguments_and_its_exit_code_is_kept() {
    if !has_shell() {
        return;
    }
    let (dir, program) = alone();
    let bench = dir.path().join("bellwire-bench");
    script(&bench, "#!/bin/sh\necho \"$@\"\nexit 11\n");
    let ended = Ended::of(Command::new(program).args(["bench", "--quick", "stream", "--help"]));
    assert_eq!(ended.stdout, "--quick stream --help\n");
    assert_eq!(ended.status, Some(11));
}

#[test]
fn without_the_benchmark_it_says_how_to_get_it() {
    // Elsewhere a program may not even start without its search path.
    if !has_shell() {
        return;
    }
    let (dir, program) = alone();
    let ended = Ended::of(Command::new(program).args(["bench", "list"]).env("PATH", dir.path()));
    assert_eq!(ended.status, Some(1));
    assert!(ended.stderr.contains("cargo install --path bench"), "{}", ended.stderr);
}

#[test]
fn what_it_measures_itself_has_its_own_help_and_limits() {
    let help = Ended::of(bellwire().args(["bench", "reactor", "--help"]));
    assert_eq!(help.status, Some(0), "{help:?}");
    assert!(help.stdout.contains("bellwire bench reactor --sessions 100"), "{}", help.stdout);
    let wrong = Ended::of(bellwire().args(["bench", "reactor", "--rounds", "0"]));
    assert_eq!(wrong.status, Some(2), "{wrong:?}");
}
