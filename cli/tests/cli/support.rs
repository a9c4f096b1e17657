//! Runs the command, and waits for what it says.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use bellwire::{RunDir, Server};
use serde_json::Value;
pub(crate) use spawn::spawn;
use tempfile::TempDir;

#[path = "../../../tests/support/spawn.rs"]
mod spawn;

/// A test that waits for longer hangs.
const HANGS: Duration = Duration::from_secs(60);

/// What the system can send to a process. `Kill` is everywhere; the others are where there is a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Hup,
    Int,
    Term,
    Stop,
    Cont,
    Kill,
}

/// A place of its own for one test: a run dir, a synthetic cgroup hierarchy, temporary files.
pub(crate) struct Place {
    dir: TempDir,
}

/// What a command that ended left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command that runs. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

/// A service that the command does not know, served by [`Place::foreign`].
#[derive(bellwire::Service)]
#[service(name = "foreign", version = 42, request = u64, response = u64)]
pub(crate) struct Foreign;

/// Two tokens.
pub(crate) const ONE: &str = "00112233445566778899aabbccddeeff";
pub(crate) const OTHER: &str = "10112233445566778899aabbccddeeff";

/// The command, with an environment that says nothing.
pub(crate) fn bellwire() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    for name in [
        "BELLWIRE_RUN_DIR",
        "XDG_RUNTIME_DIR",
        "BELLWIRE_TOKEN",
        "NETDATA_RUN_DIR",
        "NETDATA_INVOCATION_ID",
        "INVOCATION_ID",
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
    ] {
        command.env_remove(name);
    }
    command
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("bw-cli-").tempdir().unwrap();
        let place = Self { dir };
        fs::create_dir(place.root()).unwrap();
        fs::create_dir(place.temp()).unwrap();
        // What makes it a v2 hierarchy.
        fs::write(place.root().join("cgroup.controllers"), "cpu memory\n").unwrap();
        place.cgroup("system.slice");
        place.cgroup("system.slice/cron.service");
        place
    }

    /// The same, where there is a shell.
    pub(crate) fn with_shell() -> Option<Self> {
        has_shell().then(Self::new)
    }

    /// A server of this process: it fails odd numbers.
    pub(crate) fn foreign(&self) -> Server {
        let even = |number: u64| number.is_multiple_of(2).then_some(number);
        let mut builder = Server::builder(&RunDir::new(self.run_dir()));
        let served = builder.serve::<Foreign>(move |_, number| even(number).ok_or("odd".into()));
        served.unwrap();
        builder.start().unwrap()
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("cgroup")
    }

    pub(crate) fn temp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    /// What clients of the only endpoint connect to.
    pub(crate) fn address(&self) -> String {
        let endpoints = RunDir::new(self.run_dir()).endpoints().unwrap();
        assert_eq!(endpoints.len(), 1, "{endpoints:?}");
        endpoints[0].address.clone()
    }

    /// Makes a cgroup of the synthetic hierarchy: complete before it can be seen.
    pub(crate) fn cgroup(&self, path: &str) {
        let building = self.dir.path().join("building");
        fs::create_dir(&building).unwrap();
        fs::write(building.join("cgroup.events"), "populated 1\n").unwrap();
        fs::rename(building, self.root().join(path)).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = bellwire();
        // The three names that systems have for it.
        for name in ["TMPDIR", "TMP", "TEMP"] {
            command.env(name, self.temp());
        }
        command.env("BELLWIRE_RUN_DIR", self.run_dir()).current_dir(self.dir.path()).args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        Ended::of(&mut self.command(args))
    }

    /// Runs the command, which has to end with this exit code.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32, args: &[&str]) -> Ended {
        let ended = self.run(args);
        assert_eq!(ended.status, Some(code), "{args:?}: {ended:?}");
        ended
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::of(&mut self.command(args))
    }

    /// The option for the synthetic hierarchy.
    pub(crate) fn root_option(&self) -> String {
        format!("--root={}", self.root().display())
    }

    /// A provider of a subject, with these options, that is ready.
    pub(crate) fn provide(&self, args: &[&str]) -> Running {
        Running::providing(&mut self.command(&[&["provide"], args].concat()))
    }

    /// A provider of the synthetic hierarchy, that looks often and is ready.
    pub(crate) fn provider(&self) -> Running {
        self.provide(&["cgroups", &self.root_option(), "--interval", "5ms", "-v"])
    }

    /// The same, which looks once a second, with a variable in its environment.
    pub(crate) fn provider_with(&self, variable: &str, value: &str) -> Running {
        let args = ["provide", "cgroups", &self.root_option()];
        Running::providing(self.command(&args).env(variable, value))
    }
}

