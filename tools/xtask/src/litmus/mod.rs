//! `cargo xtask litmus`: the orderings on ARM's memory model and on C11's, by herd7.
//!
//! A litmus test says what must never be observed. Each is run as it stands, and once without each barrier that its line
//! `weaken:` names: there herd7 must observe it, or the test shows nothing. The tests of AArch64 that name `functions:` are
//! compared with what the compiler made of those: every path through the function holds their instructions in their order.

mod assembly;
mod test;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::paint;
use assembly::Assembly;
use test::Litmus;

/// Where the tests are, from the root.
const TESTS: &str = "loom-tests/litmus";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program herd7; `ci/litmus` unpacks it.
    #[arg(long)]
    herd: PathBuf,
    /// What `rustc --emit asm` made of core/shm/examples/orderings.rs for aarch64.
    #[arg(long)]
    assembly: PathBuf,
}

/// Runs every test and its weakened twins; `true` when all came out as they must.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let read = |path: &Path| fs::read_to_string(path).map_err(Error::file("read", path));
    let assembly = Assembly::parse(&read(&args.assembly)?);
    let folder = root.join(TESTS);
    let entries = fs::read_dir(&folder).map_err(Error::file("list", &folder))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "litmus"));
    paths.sort();
    let (mut twins, mut compared, mut faults) = (0, 0, 0);
    for path in &paths {
        let litmus = Litmus::parse(&read(path)?);
        let mut fault = |what: String| {
            faults += 1;
            println!("{} {}: {what}", paint::red("fault:"), path.display());
        };
        if is_observed(&args.herd, &litmus.text)? {
            fault("what must never be observed may be observed".to_owned());
        }
        for (barrier, text) in litmus.twins() {
            twins += 1;
            if !is_observed(&args.herd, &text)? {
                fault(format!("without {barrier} nothing changes: the test shows nothing of it"));
            }
        }
        for (function, instructions) in litmus.functions() {
            compared += 1;
            if let Err(what) = assembly.compare(&function, &instructions) {
                fault(format!("{function} in core/shm/examples/orderings.rs: {what}"));
            }
        }
        println!("{}: {}", litmus.name(), litmus.about());
    }
    println!(
        "summary: {} litmus tests never, {twins} weakened twins sometimes, {compared} processes compared with the \
         instructions of aarch64, {faults} faults",
        paths.len(),
    );
    Ok(faults == 0 && twins > 0 && compared > 0)
}

/// Whether herd7 finds an execution that meets the condition of the test.
fn is_observed(herd: &Path, text: &str) -> Result<bool, Error> {
    let file = tempfile::Builder::new().suffix(".litmus").tempfile()?;
    fs::write(file.path(), text).map_err(Error::file("write", file.path()))?;
    let mut command = Command::new(herd);
    match text.starts_with("C ") {
        true => command.args(["-model", "rc11.cat"]),
        false => command.args(["-variant", "mixed"]),
    };
    let output = command.arg(file.path()).output().map_err(Error::spawn(herd))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let observation = said.lines().find(|line| line.starts_with("Observation "));
    match observation.and_then(|line| line.split_whitespace().nth(2)) {
        Some("Never") => Ok(false),
        Some("Sometimes" | "Always") => Ok(true),
        _ => Err(Error::Herd {
            text: text.to_owned(),
            log: format!("{said}{}", String::from_utf8_lossy(&output.stderr)),
        }),
    }
}
