//! The other process: this program again, which serves whatever is compared until it is killed.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::mpsc::sync_channel;
use std::{env, io, thread};

use bellwire_process::Subprocess;
use tempfile::TempDir;

use crate::event::Bells;
use crate::{pipe, session};

/// Where the other process finds its run directory, whose name those of the pipe and the events have, too.
const RUN_DIR: &str = "BELLWIRE_BENCH_RUN_DIR";

/// The other process. Dropped, it is killed.
pub(crate) struct Peer {
    _process: Subprocess,
    dir: TempDir,
}

impl Peer {
    /// Starts it, and waits until it serves.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        let (ready, is_ready) = sync_channel(2);
        let on_line = move |line| drop(ready.try_send(line));
        let process = Subprocess::start(command.env(RUN_DIR, dir.path()), on_line).unwrap();
        assert_eq!(is_ready.recv().unwrap().as_deref(), Some("ready"));
        Self { _process: process, dir }
    }

    pub(crate) fn run_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The name of the pipe to compare with.
    pub(crate) fn pipe(&self) -> String {
        pipe_name(self.run_dir())
    }

    /// The name of the events to compare with.
    pub(crate) fn bells(&self) -> String {
        bells_name(self.run_dir())
    }
}

/// Serves until the end, if this is the other process.
pub(crate) fn main_if_peer() -> Option<ExitCode> {
    let run_dir = env::var_os(RUN_DIR)?;
    let run_dir = Path::new(&run_dir);
    let bells = Bells::open(&bells_name(run_dir));
    thread::spawn(move || bells.serve());
    let listening = pipe::Listening::open(&pipe_name(run_dir));
    thread::spawn(move || listening.serve());
    let _servers = session::serve(run_dir);
    println!("ready");
    io::stdout().flush().unwrap();
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Some(ExitCode::SUCCESS)
}

fn pipe_name(run_dir: &Path) -> String {
    format!(r"\\.\pipe\{}", bells_name(run_dir))
}

fn bells_name(run_dir: &Path) -> String {
    format!("bellwire-bench-{}", run_dir.file_name().unwrap().display())
}
