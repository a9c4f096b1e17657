use std::fs;
use std::time::Duration;

use bellwire::Lookup;
use bellwire_cgroups::Orchestrator;
use tempfile::TempDir;

use super::text::{Stat, Status, cgroup};
use super::*;

fn stat(comm: &[u8]) -> Vec<u8> {
    let numbers = b") S 41 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 8192 9 0\n";
    [b"42 (", comm, numbers].concat()
}

/// Processes, as files.
struct Proc(TempDir);

impl Proc {
    fn new() -> Self {
        let proc = Self(tempfile::tempdir().unwrap());
        fs::create_dir(proc.0.path().join("self")).unwrap();
        proc.process(1, &stat(b"init"), "Tgid:\t1\nUid:\t0\t0\t0\t0\n", "0::/init.scope\n");
        proc
    }

    fn process(&self, pid: u32, stat: &[u8], status: &str, cgroup: &str) {
        let dir = self.0.path().join(pid.to_string());
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(dir.join("status"), status).unwrap();
        fs::write(dir.join("cgroup"), cgroup).unwrap();
    }

    fn lookup(&self, pid: u32) -> Lookup<App> {
        Processes::open(self.0.path()).unwrap().lookup(pid)
    }
}

#[test]
fn a_process_is_described_by_its_files() {
    let proc = Proc::new();
    let status = "Name:\tx\nTgid:\t42\nPid:\t42\nUid:\t1000\t0\t0\t0\n";
    proc.process(42, &stat(b"cron"), status, "1:cpu:/\n0::/system.slice/cron.service\n");
    let app = proc.lookup(42).known().unwrap();
    let wanted = App {
        ppid: 41,
        uid: 1000,
        started: Duration::from_millis(123_450),
        comm: "cron".into(),
        cgroup: "/system.slice/cron.service".into(),
        orchestrator: Orchestrator::Systemd,
        cgroup_name: "cron".into(),
        labels: [("slice", "system.slice"), ("unit", "cron.service")]
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        pending: false,
    };
    assert_eq!(app, wanted);
}

#[test]
fn missing_processes_are_unknown_and_unreadable_ones_are_retried() {
    let proc = Proc::new();
    assert_eq!(proc.lookup(7), Lookup::Unknown);
    assert_eq!(proc.lookup(0), Lookup::Unknown);
    assert_eq!(proc.lookup(u32::MAX), Lookup::Unknown);
    proc.process(8, b"8 (half a line", "Tgid:\t8\nUid:\t0\n", "");
    assert_eq!(proc.lookup(8), Lookup::RetryLater);
    // A thread's id can be looked up in /proc, but is not a process.
    proc.process(9, &stat(b"thread"), "Tgid:\t8\nUid:\t0\n", "");
    assert_eq!(proc.lookup(9), Lookup::Unknown);
}

#[test]
fn hidden_processes_are_never_reported_missing() {
    let proc = Proc::new();
    fs::rename(proc.0.path().join("1"), proc.0.path().join("2")).unwrap();
    assert!(Processes::open(proc.0.path()).unwrap().is_hiding());
    assert_eq!(proc.lookup(7), Lookup::RetryLater);
}

#[test]
fn no_processes_at_all_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Processes::open(dir.path()), Err(ProcError::Missing)));
    assert!(matches!(Processes::open(&dir.path().join("none")), Err(ProcError::Missing)));
}

#[test]
fn a_name_may_have_any_bytes() {
    let name = |comm: &[u8]| Stat::parse(&stat(comm)).unwrap().comm;
    assert_eq!(name(b"a) R 1 (b"), "a) R 1 (b");
    assert_eq!(name(b")"), ")");
    assert_eq!(name(b"a\nb\x1b[31m"), "a\u{fffd}b\u{fffd}[31m");
    assert_eq!(name(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    assert_eq!(name(b""), "");
    assert_eq!(name("kworker/0:1-events_unbound".as_bytes()), "kworker/0:1-events_unbound");
}

#[test]
fn files_that_are_cut_or_odd_are_no_process() {
    let whole = stat(b"x");
    // Nothing behind the start time is needed.
    for len in 0..whole.len() - 18 {
        Stat::parse(&whole[..len]).unwrap_err();
    }
    for odd in [&b""[..], b"Uid:\t0\n", b"Tgid:\t1\n", b"Tgid:\t-1\nUid:\t0\n", b"Tgid:\nUid:\t1\n"]
    {
        Status::parse(odd).unwrap_err();
    }
}

#[test]
fn the_cgroup_is_that_of_the_most_specific_hierarchy() {
    for (lines, path) in [
        ("0::/a.slice\n", "/a.slice"),
        ("2:memory:/x\n1:name=systemd:/y\n0::/a.slice\n", "/a.slice"),
        ("2:memory:/x\n1:name=systemd:/y\n0::/\n", "/x"),
        ("3:memory:/m\n2:cpu,cpuacct:/c\n1:name=systemd:/y\n", "/c"),
        ("1:name=systemd:/user.slice\n", "/user.slice"),
        ("2:memory:/\n0::/\n", "/"),
        ("0::/gone.slice (deleted)\n", "/gone.slice"),
        ("0::/with:colon\n", "/with:colon"),
        ("", ""),
        ("nonsense\n", ""),
    ] {
        assert_eq!(cgroup(lines.as_bytes()), path, "{lines:?}");
    }
    assert_eq!(cgroup(b"0::/a\xffb\n"), "/a\u{fffd}b");
}
