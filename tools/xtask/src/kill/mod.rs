//! Kill a peer at many points, and then again with injected faults, which must be found.
//!
//! The harness is `bellwire-kill`, in `tools/kill/`. It is built in a copy of the workspace, without the faults
//! ([`faults`]), and then with all of them, of which each run chooses one.

mod faults;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

pub(crate) use self::faults::FAULTS;
use crate::copy;
use crate::error::Error;
use crate::faults::ACTIVE;
use crate::root::target_dir;

/// How to kill.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Victims to kill, the same number for each phase.
    #[arg(long, value_name = "N", default_value_t = 10_240)]
    points: u64,
    /// What the points are drawn from; another one each time by default. It is printed.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Kill at this address only, such as client/write:0:137.
    #[arg(long, value_name = "ADDRESS")]
    only: Option<String>,
    /// Only phases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    phase: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Then inject faults, one at a time: each must be found.
    #[arg(long, conflicts_with_all = ["only", "phase", "json"])]
    faults: bool,
    /// Only the faults whose name contains this, and nothing else.
    #[arg(long, value_name = "TEXT")]
    fault: Option<String>,
}

/// How many points an injected fault gets to show itself.
const POINTS_FOR_A_FAULT: u64 = 10_000;
/// How long a survivor gets to put everything back there, in seconds. One that never does costs twice that.
const TIMEOUT_FOR_A_FAULT: u64 = 4;

/// Kills, and faults if asked; `false` when a survivor failed, or a fault was not found.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let dir = target_dir(root).join("kill");
    fs::create_dir_all(&dir).map_err(Error::file("create", &dir))?;
    // What is the same there already is left alone, so that only what has changed is built again.
    copy::dir(root, &dir)?;
    let only_faults = args.fault.is_some();
    if !only_faults && !kill(&dir, args)? {
        return Ok(false);
    }
    if !args.faults && !only_faults {
        return Ok(true);
    }
    let start = Instant::now();
    FAULTS.inject(root, &dir)?;
    let harness = build(&dir, &[])?;
    println!("all faults built in {:.0} s", start.elapsed().as_secs_f64());
    let wanted = args.fault.as_deref().unwrap_or_default();
    let (found, tried) =
        FAULTS.search_for_each(wanted, |number| campaign(&harness, number, args))?;
    println!(
        "summary: {}{found} of {tried} injected faults found; {:.0} s",
        if only_faults { String::new() } else { format!("{} kills survived; ", args.points) },
        start.elapsed().as_secs_f64()
    );
    Ok(found == tried && found > 0)
}

/// Builds the harness, optimized: it is stepped through instruction by instruction.
fn build(dir: &Path, features: &[&str]) -> Result<PathBuf, Error> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--quiet", "--package", "bellwire-kill"])
        .args(features)
        .env_remove("RUSTFLAGS")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    copy::cargo(dir, &mut cargo)?.map_err(|log| Error::Harness { log })?;
    Ok(dir.join("target/release/bellwire-kill"))
}

/// Runs the harness on the code as it is, and lets it print.
fn kill(dir: &Path, args: &Args) -> Result<bool, Error> {
    let harness = build(dir, &["--features", "c"])?;
    let mut command = Command::new(&harness);
    if args.only.is_none() {
        command.args(["--points", &args.points.to_string()]);
    }
    for (name, value) in [("--only", &args.only), ("--phase", &args.phase)] {
        command.args(value.iter().flat_map(|value| [name, value.as_str()]));
    }
    if let Some(seed) = args.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if args.json {
        command.arg("--json");
    }
    let status = command.stdin(Stdio::null()).status();
    Ok(status.map_err(Error::spawn(&harness))?.success())
}

/// Kills until the fault is found, or for the number of points that a fault gets. How it was found, or why it was not.
fn campaign(harness: &Path, number: usize, args: &Args) -> Result<Result<String, String>, Error> {
    let mut command = Command::new(harness);
    command.env(ACTIVE, number.to_string());
    command.args(["--json", "--findings", "1"]);
    command.args(["--points", &POINTS_FOR_A_FAULT.to_string()]);
    command.args(["--timeout", &TIMEOUT_FOR_A_FAULT.to_string()]);
    if let Some(seed) = args.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    let output = command.stdin(Stdio::null()).output().map_err(Error::spawn(harness))?;
    Ok(verdict(&output.stdout, || String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Reads what the harness printed.
fn verdict(output: &[u8], errors: impl FnOnce() -> String) -> Result<String, String> {
    let summary: Value = serde_json::from_slice(output).map_err(|_| errors())?;
    let kills = summary.get("killed").and_then(Value::as_u64).unwrap_or(0);
    let text = |name: &str| summary.pointer(&format!("/findings/0/{name}"))?.as_str();
    match (text("address"), text("what")) {
        (Some(address), Some(what)) => {
            Ok(format!("after {kills} kills at {address}: {}", brief(what)))
        }
        _ => Err(format!("{kills} kills")),
    }
}

/// The start of a text.
fn brief(text: &str) -> &str {
    text.get(..text.floor_char_boundary(160)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn the_output_of_the_harness_is_a_verdict() {
        let none = String::new;
        let found = br#"{"killed": 7, "findings": [{"address": "a:0:1", "what": "lost"}]}"#;
        assert_eq!(verdict(found, none), Ok("after 7 kills at a:0:1: lost".to_owned()));
        let missed = br#"{"killed": 9, "findings": []}"#;
        assert_eq!(verdict(missed, none), Err("9 kills".to_owned()));
        let broken = || "it fell over".to_owned();
        assert_eq!(verdict(b"", broken), Err("it fell over".to_owned()));
    }
}
