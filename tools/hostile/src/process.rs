use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use std::os::unix::process::CommandExt;

/// A process of the run: it reads lines, writes lines, and ends with its input.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) maps: usize,
}

impl Process {
    /// Starts a program as that user, if this process may, with nothing of its environment.
    pub(crate) fn start(program: &Path, args: &[&str], uid: u32) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(args).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.uid(uid).gid(uid).current_dir("/");
        }
        let mut child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", program.display()))
        })?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(Self { child, input, output })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, line: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{line}")
    }

    /// Closes its input.
    pub(crate) fn finish(&mut self) {
        self.input = None;
    }

    /// The next line that it prints.
    pub(crate) fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(io::Error::other("a process of the run ended too early"));
        }
        Ok(line.trim().to_owned())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn held(&self) -> Held {
        let proc = Path::new("/proc").join(self.pid().to_string());
        let count = |name: &str| fs::read_dir(proc.join(name)).map_or(0, Iterator::count);
        let maps = fs::read(proc.join("maps")).unwrap_or_default();
        let maps = maps.iter().filter(|byte| **byte == b'\n').count();
        // Linux 6.2 reports how many there are without a scan of thousands.
        let told = fs::metadata(proc.join("fd")).ok().and_then(|fd| usize::try_from(fd.len()).ok());
        let descriptors = told.filter(|told| *told > 0).unwrap_or_else(|| count("fd"));
        Held { descriptors, threads: count("task"), maps }
    }

    /// The processor time that it has used.
    pub(crate) fn used(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // After the name, which may hold anything: state is the third field, utime and stime the 14th and 15th.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Held {
    pub(crate) fn most(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            maps: self.maps.max(other.maps),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        let patience = Instant::now() + Duration::from_millis(300);
        while !self.has_ended() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
