//! Child processes of the tests: this test binary again, running a single test that executes a role.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::roles;

/// Carries the role to a child process; not set in the test process itself.
const ROLE: &str = "BELLWIRE_TRACED_ROLE";

/// A child process that executes a role, or a program. It answers each line from the test by one line, and is killed with the test.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<UnixStream>,
}

/// The path of this program: the file that is traced.
pub(crate) fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Copies this program: a tracer that attaches to the copy attaches to no other test's processes.
pub(crate) fn copy_of_program(dir: &Path) -> PathBuf {
    let copy = dir.join("program");
    copy_to(&program(), &copy);
    copy
}

/// Copies a program by a child process. A descriptor of this process that writes the copy could be inherited by a child
/// of another test, and executing the copy would then fail with ETXTBSY.
pub(crate) fn copy_to(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// A server and a client in a run dir of their own.
pub(crate) fn pair() -> (TempDir, Process, Process) {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let client = Process::start("client", dir.path());
    (dir, server, client)
}

impl Process {
    /// Starts a role in this run dir, and waits until it is ready.
    pub(crate) fn start(role: &str, run_dir: &Path) -> Self {
        Self::start_by(Command::new(program()), role, run_dir)
    }

    /// Starts a role by a command whose last argument is the path of this program.
    pub(crate) fn start_by(command: Command, role: &str, run_dir: &Path) -> Self {
        Self::try_start_by(command, role, run_dir).expect("the process ended")
    }

    /// The same; `None` if the command fails.
    pub(crate) fn try_start_by(mut command: Command, role: &str, run_dir: &Path) -> Option<Self> {
        command.args(["--exact", "support::process::executes_its_role"]);
        command.args(["--nocapture", "--test-threads=1"]).env(ROLE, role).stdout(Stdio::null());
        Self::spawn(command, UnixStream::pair().unwrap(), run_dir)
    }

    /// Starts a program of tests/programs, which answers on its standard output.
    pub(crate) fn start_program(file: &Path, argument: Option<&Path>, run_dir: &Path) -> Self {
        let ends = UnixStream::pair().unwrap();
        let mut command = Command::new(file);
        command.args(argument).stdout(OwnedFd::from(ends.1.try_clone().unwrap()));
        Self::spawn(command, ends, run_dir).expect("the program ended")
    }

    /// Starts a process with the second end as its standard input, and waits until it is ready.
    fn spawn(
        mut command: Command,
        (ours, theirs): (UnixStream, UnixStream),
        run_dir: &Path,
    ) -> Option<Self> {
        command.env("BELLWIRE_RUN_DIR", run_dir).stdin(OwnedFd::from(theirs));
        let child = command.spawn().unwrap();
        // The descriptors of the child's end that this process has go with the command.
        drop(command);
        let mut process = Self { child, lines: BufReader::new(ours) };
        let mut line = String::new();
        process.lines.read_line(&mut line).ok().filter(|_| line == "ready\n").map(|_| process)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The pid of the process that executes the role, if another program started it and waits for it.
    pub(crate) fn role_pid(&self) -> u32 {
        last_descendant(self.pid())
    }

    /// Sends a line and waits for the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.lines.get_mut(), "{line}").unwrap();
        self.read_line()
    }

    #[track_caller]
    fn read_line(&mut self) -> String {
        let mut line = String::new();
        let len = self.lines.read_line(&mut line).unwrap();
        assert!(len > 0, "the process ended");
        line.trim_end().to_owned()
    }

    /// Kills it by SIGKILL, and waits for its exit.
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

/// Follows the chain of first children from `pid`, and returns the last one.
pub(crate) fn last_descendant(mut pid: u32) -> u32 {
    loop {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        match children.split_whitespace().next() {
            Some(child) => pid = child.parse().unwrap(),
            None => return pid,
        }
    }
}

/// The body of every child process. Returns at once in the test process, which has no role.
#[test]
fn executes_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let input = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut output = input.try_clone().unwrap();
    let mut execute = roles::begin(&role);
    writeln!(output, "ready").unwrap();
    for line in BufReader::new(input).lines() {
        let Ok(line) = line else { return };
        let answer = execute(&line);
        writeln!(output, "{answer}").unwrap();
    }
}
