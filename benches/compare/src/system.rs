//! The machine and the build that a run was made on.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// What a reader of the report has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct System {
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    /// Where the two ends ran: the measuring one, the server.
    pub(crate) pinned: (usize, usize),
    pub(crate) governor: String,
    pub(crate) virtualised: String,
    pub(crate) mitigations: String,
    pub(crate) memory_mib: u64,
    pub(crate) load: String,
    pub(crate) rustc: String,
    pub(crate) profile: String,
    pub(crate) commit: String,
}

const UNKNOWN: &str = "unknown";

impl System {
    pub(crate) fn look(pinned: (usize, usize)) -> Self {
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let governor = format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", pinned.0);
        Self {
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
            cpu: field(&info, "model name").unwrap_or_else(|| text(uname.machine())),
            cpus: info.lines().filter(|line| line.starts_with("processor")).count(),
            pinned,
            governor: file(&governor).unwrap_or_else(|| "none is told".to_owned()),
            virtualised: virtualised(&info),
            mitigations: mitigations(),
            memory_mib: rustix::system::sysinfo().totalram >> 20,
            load: file("/proc/loadavg").unwrap_or_else(|| UNKNOWN.to_owned()),
            rustc: said("rustc", &["--version"]),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            commit: said("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        }
    }
}

fn virtualised(info: &str) -> String {
    if !field(info, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
    {
        return "no hypervisor is told".to_owned();
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

/// The output of a program, which may be missing.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok();
    let output = output.filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|| UNKNOWN.to_owned())
}
