//! Faults that a program must find in a copy of the workspace: all are built into it at once, and each run activates one.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::error::Error;
use crate::{copy, paint};

/// One change of one file. What it replaces stands in the file exactly once.
#[derive(Debug)]
pub(crate) struct Edit {
    fault: &'static str,
    /// From the root of the workspace.
    file: &'static str,
    from: &'static str,
    /// `FAULT` in it is true when the fault is active.
    to: &'static str,
}

pub(crate) const fn edit(
    fault: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
) -> Edit {
    Edit { fault, file, from, to }
}

/// The variable that tells the program which fault is active, by its number.
pub(crate) const ACTIVE: &str = "BELLWIRE_FAULT";

/// What core needs to know which fault is active.
const SWITCH: Edit = edit(
    "the switch of the faults",
    "core/src/lib.rs",
    "pub mod call;\n",
    "static FAULT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);\n\
     /// Activates a fault.\npub fn activate_fault(number: usize) {\n    \
     FAULT.store(number, core::sync::atomic::Ordering::Relaxed);\n}\n\
     /// Whether this fault is active.\n#[inline]\npub fn is_faulty(number: usize) -> bool {\n    \
     FAULT.load(core::sync::atomic::Ordering::Relaxed) == number\n}\n\npub mod call;\n",
);

/// The faults that one program must find.
#[derive(Debug)]
pub(crate) struct Faults {
    /// A fault of several changes has as many rows, one after the other.
    pub(crate) edits: &'static [Edit],
    /// The file of the program, and the line after which it activates its fault.
    pub(crate) program: &'static str,
    pub(crate) start: &'static str,
}

impl Faults {
    /// The faults with their numbers.
    pub(crate) fn names(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let mut names: Vec<_> = self.edits.iter().map(|edit| edit.fault).collect();
        names.dedup();
        (1..).zip(names)
    }

    /// Has `search` search for each fault whose name contains `part`, and prints how it was found, which is `Ok`, or why it was
    /// not. Returns how many were found, and of how many.
    pub(crate) fn search_for_each(
        &self,
        part: &str,
        mut search: impl FnMut(usize) -> Result<Result<String, String>, Error>,
    ) -> Result<(usize, usize), Error> {
        let (mut found, mut tried) = (0, 0);
        for (number, fault) in self.names().filter(|(_, fault)| fault.contains(part)) {
            let start = Instant::now();
            let outcome = search(number)?;
            let took = start.elapsed().as_secs_f64();
            tried += 1;
            match outcome {
                Ok(how) => {
                    found += 1;
                    println!("{}  {fault}  {took:.0} s\n        {how}", paint::green("found "));
                }
                Err(why) => println!("{}  {fault}  {took:.0} s: {why}", paint::red("MISSED")),
            }
        }
        Ok((found, tried))
    }

    /// Writes the files of the workspace at `root` that have faults into its copy.
    pub(crate) fn inject(&self, root: &Path, copy: &Path) -> Result<(), Error> {
        let files = self.edits.iter().map(|edit| edit.file).chain([SWITCH.file, self.program]);
        let mut files: Vec<_> = files.collect();
        files.sort_unstable();
        files.dedup();
        for file in files {
            let path = root.join(file);
            let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
            copy::write(&copy.join(file), self.apply(file, text)?)?;
        }
        Ok(())
    }

    /// A file's text with all the faults in it.
    fn apply(&self, file: &'static str, mut text: String) -> Result<String, Error> {
        let start = format!(
            "{}    let fault = std::env::var(\"{ACTIVE}\").ok();\n    \
             bellwire_core::activate_fault(fault.and_then(|fault| fault.parse().ok()).unwrap_or(0));\n",
            self.start
        );
        let mut replace = |fault, from, to: &str| {
            if text.matches(from).count() != 1 {
                return Err(Error::Fault { fault, file });
            }
            text = text.replacen(from, to, 1);
            Ok(())
        };
        if file == self.program {
            replace(SWITCH.fault, self.start, &start)?;
        }
        let core = if file.starts_with("core/src/") { "crate" } else { "bellwire_core" };
        for edit in self.edits.iter().chain([&SWITCH]).filter(|edit| edit.file == file) {
            let number = self.names().find(|(_, name)| *name == edit.fault).map_or(0, |(at, _)| at);
            let is_faulty = format!("{core}::is_faulty({number})");
            let to = match number {
                0 => edit.to.to_owned(),
                _ => edit.to.replace("FAULT", &is_faulty),
            };
            replace(edit.fault, edit.from, &to)?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::{fuzz, kill, root};

    #[test]
    fn every_fault_finds_its_place_in_the_code_as_it_is() {
        for faults in [&kill::FAULTS, &fuzz::FAULTS] {
            let copy = tempfile::tempdir().unwrap();
            faults.inject(&root::find().unwrap(), copy.path()).unwrap();
        }
    }

    #[test]
    fn a_fault_without_a_place_is_reported_by_its_name() {
        let file = "core/shm/src/link.rs";
        let error = kill::FAULTS.apply(file, "fn follow() {}".to_owned()).unwrap_err();
        let fault = "a lane that was left stays mapped";
        assert!(matches!(error, Error::Fault { fault: found, .. } if found == fault), "{error}");
    }
}
