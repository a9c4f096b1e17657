use std::fs;

use crate::support::{Ended, Place, bellwire};

const COMMANDS: [&str; 12] = [
    "demo",
    "provide",
    "get",
    "watch",
    "call",
    "ping",
    "ls",
    "stat",
    "top",
    "export",
    "doctor",
    "completions",
];

#[test]
fn every_command_has_help_with_examples() {
    let all = Ended::of(bellwire().arg("--help"));
    assert_eq!(all.status, Some(0));
    for command in COMMANDS {
        assert!(all.stdout.contains(&format!("\n  {command} ")), "{command} is not listed");
        let help = Ended::of(bellwire().args([command, "--help"]));
        assert_eq!(help.status, Some(0), "{command}");
        let example = format!("bellwire {command}");
        let examples = help.stdout.split_once("Examples:").map(|(_, examples)| examples);
        assert!(examples.unwrap_or("").contains(&example), "{}", help.stdout);
        assert!(help.stdout.contains("--run-dir"), "{command}");
    }
    assert!(!all.stdout.contains("demo-provider"), "hidden commands are shown");
}

#[test]
fn help_lists_every_exit_code() {
    let help = Ended::of(bellwire().arg("--help")).stdout;
    let codes = help.split_once("Exit codes:").unwrap().1;
    for code in ["0", "1", "2", "3", "4", "5", "6", "7", "130"] {
        assert!(codes.contains(&format!("\n  {code} ")), "{code}");
    }
}

#[test]
fn an_invalid_command_line_exits_with_2_and_the_reason() {
    let place = Place::new();
    for (args, why) in [
        (&["frobnicate"][..], "unrecognized subcommand"),
        (&["provide", "pods"], "possible values: cgroups"),
        (&["get", "No_Name"], "a-z, 0-9"),
        (&["get", "pods", "--watch"], "printed once"),
        (&["ping", "Not_A_Name"], "a-z, 0-9"),
        (&["ping"], "<SERVICE>"),
        (&["provide", "cgroups", "--interval", "0s"], "more than 0"),
        (&["get", "cgroups", "--timeout", "soon"], "250ms"),
        (&["demo", "--seconds", "0"], "1..="),
        (&["get", "cgroups", "--orchestrator", "nobody"], "systemd"),
        (&["export"], "--listen"),
        (&["stat", "--service-version", "3", "--watch"], "cannot be used with"),
    ] {
        let ended = place.run(args);
        assert_eq!(ended.status, Some(2), "{args:?}");
        assert!(ended.stderr.contains(why), "{args:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn every_command_that_is_shown_has_a_manual_page() {
    let place = Place::new();
    let dir = place.temp();
    place.exits(0, &["manual", dir.to_str().unwrap()]);
    for command in COMMANDS {
        let page = fs::read_to_string(dir.join(format!("bellwire-{command}.1"))).unwrap();
        assert!(page.contains("run\\-dir"), "{page}");
    }
    assert!(fs::read_to_string(dir.join("bellwire.1")).unwrap().contains("Exit codes"));
    assert!(!dir.join("bellwire-demo-provider.1").exists(), "hidden commands have pages");
    place.exits(1, &["manual", dir.join("nowhere").to_str().unwrap()]);
}

#[test]
fn completions_are_printed_for_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Ended::of(bellwire().args(["completions", shell]));
        assert_eq!(script.status, Some(0));
        assert!(script.stdout.contains("bellwire") && script.stdout.contains("run-dir"));
    }
}