impl Ended {
    pub(crate) fn of(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::from(spawn(command).wait_with_output().unwrap())
    }

    /// Its standard output, which is one JSON object in one line.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }
}

impl From<std::process::Output> for Ended {
    fn from(output: std::process::Output) -> Self {
        Self {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Running {
    pub(crate) fn of(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(command);
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// Waits until it provides something.
    pub(crate) fn providing(command: &mut Command) -> Self {
        let mut provider = Self::of(command);
        provider.stderr_until("providing");
        provider
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stdout_until(&mut self, text: &str) -> String {
        until(&self.stdout, text)
    }

    pub(crate) fn stderr_until(&mut self, text: &str) -> String {
        until(&self.stderr, text)
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        let name = match signal {
            Signal::Kill => return self.child.kill().unwrap(),
            Signal::Hup => "HUP",
            Signal::Int => "INT",
            Signal::Term => "TERM",
            Signal::Stop => "STOP",
            Signal::Cont => "CONT",
        };
        assert!(shell("kill -s \"$0\" \"$1\"", &[name, &self.pid().to_string()]).unwrap());
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn end_by(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.end()
    }

    /// Whether it ends with status 0 at a signal. Where there are none it is killed, and that is not told.
    pub(crate) fn ends_well_by(&mut self, signal: Signal) -> bool {
        if has_shell() {
            return self.end_by(signal).success();
        }
        self.end_by(Signal::Kill);
        true
    }

    /// Waits until it has ended, and every process that it started.
    pub(crate) fn all_ended(&mut self) {
        let ended = |lines: &Receiver<String>| loop {
            match lines.recv_timeout(HANGS) {
                Ok(_) => {}
                Err(error) => return error == RecvTimeoutError::Disconnected,
            }
        };
        assert!(ended(&self.stderr), "a process that it started outlives it");
    }

    /// What it says until it ends.
    pub(crate) fn rest(&mut self) -> (String, String) {
        let all = |lines: &Receiver<String>| {
            std::iter::from_fn(|| lines.recv_timeout(HANGS).ok()).collect::<Vec<_>>().join("\n")
        };
        (all(&self.stdout), all(&self.stderr))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether there are signals to send, and permission bits to set. A test that needs them says that it is skipped.
pub(crate) fn has_shell() -> bool {
    let has = shell("exit 0", &[]).is_some();
    if !has {
        eprintln!("skipped: there is no shell here, and no signals");
    }
    has
}

/// Whether a script of the shell succeeds with these arguments, from `$0` on; `None` without a shell.
pub(crate) fn shell(script: &str, arguments: &[&str]) -> Option<bool> {
    let status = Command::new("sh").args(["-c", script]).args(arguments).status();
    Some(status.ok()?.success())
}

/// Gives a file these permission bits.
pub(crate) fn chmod(mode: &str, path: &Path) {
    assert_eq!(shell("chmod \"$0\" \"$1\"", &[mode, path.to_str().unwrap()]), Some(true));
}

/// Whether a directory has nothing in it.
pub(crate) fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn until(lines: &Receiver<String>, text: &str) -> String {
    let mut said = Vec::new();
    loop {
        match lines.recv_timeout(HANGS) {
            Ok(line) if line.contains(text) => return line,
            Ok(line) => said.push(line),
            Err(error) => panic!("{error}: no line with {text:?} after {said:#?}"),
        }
    }
}
