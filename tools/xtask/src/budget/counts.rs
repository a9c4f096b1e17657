//! Instructions, counted by callgrind.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::Error;
use crate::root;

const PACKAGE: &str = "bellwire-budget";

/// What a count depends on beside the code.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Tools {
    pub(crate) rustc: String,
    pub(crate) valgrind: String,
    /// It copies the bytes.
    pub(crate) libc: String,
}

impl Tools {
    pub(crate) fn find(root: &Path) -> Result<Self, Error> {
        let libc = first_line(root, "ldd", &["--version"])?;
        Ok(Self {
            rustc: first_line(root, "rustc", &["--version"])?,
            valgrind: first_line(root, "valgrind", &["--version"])?,
            libc: libc.rsplit('(').next().unwrap_or(&libc).replace(')', ""),
        })
    }
}

impl Display for Tools {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} and {}", self.rustc, self.valgrind, self.libc)
    }
}

/// What one operation takes: the least of its samples. `None` if too few samples count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) name: String,
    pub(crate) instructions: Option<f64>,
}

/// Builds the operations and counts their instructions, in the order in which they come.
pub(crate) fn take(root: &Path) -> Result<Vec<Counted>, Error> {
    build(root)?;
    let target = root::target_dir(root);
    let dir = target.join("budget");
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(Error::file("remove", &dir))?;
    }
    fs::create_dir_all(&dir).map_err(Error::file("create", &dir))?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no", "--fair-sched=yes"])
        .arg(format!("--callgrind-out-file={}", dir.join("out").display()))
        .arg(format!("--log-file={}", dir.join("log").display()))
        .arg(target.join("release").join(PACKAGE))
        .current_dir(root)
        .stdin(Stdio::null());
    let status = valgrind.status().map_err(Error::spawn("valgrind"))?;
    if !status.success() {
        let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
        return Err(Error::Counts { status, log });
    }
    let mut dumps = Vec::new();
    for entry in fs::read_dir(&dir).map_err(Error::file("read", &dir))? {
        let path = entry.map_err(Error::file("read", &dir))?.path();
        let number = path.extension().and_then(|part| part.to_str()?.parse::<u32>().ok());
        if let Some(number) = number {
            let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
            dumps.extend(sample(&text).map(|sample| (number, sample)));
        }
    }
    dumps.sort_by_key(|(number, _)| *number);
    Ok(least(dumps.into_iter().map(|(_, sample)| sample)))
}

fn build(root: &Path) -> Result<(), Error> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--package", PACKAGE]).current_dir(root);
    let status = cargo.status().map_err(Error::spawn("cargo"))?;
    if status.success() { Ok(()) } else { Err(Error::BudgetBuild { package: PACKAGE }) }
}

/// What one of callgrind's files says: which operation, and the instructions of one of them. Nothing if the program did
/// not ask for this file.
fn sample(dump: &str) -> Option<Counted> {
    let after = |label: &str| dump.lines().find_map(|line| line.strip_prefix(label));
    let (name, times) = after("desc: Trigger: Client Request: ")?.trim().split_once('=')?;
    let (total, times): (f64, f64) =
        (after("summary: ")?.trim().parse().ok()?, times.parse().ok()?);
    Some(Counted { name: name.to_owned(), instructions: (times > 0.0).then(|| total / times) })
}

/// The least of each name, in the order of the first of each.
fn least(samples: impl IntoIterator<Item = Counted>) -> Vec<Counted> {
    let mut counted: Vec<Counted> = Vec::new();
    for sample in samples {
        match counted.iter_mut().find(|known| known.name == sample.name) {
            Some(known) => {
                let both = known.instructions.zip(sample.instructions);
                known.instructions = both.map(|(one, other)| one.min(other));
            }
            None => counted.push(sample),
        }
    }
    counted
}

fn first_line(root: &Path, program: &str, args: &[&str]) -> Result<String, Error> {
    // In the checkout: a toolchain may be chosen there.
    let output = Command::new(program).args(args).current_dir(root).output();
    let output = output.map_err(Error::spawn(program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(trigger: &str, summary: u64) -> String {
        format!(
            "# callgrind format\npart: 1\n\ndesc: I1 cache: \ndesc: Trigger: {trigger}\n\n\
             positions: line\nevents: Ir\nsummary: {summary}\n"
        )
    }

    #[test]
    fn only_a_requested_dump_is_a_sample() {
        let found = sample(&dump("Client Request: lane-push=1000", 125_500)).unwrap();
        assert_eq!(found, Counted { name: "lane-push".to_owned(), instructions: Some(125.5) });
        assert_eq!(sample(&dump("Program termination", 5)), None);
    }

    #[test]
    fn a_dump_of_no_operation_says_that_too_few_samples_count() {
        let found = sample(&dump("Client Request: call-client=0", 0)).unwrap();
        assert_eq!(found, Counted { name: "call-client".to_owned(), instructions: None });
    }

    #[test]
    fn the_least_sample_counts() {
        let samples = [3, 2, 4].map(|total| sample(&dump("Client Request: call=1", total)));
        let found = least(samples.into_iter().flatten());
        assert_eq!(found, [Counted { name: "call".to_owned(), instructions: Some(2.0) }]);
    }
}
