//! The tracer itself, as its users run it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::Value;

use super::process::{last, program};

/// The program.
pub(crate) const TRACER: &str = env!("CARGO_BIN_EXE_bellwire-trace");
/// What it says when everything is attached.
const ATTACHED: &[u8] = b"attached. Ctrl-C ends it.\n";
/// The exit status of what is not permitted or not supported.
pub(crate) const SKIPPED: i32 = 77;

/// Says why a test does not run here; fails where all of them are wanted.
#[track_caller]
pub(crate) fn skip(why: &str) {
    let required = std::env::var("BELLWIRE_TRACE_TESTS").is_ok_and(|how| how == "require");
    assert!(!required, "{why}");
    eprintln!("skipped: {why}");
}

/// A tracer that is attached.
pub(crate) struct Tracer {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
}

impl Tracer {
    /// Attaches to this test's program, and waits until it is. `None`, and says why, where that is not permitted.
    pub(crate) fn start(args: &[&str]) -> Option<Self> {
        Self::start_on(&program(), args)
    }

    /// Attaches to this file.
    pub(crate) fn start_on(file: &Path, args: &[&str]) -> Option<Self> {
        let mut command = Command::new(TRACER);
        command.args(args).args(["--json", "--rate", "all", "--exe"]).arg(file);
        Self::start_by(command)
    }

    /// Attaches as the command says.
    pub(crate) fn start_by(mut command: Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let mut tracer = Self { child, stdout: BufReader::new(stdout), stderr };
        // Told when everything is attached; nothing when it failed.
        let mut told = [0; ATTACHED.len()];
        if tracer.stderr.read_exact(&mut told).is_ok() && told == *ATTACHED {
            return Some(tracer);
        }
        let mut error = String::from_utf8_lossy(&told).into_owned();
        tracer.stderr.read_to_string(&mut error).unwrap();
        let status = tracer.child.wait().unwrap();
        assert_eq!(status.code(), Some(SKIPPED), "{error}");
        skip(&error);
        None
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Interrupts it, and returns what it printed, and whether it ended well.
    pub(crate) fn finish(self) -> (Vec<Value>, ExitStatus) {
        let (lines, status, _) = self.finish_and_tell();
        (lines, status)
    }

    /// The same, and what it said beside that.
    pub(crate) fn finish_and_tell(mut self) -> (Vec<Value>, ExitStatus, String) {
        self.signal(rustix::process::Signal::INT);
        let mut lines = Vec::new();
        for line in (&mut self.stdout).lines() {
            lines.push(serde_json::from_str(&line.unwrap()).unwrap());
        }
        // Shown when the test fails.
        let mut told = String::new();
        self.stderr.read_to_string(&mut told).unwrap();
        eprint!("{told}");
        (lines, self.child.wait().unwrap(), told)
    }

    /// Waits until it ends, though nobody reads what it prints.
    pub(crate) fn end_unread(mut self, meanwhile: impl FnOnce()) -> ExitStatus {
        let mut other = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        drop(std::mem::replace(&mut self.stdout, BufReader::new(other.stdout.take().unwrap())));
        other.wait().unwrap();
        meanwhile();
        self.child.wait().unwrap()
    }

    /// Ends it as nobody wants to be ended.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        // Another program may have started it.
        let pid = i32::try_from(last(self.pid())).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.unwrap(), signal).unwrap();
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A stage of a table of `breakdown`.
pub(crate) fn stage<'a>(table: &'a Value, name: &str) -> &'a Value {
    let stages = table["stages"].as_array().unwrap();
    stages.iter().find(|stage| stage["stage"] == name).unwrap()
}

/// A number of a stage.
pub(crate) fn number(stage: &Value, name: &str) -> u64 {
    stage[name].as_u64().unwrap()
}
