//! The other process: this program again, which serves whatever is compared until it is killed.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::windows::io::AsHandle;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use bellwire_win::peer::{Process, Reach};
use bellwire_win::poll;
use tempfile::TempDir;

use crate::event::Bells;
use crate::{pipe, session};

/// Where the other process finds its run directory.
const RUN_DIR: &str = "BELLWIRE_BENCH_RUN_DIR";
/// Who started it.
const PARENT: &str = "BELLWIRE_BENCH_PARENT";

/// The other process. Dropped, it is killed.
pub(crate) struct Peer {
    child: Child,
    dir: TempDir,
}

impl Peer {
    /// Starts it, and waits until it serves.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(env::current_exe().unwrap())
            .env(RUN_DIR, dir.path())
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready");
        Self { child, dir }
    }

    pub(crate) fn run_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The name of the pipe to compare with.
    pub(crate) fn pipe(&self) -> String {
        pipe_name(std::process::id())
    }

    /// The name of the events to compare with.
    pub(crate) fn bells(&self) -> String {
        bells_name(std::process::id())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until the end, if this is the other process.
pub(crate) fn main_if_peer() -> Option<ExitCode> {
    let run_dir = env::var_os(RUN_DIR)?;
    let parent: u32 = env::var(PARENT).ok()?.parse().ok()?;
    let bells = Bells::open(&bells_name(parent));
    thread::spawn(move || bells.serve());
    let listening = pipe::Listening::open(&pipe_name(parent));
    thread::spawn(move || listening.serve());
    let _servers = session::serve(Path::new(&run_dir));
    println!("ready");
    std::io::stdout().flush().unwrap();
    let process = Process::open(parent, Reach::Watch).ok()?;
    let _ = poll::wait(&[process.as_handle()], None);
    Some(ExitCode::SUCCESS)
}

fn pipe_name(parent: u32) -> String {
    format!(r"\\.\pipe\bellwire-bench-{parent}")
}

fn bells_name(parent: u32) -> String {
    format!("bellwire-bench-{parent}")
}
