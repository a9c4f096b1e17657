//! Processes of their own: this test binary again, running one test as the body of a role.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::roles;

/// Which role a process plays; empty in the test process itself.
const ROLE: &str = "BELLWIRE_TRACED_ROLE";

/// A process that plays a role. It is told lines and answers each by one. It ends with its teller.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<UnixStream>,
}

/// This program: the file that is traced.
pub(crate) fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// A copy of it: who attaches to that file attaches to nobody else's processes.
pub(crate) fn copy_of_program(dir: &Path) -> PathBuf {
    let copy = dir.join("program");
    copy_to(&program(), &copy);
    copy
}

/// Copies a program in a process of its own: one that another test starts would inherit the descriptor that writes it, and
/// the copy could not be run meanwhile.
pub(crate) fn copy_to(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

impl Process {
    /// Starts one in this run dir, and waits until it says that it is ready.
    pub(crate) fn start(role: &str, run_dir: &Path) -> Self {
        Self::start_by(Command::new(program()), role, run_dir)
    }

    /// Starts one by way of another program, whose last argument is this one's path.
    pub(crate) fn start_by(mut command: Command, role: &str, run_dir: &Path) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = command
            .args([
                "--exact",
                "support::process::plays_its_role",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, role)
            .env("BELLWIRE_RUN_DIR", run_dir)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut process = Self { child, lines: BufReader::new(ours) };
        assert_eq!(process.hear(), "ready");
        process
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process that plays the role, where another one started it and waits for it.
    pub(crate) fn player(&self) -> u32 {
        last(self.pid())
    }

    /// Says something and waits for the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.lines.get_mut(), "{line}").unwrap();
        self.hear()
    }

    #[track_caller]
    fn hear(&mut self) -> String {
        let mut line = String::new();
        let len = self.lines.read_line(&mut line).unwrap();
        assert!(len > 0, "the process ended");
        line.trim_end().to_owned()
    }

    /// Ends it by SIGKILL and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last of those that started each other, from this one on.
pub(crate) fn last(mut pid: u32) -> u32 {
    loop {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        match children.split_whitespace().next() {
            Some(child) => pid = child.parse().unwrap(),
            None => return pid,
        }
    }
}

/// The body of every child process; in the test process there is no role to play.
#[test]
fn plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let talk = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut tell = talk.try_clone().unwrap();
    let mut play = roles::begin(&role);
    writeln!(tell, "ready").unwrap();
    for line in BufReader::new(talk).lines() {
        let Ok(line) = line else { return };
        let answer = play(&line);
        writeln!(tell, "{answer}").unwrap();
    }
}
