//! Processes of their own: this test binary again, running one test as the body of a role.

use std::io::{BufRead, BufReader, Stdin, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use bellwire::RunDir;

use super::guard::{TEST_TIMEOUT, scaled};
use super::spawn::spawn;

/// Which role a process plays, and with what; empty in the test process itself.
const ROLE: &str = "BELLWIRE_TEST_ROLE";
/// The prefix of a line that a role writes to its standard error, which other output shares.
const LINE_PREFIX: &str = "line: ";

/// A process that plays a role. It reads and writes lines, and ends with its parent.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts one, and waits until it reports that it is ready.
    pub(crate) fn start(role: &str, run_dir: &RunDir) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), role, run_dir)
    }

    /// Starts one by another program, which runs what its last arguments say: `command` ends with this binary.
    pub(crate) fn start_by(mut command: Command, role: &str, run_dir: &RunDir) -> Self {
        command
            .args(["--exact", &body(), "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(RunDir::VARIABLE, run_dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = spawn(&mut command);
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        // Ends with the process.
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let Some(text) = line.strip_prefix(LINE_PREFIX) {
                    let _ = sender.send(text.trim_end().to_owned());
                }
            }
        });
        let mut process = Self { stdin: child.stdin.take(), child, lines };
        assert_eq!(process.next_line(), "ready");
        process
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    #[track_caller]
    pub(crate) fn next_line(&mut self) -> String {
        self.try_next_line().expect("the process ended")
    }

    /// The next line; `None` when the process ended.
    #[track_caller]
    pub(crate) fn try_next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(scaled(TEST_TIMEOUT)) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the process says nothing"),
        }
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send_line(line);
        self.next_line()
    }

    /// Ends it, with no time to clean up, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The same without the wait: on Linux it leaves a zombie.
    pub(crate) fn kill_unwaited(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The line to the process that started this one.
pub(crate) struct Parent {
    stdin: Stdin,
}

/// Sends a line to the parent, from any thread.
#[derive(Clone, Copy)]
pub(crate) struct ParentWriter(());

impl Parent {
    pub(crate) fn send_line(&self, line: &str) {
        self.writer().send_line(line);
    }

    /// The next line; `None` when there is no parent any more.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let len = self.stdin.read_line(&mut line).unwrap_or(0);
        (len > 0).then(|| line.trim_end().to_owned())
    }

    /// Another writer, for another thread.
    pub(crate) fn writer(&self) -> ParentWriter {
        ParentWriter(())
    }
}

impl ParentWriter {
    /// Sends a line. It is lost if the parent is gone.
    pub(crate) fn send_line(self, line: &str) {
        let _ = std::io::stderr().write_all(Self::line(line).as_bytes());
    }

    /// A line in the format of the parent, for callers that write it themselves.
    pub(crate) fn line(text: &str) -> String {
        format!("{LINE_PREFIX}{text}\n")
    }
}

/// The full name of the test below, which is without that of its crate.
fn body() -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    format!("{module}::plays_its_role")
}

/// The body of every child process; in the test process there is no role to play.
#[test]
fn plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    crate::play(&role, Parent { stdin: std::io::stdin() });
}
