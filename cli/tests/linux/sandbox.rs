#![allow(unsafe_code, reason = "a filter is installed between fork and exec")]
//! Under a seccomp filter of the calls that `docs/threat-model.md` lists, and of no other.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use bellwire::{Backend, Client, RunDir, ServerConfig};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{self, Pid, Resource, Rlimit, kill_process, setrlimit};
use seccompiler::{BpfProgram, TargetArch};
use serde_json::{Value, json};

use crate::stat::{Doubled, serve};
use crate::support::{Ended, Place, Running, Signal};

const MODEL: &str = include_str!("../../../docs/threat-model.md");
/// The demo's own row: a plugin does not need it.
const DEMO: &str = "the demo:";

/// What ends a process by default writes a core file.
const NO_CORE: &[(Resource, u64); 1] = &[(Resource::Core, 0)];

/// The calls of the table's rows whose first cell does not begin with `without`.
fn listed(without: &str) -> BTreeSet<String> {
    let section = MODEL.split("## System calls").nth(1).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().skip_while(|line| !line.starts_with("| for |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.filter(|row| !row[2..].starts_with(without))
        .flat_map(|row| names(after_label(row)))
        .collect()
}

fn after_label(row: &str) -> &str {
    row.splitn(3, '|').nth(2).expect("a row has two cells")
}

fn unobserved_calls() -> BTreeSet<String> {
    let text = MODEL.split("Never seen with").nth(1).expect("the paragraph is there");
    names(text.split("\n\n").next().unwrap_or(text)).collect()
}

/// What stands in backticks and can be the name of a call.
fn names(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('`').skip(1).step_by(2).filter(|name| is_call(name)).map(str::to_owned)
}

fn is_call(name: &str) -> bool {
    let is_of_a_name = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    !name.is_empty() && name.bytes().all(is_of_a_name)
}

fn compiled(policy: &Value) -> BpfProgram {
    let policy = json!({ "all": policy }).to_string();
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known architecture");
    let mut filters = seccompiler::compile_from_json(policy.as_bytes(), arch).unwrap();
    filters.remove("all").unwrap()
}

/// Has a command begin with this filter of seccompiler, and these limits.
fn filter(command: &mut Command, policy: &Value, limits: &'static [(Resource, u64)]) {
    let filter = compiled(policy);
    let install = move || {
        // What this process was started with is not counted, such as a jobserver's pipes.
        for inherited in 3..1024 {
            // SAFETY: a number that is no descriptor is an error, and no other thread is left here.
            let inherited = unsafe { BorrowedFd::borrow_raw(inherited) };
            let _ = fcntl_setfd(inherited, FdFlags::CLOEXEC);
        }
        for (resource, most) in limits {
            setrlimit(*resource, Rlimit { current: Some(*most), maximum: Some(*most) })?;
        }
        seccompiler::apply_filter(&filter).map_err(|_| ErrorKind::Unsupported.into())
    };
    // SAFETY: the closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}

/// Only these calls, from its first instruction on; any other ends the process.
fn confine(command: &mut Command, calls: &BTreeSet<String>, limits: &'static [(Resource, u64)]) {
    let allowed: Vec<_> = calls.iter().map(|call| json!({ "syscall": call })).collect();
    let policy = json!({
        "mismatch_action": "kill_process", "match_action": "allow", "filter": allowed,
    });
    filter(command, &policy, limits);
}

fn demo(place: &Place, calls: &BTreeSet<String>) -> Ended {
    let mut command = place.command(&["demo", "--seconds", "1", "--json"]);
    confine(&mut command, calls, NO_CORE);
    Ended::of(&mut command)
}

#[test]
fn the_demo_needs_no_call_that_is_not_listed() {
    let place = Place::new();
    let ended = demo(&place, &listed("nothing"));
    assert_eq!(ended.status, Some(0), "{ended:?}: strace(1) tells which call it was");
    assert_eq!(ended.json()["ok"], true, "{ended:?}");
}

/// Or the filter would show nothing.
#[test]
fn a_call_that_is_left_out_ends_a_provider() {
    for call in ["memfd_create", "flock", "epoll_create1"] {
        let place = Place::new();
        let mut calls = listed(DEMO);
        assert!(calls.remove(call), "{call} is not listed");
        let mut provide = place.command(&["provide", "cgroups", &place.root_option()]);
        confine(&mut provide, &calls, NO_CORE);
        let ended = Ended::of(&mut provide);
        assert_eq!(ended.status, None, "without {call} it goes on: {ended:?}");
    }
}

/// A provider and a client with what is said to be enough: no other call, and few descriptors.
#[test]
fn a_provider_and_a_client_need_no_call_and_no_more_than_is_listed() {
    const CLIENT: &[(Resource, u64)] = &few(18);
    const fn few(descriptors: u64) -> [(Resource, u64); 4] {
        let [core] = *NO_CORE;
        [(Resource::Nofile, descriptors), (Resource::Memlock, 0), (Resource::Fsize, 1 << 20), core]
    }
    // 19 of a provider, 3 of a snapshot in a memfd, 2 of the session of `ping`, which may still be on its way out, and 3 of the
    // handshake of `get`. A scan has up to 4 more, for as long as another thread keeps the processor from it.
    const IDLE: &[(Resource, u64)] = &few(19 + 3 + 2 + 3);
    const SCANNING: &[(Resource, u64)] = &few(19 + 3 + 2 + 3 + 4);
    for (interval, limits) in [("1h", IDLE), ("5ms", SCANNING)] {
        let place = Place::new();
        let calls = listed(DEMO);
        let args = ["provide", "cgroups", &place.root_option(), "--interval", interval, "-v"];
        let mut provide = place.command(&args);
        confine(&mut provide, &calls, limits);
        let mut provider = Running::providing(&mut provide);
        for args in [&["ping", "cgroups-snapshot", "-i", "1ms"][..], &["get", "cgroups"]] {
            let mut client = place.command(args);
            confine(&mut client, &calls, CLIENT);
            let ended = Ended::of(&mut client);
            assert_eq!(ended.status, Some(0), "{interval} {args:?}: {ended:?}");
        }
        assert_eq!(provider.end_by(Signal::Int).code(), Some(0), "it was ended by a call");
    }
}

/// Only without these calls, which fail with this error: filters of seccompiler.
pub(crate) fn without(command: &mut Command, calls: &Value, error: i32) {
    filter(command, &all_but(calls, error), &[]);
}

fn all_but(calls: &Value, error: i32) -> Value {
    json!({ "mismatch_action": "allow", "match_action": { "errno": error }, "filter": calls })
}

#[test]
fn without_io_uring_a_server_falls_back_to_epoll_and_reports_the_reason() {
    for (error, why) in [(Errno::PERM, "forbids"), (Errno::NOSYS, "has no io_uring")] {
        let error = error.raw_os_error();
        let place = Place::new();
        let io_uring = json!([{ "syscall": "io_uring_setup" }]);
        let filter = compiled(&all_but(&io_uring, error));
        // Of this thread, and of those that it starts.
        let confined = || {
            seccompiler::apply_filter(&filter).unwrap();
            let server = serve(&place, ServerConfig::default().backend(Backend::IoUring));
            let said = server.backend().why_not.unwrap();
            assert!(said.contains(why), "{said}");
            let mut client = Client::<Doubled>::new(&RunDir::new(place.run_dir()));
            assert_eq!(client.call(&21).unwrap(), 42);
        };
        thread::scope(|scope| scope.spawn(confined).join()).unwrap();

        let mut doctor = place.command(&["doctor", "--json"]);
        without(&mut doctor, &io_uring, error);
        let report = Ended::of(&mut doctor).json();
        assert_eq!(report["ok"], true, "{report:#}");
        let probes = report["probes"].as_array().unwrap();
        let ring = probes.iter().find(|probe| probe["name"] == "io_uring").unwrap();
        let detail = ring["detail"].as_str().unwrap();
        assert!(ring["state"] == "missing" && detail.contains(why), "{ring}");
        assert!(detail.contains("servers wait with epoll"), "{ring}");
    }
}

#[test]
fn every_system_call_is_listed_and_observed_or_marked_as_unobserved() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("not run: strace is missing; ci/packages strace installs it");
        return;
    }
    let place = Place::new();
    let log = place.temp().join("strace");
    let traced = |args: &[&str]| {
        let command = place.command(args);
        let mut traced = Command::new("strace");
        traced.args(["-f", "-ff", "-qq", "-o"]).arg(&log).arg(command.get_program());
        traced.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => traced.env(name, value),
                None => traced.env_remove(name),
            };
        }
        traced
    };
    let args = ["provide", "cgroups", &place.root_option(), "--interval", "5ms", "-v"];
    let mut provider = Running::providing(&mut traced(&args));
    // So many calls that it sleeps in one of them, though a spinning thread yields.
    let ping = ["ping", "cgroups-snapshot", "-i", "1ms", "-c", "300"];
    for args in [&ping[..], &["get", "cgroups"]] {
        let ended = Ended::of(&mut traced(args));
        assert_eq!(ended.status, Some(0), "{ended:?}");
    }
    // Ended by its own hand: what that takes is seen, too.
    let process = fs::read_dir(place.temp()).unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.strip_prefix("strace.")?.parse().ok()
    });
    let first = process.min().expect("a provider is traced");
    kill_process(Pid::from_raw(first).unwrap(), process::Signal::INT).unwrap();
    provider.end();
    let seen: BTreeSet<String> = fs::read_dir(place.temp())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("strace."))
        .flat_map(|path| calls_in(&fs::read_to_string(path).unwrap()))
        .collect();
    let all = listed(DEMO);
    let unlisted: Vec<_> = seen.difference(&all).collect();
    assert!(unlisted.is_empty(), "called and not listed: {unlisted:?}");
    let unseen: BTreeSet<_> = all.difference(&seen).cloned().collect();
    let idle: Vec<_> = unseen.difference(&unobserved_calls()).cloned().collect();
    assert!(idle.is_empty(), "listed, not called, and not said to be so: {idle:?}");
    let odd: Vec<_> = unobserved_calls().difference(&all).cloned().collect();
    assert!(odd.is_empty(), "said not to be called, and not listed: {odd:?}");
    println!("{} calls are listed, {} were not called: {unseen:?}", all.len(), unseen.len());
}

/// The names of the calls in a log of strace.
fn calls_in(log: &str) -> Vec<String> {
    let names = log.lines().map(|line| match line.split('(').next().unwrap_or_default() {
        // An older strace knows it by number alone.
        "syscall_0x1c3" => "cachestat",
        name => name,
    });
    names.filter(|name| is_call(name)).map(str::to_owned).collect()
}
