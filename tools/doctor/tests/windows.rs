//! The doctor on Windows: what it finds is what the transport's tests rely on.
#![cfg(windows)]
#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts only the functions that are marked as tests"
)]

use std::process::Command;

use bellwire_doctor::{self as doctor, Outcome};
use bellwire_win::peer::own_user;
use bellwire_win::prelude::*;
use bellwire_win::region::{OwnRegion, PeerRegion};
use bellwire_win::snapshot::SnapshotBuilder;

/// A program that ends by itself.
fn ends() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--list");
    command
}

#[test]
fn all_that_is_required_is_here() {
    let dir = tempfile::tempdir().unwrap();
    let checks = doctor::checks(&dir.path().join("run"), &mut ends());
    let required = checks.iter().filter(|check| check.required).count();
    assert!(required >= 12, "{checks:#?}");
    for check in &checks {
        println!("{}: {}, {}", check.name, check.outcome.as_str(), check.detail);
        assert!(!check.is_fatal(), "{check:?}");
        assert_eq!(check.outcome == Outcome::Ok, check.hint.is_none(), "{check:?}");
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "it changes nothing");
}

#[test]
fn a_process_that_does_not_end_is_missed() {
    let mut waits = Command::new("no such program");
    let dir = tempfile::tempdir().unwrap();
    let checks = doctor::checks(dir.path(), &mut waits);
    let check = checks.iter().find(|check| check.name == "end of a process").unwrap();
    assert!(check.is_fatal() && check.hint.is_some(), "{check:?}");
}

#[test]
fn views_count_until_they_are_unmapped() {
    let total = || doctor::shared_memory().unwrap().values().sum::<u64>();
    let before = total();
    let (own, section) = OwnRegion::create("x", 1 << 20, |_| {}).unwrap();
    let peer = PeerRegion::verify_and_map(section, 1 << 20).unwrap();
    assert_eq!(total(), before + (2 << 20));
    drop(own);
    assert_eq!(total(), before + (1 << 20));
    drop(peer);
    assert_eq!(total(), before);
    let snapshot = SnapshotBuilder::create("x", 5 << 20).unwrap().seal().unwrap();
    let map = snapshot.map().unwrap();
    assert!(total() >= before + (5 << 20));
    drop((map, snapshot));
    assert_eq!(total(), before);
}

#[test]
fn this_user_has_an_account_name_and_an_unknown_identifier_has_none() {
    let name = doctor::account(own_user().unwrap()).unwrap();
    assert!(!name.is_empty());
    assert_eq!(doctor::account("S-1-5-21-1-2-3-4".parse().unwrap()), None);
    assert!(doctor::system().starts_with("Windows "), "{}", doctor::system());
}
