//! `doctor`: checks whether tracing is possible, and gives advice if not.

use std::fs;
use std::path::Path;

use bellwire_trace_core::{TYPES, processes};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::error::Error;
use crate::out::outln;

/// Capability numbers, from `capabilities(7)`.
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// BPF cookies of uprobes, by which a program distinguishes the probes: Linux 5.15.
const OLDEST: (u32, u32) = (5, 15);

#[derive(Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    /// Tracing works without it, but shows less.
    optional: bool,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Error> {
    let checks = [
        kernel(),
        types(),
        capabilities(),
        lockdown(),
        uprobes(),
        other_users(),
        targets(args.pid)?,
    ];
    if args.json {
        outln!("{}", serde_json::to_string(&checks)?);
    } else {
        for check in &checks {
            let mark = match (check.ok, check.optional) {
                (true, _) => "ok",
                (false, true) => "note",
                (false, false) => "FAIL",
            };
            outln!("{mark:<4}  {:<12}  {}", check.name, check.found);
            if let Some(hint) = &check.hint {
                outln!("{:<4}  {:<12}  -> {hint}", "", "");
            }
        }
    }
    match checks.iter().filter(|check| !check.ok && !check.optional).count() {
        0 => Ok(()),
        failed => Err(Error::ChecksFailed { failed }),
    }
}

fn check(name: &'static str, ok: bool, found: String, hint: impl Into<String>) -> Check {
    let hint = (!ok).then(|| hint.into());
    Check { name, ok, optional: false, found, hint }
}

fn kernel() -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    check("kernel", version >= OLDEST, format!("Linux {release}"), "Linux 5.15 or newer")
}

fn types() -> Check {
    let path = Path::new(TYPES);
    let found = if path.exists() { "type information" } else { "no /sys/kernel/btf/vmlinux" };
    check("BTF", path.exists(), found.to_owned(), "a kernel built with CONFIG_DEBUG_INFO_BTF=y")
}

fn capabilities() -> Check {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = effective_capabilities(&status);
    let has = |capability: u32| mask >> capability & 1 == 1 || mask >> SYS_ADMIN & 1 == 1;
    let missing: Vec<&str> = [(BPF, "CAP_BPF"), (PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter(|(capability, _)| !has(*capability))
        .map(|(_, name)| name)
        .collect();
    let found = match missing.is_empty() {
        true => "CAP_BPF and CAP_PERFMON".to_owned(),
        false => format!("{} missing", missing.join(" and ")),
    };
    let program = std::env::current_exe().unwrap_or_else(|_| "bellwire-trace".into());
    let hint = format!("sudo setcap cap_bpf,cap_perfmon+ep {}", program.display());
    check("capabilities", missing.is_empty(), found, hint)
}

/// Returns the effective capabilities in `/proc/PID/status`.
fn effective_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn lockdown() -> Check {
    let text = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let confidential = text.contains("[confidentiality]");
    let found = match text.trim() {
        "" => "none, or the kernel does not show it".to_owned(),
        text => text.to_owned(),
    };
    check(
        "lockdown",
        !confidential,
        found,
        "boot without lockdown=confidentiality: it does not allow BPF programs to read memory",
    )
}

fn uprobes() -> Check {
    let path = Path::new("/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset");
    let found = if path.exists() { "with semaphores" } else { "no uprobes with semaphores" };
    check("uprobes", path.exists(), found.to_owned(), "a kernel built with CONFIG_UPROBE_EVENTS=y")
}

/// Checks whether other users' processes can be inspected.
fn other_users() -> Check {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let visible = effective_capabilities(&status) >> SYS_PTRACE & 1 == 1;
    let found = if visible { "can be listed and attached to" } else { "are not visible" };
    let hint = "run as root, or as the user of the processes, or name their files with --exe";
    Check {
        optional: true,
        ..check("others", visible, format!("processes of other users {found}"), hint)
    }
}

fn targets(pid: Option<u32>) -> Result<Check, Error> {
    let pids = pid.map_or_else(processes::pids, |pid| Ok(vec![pid]))?;
    let found = processes::traceable(&pids);
    let processes: usize = found.iter().map(|file| file.pids.len()).sum();
    let text = format!("{processes} processes with probes, {} files", found.len());
    let hint = "start one, built with Bellwire's feature `probes` (the default)";
    // A machine without a traceable process passes, unless a process was given.
    let optional = pid.is_none();
    Ok(Check { optional, ..check("targets", processes > 0, text, hint) })
}

#[cfg(test)]
mod tests {
    use super::{BPF, PERFMON, effective_capabilities};

    #[test]
    fn capabilities_are_read_from_the_effective_mask() {
        let status = "Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t000000c000000000\n";
        assert_eq!(effective_capabilities(status), 1 << BPF | 1 << PERFMON);
        assert_eq!(effective_capabilities(""), 0);
    }
}
