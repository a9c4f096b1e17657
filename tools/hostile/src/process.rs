use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use bellwire_process::Subprocess;

/// A process that the runner starts: it reads and writes lines, and exits at the end of its input.
#[derive(Debug)]
pub(crate) struct Process {
    process: Subprocess,
    lines: Receiver<Option<String>>,
}

/// The kernel resources that a process holds.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct ResourceUsage {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) maps: usize,
}

impl Process {
    /// Starts a program with an empty environment, as user `uid` if this process is root.
    pub(crate) fn start(program: &Path, args: &[&str], uid: u32) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(args).env_clear();
        if rustix::process::geteuid().is_root() {
            command.uid(uid).gid(uid).current_dir("/");
        }
        let (sender, lines) = mpsc::channel();
        let process = Subprocess::start(&mut command, move |line| drop(sender.send(line)))?;
        Ok(Self { process, lines })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.process.send_line(line)
    }

    /// Closes its standard input.
    pub(crate) fn close_input(&mut self) {
        self.process.close();
    }

    /// Reads the next line that the process prints.
    pub(crate) fn read_line(&mut self) -> io::Result<String> {
        let line = self.lines.recv().ok().flatten();
        line.ok_or_else(|| io::Error::other("a process that the runner started exited too early"))
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    pub(crate) fn resources(&self) -> ResourceUsage {
        let proc = Path::new("/proc").join(self.pid().to_string());
        let count = |name: &str| fs::read_dir(proc.join(name)).map_or(0, Iterator::count);
        let maps = fs::read(proc.join("maps")).unwrap_or_default();
        let maps = maps.iter().filter(|byte| **byte == b'\n').count();
        // Since Linux 6.2 the size of /proc/PID/fd is the number of descriptors: no scan of thousands of entries.
        let reported =
            fs::metadata(proc.join("fd")).ok().and_then(|fd| usize::try_from(fd.len()).ok());
        let descriptors = reported.filter(|count| *count > 0).unwrap_or_else(|| count("fd"));
        ResourceUsage { descriptors, threads: count("task"), maps }
    }

    /// The CPU time that the process has used.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // Parse after the name, which may contain any character: state is the third field, utime and stime the 14th and 15th.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl ResourceUsage {
    /// The larger of both values, for each resource.
    pub(crate) fn maximum(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            maps: self.maps.max(other.maps),
        }
    }
}
