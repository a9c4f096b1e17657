//! What an older kernel lacks, taken away by seccomp: the programs say so and go on. `docs/platforms.md` has the table.

use std::process::Command;

use rustix::io::Errno;
use serde_json::{Value, json};

use crate::sandbox::without;
use crate::support::{Ended, Place, Running, Signal};

const PLATFORMS: &str = include_str!("../../../docs/platforms.md");

/// A feature of the table as `doctor` names it, the calls without which the kernel has none, and how those fail.
fn lacking(feature: &str) -> (Value, Errno) {
    let pidfd_of_peer = json!({ "syscall": "getsockopt", "args": [equal(1, 1), equal(2, 77)] });
    match feature {
        "futex_waitv" => (json!([{ "syscall": "futex_waitv" }]), Errno::NOSYS),
        "MFD_NOEXEC_SEAL" => {
            let flag = json!({ "index": 1, "type": "dword", "op": { "masked_eq": 8 }, "val": 8 });
            (json!([{ "syscall": "memfd_create", "args": [flag] }]), Errno::INVAL)
        }
        "SO_PASSRIGHTS" => {
            let set = json!({ "syscall": "setsockopt", "args": [equal(1, 1), equal(2, 83)] });
            (json!([set]), Errno::NOPROTOOPT)
        }
        "SO_PEERPIDFD" => (json!([pidfd_of_peer]), Errno::NOPROTOOPT),
        "pidfd_open and poll" => {
            (json!([pidfd_of_peer, { "syscall": "pidfd_open" }]), Errno::NOSYS)
        }
        "io_uring" => (json!([{ "syscall": "io_uring_setup" }]), Errno::NOSYS),
        other => panic!("how can {other} be taken away?"),
    }
}

fn equal(index: u8, value: u64) -> Value {
    json!({ "index": index, "type": "dword", "op": "eq", "val": value })
}

fn take(command: &mut Command, (calls, error): &(Value, Errno)) {
    without(command, calls, error.raw_os_error());
}

/// The features of the table without which something is slower or weaker, but works.
fn features() -> Vec<&'static str> {
    let rows = PLATFORMS.lines().skip_while(|line| !line.starts_with("| feature |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim));
    let optional = cells.filter(|cells| cells.clone().next_back() != Some("nothing works"));
    optional.map(|mut cells| cells.next().unwrap()).collect()
}

#[test]
fn calls_snapshots_and_death_notices_work_without_each_optional_feature() {
    for feature in features() {
        // The first is tried below; the kernels of `ci/kernels` lack the second.
        if ["read-only map of a snapshot", "io_uring futex wait"].contains(&feature) {
            continue;
        }
        let missing = lacking(feature);
        let place = Place::new();
        let confined = |args: &[&str]| {
            let mut command = place.command(args);
            take(&mut command, &missing);
            command
        };
        let mut provide = confined(&["provide", "cgroups", "--synthetic", "20"]);
        let mut provider = Running::providing(&mut provide);

        let report = Ended::of(&mut confined(&["doctor", "--json"])).json();
        assert_eq!(report["ok"], true, "{report:#}");
        let probes = report["probes"].as_array().unwrap();
        let probe = probes.iter().find(|probe| probe["name"] == feature);
        assert_eq!(probe.expect(feature)["state"], "missing", "{report:#}");

        let get = Ended::of(&mut confined(&["get", "cgroups"]));
        assert_eq!((get.status, get.stdout.lines().count() > 20), (Some(0), true), "{get:?}");

        // Calls go on, and whoever they are for will not run again.
        let ping = ["ping", "cgroups-snapshot", "-c", "0", "-i", "1ms", "--timeout", "1h"];
        let mut client = Running::of(&mut confined(&ping));
        client.stdout_until("1: ");
        provider.signal(Signal::Stop);
        provider.end_by(Signal::Kill);
        // Long before the hour is over; a call that was parked as well as one that was not begun.
        client.stdout_until("no answer");
        assert_ne!(client.end_by(Signal::Int).code(), Some(0), "without {feature}");
    }
}

/// As before Linux 6.7, where no kernel at hand refuses it: the fix has gone into the older ones.
#[test]
fn write_sealed_memory_is_mapped_private_where_no_shared_map_is_possible() {
    let place = Place::new();
    let _provider = place.provide(&["cgroups", "--synthetic", "10000"]);
    // No lane is that long, so that this is the snapshot: PROT_READ and MAP_SHARED.
    let long = json!({ "index": 1, "type": "qword", "op": "gt", "val": 512 << 10 });
    let shared = json!({ "index": 3, "type": "dword", "op": { "masked_eq": 1 }, "val": 1 });
    let calls = json!([{ "syscall": "mmap", "args": [long, equal(2, 1), shared] }]);
    for error in [Errno::PERM, Errno::INVAL, Errno::ACCESS] {
        let mut get = place.command(&["get", "cgroups"]);
        take(&mut get, &(calls.clone(), error));
        let ended = Ended::of(&mut get);
        assert_eq!((ended.status, ended.stdout.lines().count() > 10_000), (Some(0), true));
    }
    // Or the filter would show nothing.
    let mut get = place.command(&["get", "cgroups"]);
    take(&mut get, &(calls, Errno::NOMEM));
    assert_ne!(Ended::of(&mut get).status, Some(0), "no such map is asked for");
}
