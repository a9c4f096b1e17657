//! The program as its users have it.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::process::Command;

use bellwire_hostile::attacks::{ATTACKS, named};

#[test]
fn each_attack_is_listed_and_found_by_its_name() {
    let program = env!("CARGO_BIN_EXE_bellwire-hostile");
    let output = Command::new(program).arg("list").output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    for attack in &ATTACKS {
        assert!(named(attack.name).is_some_and(|found| std::ptr::eq(found, attack)));
        assert!(listed.lines().any(|line| line.starts_with(attack.name)), "{listed}");
    }
}
