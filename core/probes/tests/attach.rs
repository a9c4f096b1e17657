//! What a program sees of a tracer that the kernel attached.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::built::{PROFILES, Profile};
use crate::elf::{self, Note};
use crate::perf::{self, Attached};

/// The program that fires all probes when it is asked to.
struct Traced {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Traced {
    fn start(profile: Profile, library: Option<&Path>) -> Self {
        let mut child = Command::new(profile.program())
            .args(library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    /// Fires, and says whether the program believes that samples are wanted.
    fn fire(&mut self) -> bool {
        self.cap() > 0
    }

    /// Fires, and says how many samples a second the program believes are wanted.
    fn cap(&mut self) -> i32 {
        self.stdin.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        match line.trim_end().parse() {
            Ok(cap) => cap,
            Err(_) => panic!("the program said {line:?}, and ended: {:?}", self.child.wait()),
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tracer is attached to a file, in every process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attaches to these probes of the file. `None`, and says why, where that is not permitted.
fn attach(path: &Path, probes: impl Fn(&Note) -> bool) -> Option<Vec<Attached>> {
    let (notes, _) = elf::read(path);
    let notes = notes.iter().filter(|note| probes(note));
    let attached: Result<Vec<_>, _> = notes.map(|note| perf::attach(path, note)).collect();
    match attached {
        Ok(attached) => Some(attached),
        Err(error) => {
            let unable = [ErrorKind::PermissionDenied, ErrorKind::NotFound].contains(&error.kind());
            let required = std::env::var("BELLWIRE_TRACE_TESTS").is_ok_and(|v| v == "require");
            assert!(unable && !required, "cannot attach: {error}");
            eprintln!("skipped: this process may not attach a uprobe: {error}");
            None
        }
    }
}

/// The file that is traced, and the argument that makes the program use it.
fn subjects(profile: Profile) -> [(PathBuf, Option<PathBuf>); 2] {
    [(profile.program(), None), (profile.library(), Some(profile.library()))]
}

#[test]
fn a_tracer_that_attaches_before_the_start_is_seen() {
    let _alone = alone();
    for profile in PROFILES {
        for (path, library) in subjects(profile) {
            let Some(attached) = attach(&path, |note| note.name == "message") else { return };
            let mut traced = Traced::start(profile, library.as_deref());
            assert!(traced.fire(), "{}", path.display());
            drop(attached);
            assert!(!traced.fire(), "{}: still held after the tracer detached", path.display());
        }
    }
}

#[test]
fn a_tracer_that_attaches_later_is_seen() {
    let _alone = alone();
    for profile in PROFILES {
        for (path, library) in subjects(profile) {
            let mut traced = Traced::start(profile, library.as_deref());
            assert!(!traced.fire());
            let Some(attached) = attach(&path, |note| note.name == "reply") else { return };
            assert!(traced.fire(), "{}", path.display());
            drop(attached);
            assert!(!traced.fire(), "{}: still held after the tracer detached", path.display());
        }
    }
}

#[test]
fn a_probe_that_stands_for_a_cap_sets_it() {
    let _alone = alone();
    let caps =
        [("reply", 2_000), ("rate_5000", 5_000), ("rate_50000", 50_000), ("rate_all", i32::MAX)];
    for (path, library) in subjects(Profile::Shipped) {
        let mut traced = Traced::start(Profile::Shipped, library.as_deref());
        for (probe, cap) in caps {
            let wanted = |note: &Note| ["message", probe].contains(&note.name.as_str());
            let Some(_attached) = attach(&path, wanted) else { return };
            assert_eq!(traced.cap(), cap, "{}: {probe}", path.display());
        }
        assert_eq!(traced.cap(), 0, "{}: still held", path.display());
    }
}

#[test]
fn a_program_with_every_probe_attached_keeps_running() {
    let _alone = alone();
    let mut traced = Traced::start(Profile::Shipped, None);
    let Some(_attached) = attach(&Profile::Shipped.program(), |_| true) else { return };
    for _ in 0..100 {
        assert!(traced.fire());
    }
}
