//! Processes of their own: this test binary again, running one test as the body of a role.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use bellwire::RunDir;

use super::guard::PATIENCE;
use super::roles;

/// Which role a process plays, and with what; empty in the test process itself.
const ROLE: &str = "BELLWIRE_TEST_ROLE";

/// A process that plays a role. It is told lines, and tells lines. It ends with its teller.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<UnixStream>,
}

impl Process {
    /// Starts one, and waits until it says that it is ready.
    pub(crate) fn start(role: &str, run_dir: &RunDir) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), role, run_dir)
    }

    /// Starts one by unshare(1), in namespaces of its own as the options say.
    pub(crate) fn start_unshared(options: &[&str], role: &str, run_dir: &RunDir) -> Self {
        let mut command = Command::new("unshare");
        command.args(options).arg(std::env::current_exe().unwrap());
        Self::start_by(command, role, run_dir)
    }

    fn start_by(mut command: Command, role: &str, run_dir: &RunDir) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let child = command
            .args(["--exact", "support::child::plays_its_role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(RunDir::VARIABLE, run_dir.path())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut process = Self { child, lines: BufReader::new(ours) };
        assert_eq!(process.hear(), "ready");
        process
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.lines.get_mut(), "{line}").unwrap();
    }

    #[track_caller]
    pub(crate) fn hear(&mut self) -> String {
        self.try_hear().expect("the process ended")
    }

    /// The next line; `None` when the process ended.
    pub(crate) fn try_hear(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => None,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            result => {
                result.unwrap();
                Some(line.trim_end().to_owned())
            }
        }
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// Ends it by SIGKILL and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it by SIGKILL, and leaves a zombie.
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
    lines: BufReader<UnixStream>,
}

impl Parent {
    pub(crate) fn tell(&self, line: &str) {
        writeln!(self.lines.get_ref(), "{line}").unwrap();
    }

    /// The next line; `None` when there is no parent any more.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        let len = self.lines.read_line(&mut line).unwrap_or(0);
        (len > 0).then(|| line.trim_end().to_owned())
    }

    /// Another teller, for another thread.
    pub(crate) fn voice(&self) -> UnixStream {
        self.lines.get_ref().try_clone().unwrap()
    }
}

/// The body of every child process; in the test process there is no role to play.
#[test]
fn plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let talk = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    roles::play(&role, Parent { lines: BufReader::new(talk.into()) });
}
