//! The machine and the build that a run was made on.

use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// What a reader of the report has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct System {
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    /// Where the two ends ran: the measuring one, the server.
    pub(crate) pinned: (usize, usize),
    pub(crate) governor: String,
    pub(crate) virtualized: String,
    pub(crate) mitigations: String,
    pub(crate) memory_mib: u64,
    pub(crate) load: String,
    /// Of the program, wherever it runs: as it was built.
    pub(crate) rustc: String,
    pub(crate) profile: String,
    pub(crate) commit: String,
}

/// The machine at one time of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    /// `before`, or the scenario that has just ended.
    pub(crate) when: String,
    /// Since the beginning of the run, s.
    pub(crate) at_s: f64,
    pub(crate) load: String,
    /// The part of all processors' time since the state before in which they worked, for whomever; the first one's is since
    /// the machine started.
    pub(crate) busy: f64,
    /// The part that the hypervisor gave to others.
    pub(crate) stolen: f64,
}

/// Looks at the machine now and then.
pub(crate) struct Watch {
    began: Instant,
    last: Ticks,
}

/// The first line of `/proc/stat`: proc_stat(5).
#[derive(Clone, Copy, Default)]
struct Ticks {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), last: Ticks::default() }
    }

    pub(crate) fn snapshot(&mut self, when: &str) -> State {
        let now = Ticks::now();
        let all = now.all.saturating_sub(self.last.all).max(1);
        #[expect(clippy::cast_precision_loss, reason = "ticks of a run")]
        let part = |ticks: u64| ticks as f64 / all as f64;
        let state = State {
            when: when.to_owned(),
            at_s: self.began.elapsed().as_secs_f64(),
            load: file("/proc/loadavg").unwrap_or_else(|| UNKNOWN.to_owned()),
            busy: 1.0 - part(now.idle.saturating_sub(self.last.idle)),
            stolen: part(now.stolen.saturating_sub(self.last.stolen)),
        };
        self.last = now;
        state
    }
}

impl Ticks {
    fn now() -> Self {
        let text = file("/proc/stat").unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
        let ticks: Vec<u64> =
            first.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        Self { all: ticks.iter().sum(), idle: at(3) + at(4), stolen: at(7) }
    }
}

const UNKNOWN: &str = "unknown";

impl System {
    pub(crate) fn snapshot(pinned: (usize, usize)) -> Self {
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let governor = format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", pinned.0);
        Self {
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
            cpu: field(&info, "model name").unwrap_or_else(|| text(uname.machine())),
            cpus: info.lines().filter(|line| line.starts_with("processor")).count(),
            pinned,
            governor: file(&governor).unwrap_or_else(|| "unknown".to_owned()),
            virtualized: virtualized(&info),
            mitigations: mitigations(),
            memory_mib: rustix::system::sysinfo().totalram >> 20,
            load: file("/proc/loadavg").unwrap_or_else(|| UNKNOWN.to_owned()),
            rustc: env!("BENCH_RUSTC").to_owned(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            commit: env!("BENCH_COMMIT").to_owned(),
        }
    }
}

fn virtualized(info: &str) -> String {
    if !field(info, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
    {
        return "no hypervisor reported".to_owned();
    }
    let by = file("/sys/class/dmi/id/sys_vendor").or_else(|| file("/sys/hypervisor/type"));
    by.map_or_else(|| "yes".to_owned(), |by| format!("yes, {by}"))
}

/// The kernel's mitigations for its processor, only those that are active.
fn mitigations() -> String {
    let Ok(files) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return UNKNOWN.to_owned();
    };
    let mut names: Vec<String> = files
        .flatten()
        .filter(|file| {
            fs::read_to_string(file.path()).is_ok_and(|text| text.starts_with("Mitigation"))
        })
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn field(info: &str, name: &str) -> Option<String> {
    let line = info.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn file(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
