//! The tracer as a child process, run as its users run it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};

use serde_json::Value;

use super::process::{Process, last_descendant, program};

/// The path of the tracer.
pub(crate) const TRACER: &str = env!("CARGO_BIN_EXE_bellwire-trace");
/// What it prints once everything is attached.
const ATTACHED: &[u8] = b"attached. Ctrl-C ends it.\n";
/// The exit status if tracing is not permitted or not supported.
pub(crate) const SKIPPED: i32 = 77;

/// Prints why a test does not run here; panics if all tests are required to run.
#[track_caller]
pub(crate) fn skip(why: &str) {
    let required = std::env::var("BELLWIRE_TRACE_TESTS").is_ok_and(|how| how == "require");
    assert!(!required, "{why}");
    eprintln!("skipped: {why}");
}

/// Runs the tracer to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    Command::new(TRACER).args(args).output().unwrap()
}

/// Records while `calls` runs. Returns the events of the trace, and the summary; `None`, with a message, if tracing is not
/// permitted.
#[track_caller]
pub(crate) fn recorded(args: &[&str], calls: impl FnOnce()) -> Option<(Vec<Value>, Value)> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    let output = ["record", "--output", file.to_str().unwrap()];
    let tracer = Tracer::start(&[&output, args].concat())?;
    calls();
    let summary = tracer.tables().remove(0);
    Some((serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap(), summary))
}

/// An attached tracer.
pub(crate) struct Tracer {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
}

impl Tracer {
    /// Attaches to this test's program, and waits for that. `None`, with a message, if that is not permitted.
    pub(crate) fn start(args: &[&str]) -> Option<Self> {
        Self::start_on(&program(), args)
    }

    /// Attaches to a process that runs this test's program, and to its peers.
    pub(crate) fn start_at(process: &Process, args: &[&str]) -> Option<Self> {
        Self::start(&[args, &["-p", &process.role_pid().to_string()]].concat())
    }

    /// Attaches to the processes that run this file.
    pub(crate) fn start_on(file: &Path, args: &[&str]) -> Option<Self> {
        let mut command = Command::new(TRACER);
        command.args(args).args(["--json", "--rate", "all", "--exe"]).arg(file);
        Self::start_by(command)
    }

    /// Starts the tracer by this command, and waits until it is attached.
    pub(crate) fn start_by(mut command: Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let mut tracer = Self { child, stdout: BufReader::new(stdout), stderr };
        // The first line on success; an error message otherwise.
        let mut first = [0; ATTACHED.len()];
        if tracer.stderr.read_exact(&mut first).is_ok() && first == *ATTACHED {
            return Some(tracer);
        }
        let mut error = String::from_utf8_lossy(&first).into_owned();
        tracer.stderr.read_to_string(&mut error).unwrap();
        let status = tracer.child.wait().unwrap();
        assert_eq!(status.code(), Some(SKIPPED), "{error}");
        skip(&error);
        None
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads the next line that it prints.
    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Interrupts it, and returns the lines that it printed and its exit status.
    pub(crate) fn finish(self) -> (Vec<Value>, ExitStatus) {
        let (lines, status, _) = self.finish_with_messages();
        (lines, status)
    }

    /// The same, for a tracer that has to succeed.
    #[track_caller]
    pub(crate) fn tables(self) -> Vec<Value> {
        let (lines, status) = self.finish();
        assert!(status.success());
        lines
    }

    /// The same as [`Tracer::finish`], with its messages on stderr.
    pub(crate) fn finish_with_messages(mut self) -> (Vec<Value>, ExitStatus, String) {
        self.signal(rustix::process::Signal::INT);
        let mut lines = Vec::new();
        for line in (&mut self.stdout).lines() {
            lines.push(serde_json::from_str(&line.unwrap()).unwrap());
        }
        // The test harness shows it if the test fails.
        let mut messages = String::new();
        self.stderr.read_to_string(&mut messages).unwrap();
        eprint!("{messages}");
        (lines, self.child.wait().unwrap(), messages)
    }

    /// Closes the read end of its standard output, and waits for its exit.
    pub(crate) fn close_output(mut self, meanwhile: impl FnOnce()) -> ExitStatus {
        let mut other = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        drop(std::mem::replace(&mut self.stdout, BufReader::new(other.stdout.take().unwrap())));
        other.wait().unwrap();
        meanwhile();
        self.child.wait().unwrap()
    }

    /// Kills it by SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        // Another program may have started the tracer.
        let pid = i32::try_from(last_descendant(self.pid())).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds a stage in a table of `breakdown`.
pub(crate) fn stage<'a>(table: &'a Value, name: &str) -> &'a Value {
    let stages = table["stages"].as_array().unwrap();
    stages.iter().find(|stage| stage["stage"] == name).unwrap()
}

/// Reads a number of a stage.
pub(crate) fn number(stage: &Value, name: &str) -> u64 {
    stage[name].as_u64().unwrap()
}
