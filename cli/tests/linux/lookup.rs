//! Real processes and real cgroups, looked up.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use bellwire::{CallError, Client, ClientConfig, RunDir, Service};
use bellwire_apps::AppsLookup;

use crate::machine::{Idle, RealCgroup, remove};
use crate::support::{Ended, Place, Running, Signal, shell};

fn get(place: &Place, subject: &str, keys: &[String]) -> (Option<i32>, Value) {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let ended = place.run(&[&["get", subject, "--json"], &keys[..]].concat());
    let json = ended.json();
    (ended.status, json)
}

fn app(place: &Place, pid: u32) -> Value {
    get(place, "apps", &[pid.to_string()]).1["apps"][0].clone()
}

#[test]
fn a_process_is_described_by_the_kernel_until_it_is_gone() {
    let place = Place::new();
    let _provider = place.provide(&["apps"]);
    let mut idle = Idle::new();
    let found = app(&place, idle.pid());
    assert_eq!((&found["status"], &found["comm"]), (&"known".into(), &"sleep".into()));
    assert_eq!(found["ppid"], std::process::id());
    let dir = PathBuf::from(format!("/proc/{}", idle.pid()));
    assert_eq!(found["uid"], fs::metadata(&dir).unwrap().uid());
    let stat = fs::read_to_string(dir.join("stat")).unwrap();
    let ticks: u64 = stat.split_whitespace().nth(21).unwrap().parse().unwrap();
    assert_eq!(found["started_ns"], ticks * 10_000_000);
    let cgroups = fs::read_to_string(dir.join("cgroup")).unwrap();
    let path = found["cgroup"].as_str().unwrap();
    assert!(cgroups.lines().any(|line| line.ends_with(&format!(":{path}"))), "{path}: {cgroups}");
    idle.end();
    let (status, gone) = get(&place, "apps", &[idle.pid().to_string()]);
    assert_eq!((status, &gone["apps"][0]["status"]), (Some(8), &"unknown".into()));
}

#[test]
fn kernel_threads_have_names_and_threads_of_a_process_are_none() {
    let place = Place::new();
    let _provider = place.provide(&["apps"]);
    let (sender, receiver) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        sender.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
        let _ = ended.recv();
    });
    let thread_id: u32 =
        receiver.recv().unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!(app(&place, thread_id)["status"], "unknown");
    drop(end);
    thread.join().unwrap();
    match fs::read_to_string("/proc/2/comm") {
        Ok(name) if name.trim_end() == "kthreadd" => {
            let found = app(&place, 2);
            assert_eq!((&found["comm"], &found["ppid"]), (&"kthreadd".into(), &0.into()));
        }
        _ => eprintln!("skipped: there are no kernel threads in this pid namespace"),
    }
}

#[test]
fn a_name_of_odd_bytes_is_shown_and_harms_no_terminal() {
    let place = Place::new();
    let _provider = place.provide(&["apps"]);
    let script = r"printf 'x) R 1\n\033[\377y' > /proc/self/comm; echo ready; read -r _";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut odd = Idle(command.spawn().unwrap());
    let mut ready = [0; 6];
    std::io::Read::read_exact(odd.0.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let found = app(&place, odd.pid());
    assert_eq!(found["comm"], "x) R 1\u{fffd}\u{fffd}[\u{fffd}y");
    assert_eq!(found["ppid"], std::process::id());
    odd.end();
}

#[test]
fn processes_that_die_during_a_lookup_disturb_no_other_lookup() {
    let place = Place::new();
    let _provider = place.provide(&["apps"]);
    let idle = Idle::new();
    let most: u32 = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim().parse().unwrap();
    let last = most.min(60_000);
    let (mut known, mut asked) = (0, 0);
    thread::scope(|scope| {
        let breeder = scope.spawn(|| {
            for _ in 0..60 {
                let mut brief: Vec<_> = (0..5)
                    .map(|_| Command::new("true").stdin(Stdio::null()).spawn().unwrap())
                    .collect();
                assert!(brief.iter_mut().all(|child| child.wait().unwrap().success()));
            }
        });
        while asked == 0 || !breeder.is_finished() {
            let mut command = place.command(&["get", "apps", "-", "--json", "--timeout", "60s"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            for pid in (1..=last).chain([idle.pid()]) {
                writeln!(stdin, "{pid}").unwrap();
            }
            drop(stdin);
            let ended = Ended::from(child.wait_with_output().unwrap());
            assert_eq!(ended.status, Some(8), "{}", ended.stderr);
            let json = ended.json();
            let apps = json["apps"].as_array().unwrap();
            assert_eq!(apps.len(), last as usize + 1);
            assert_eq!(apps.last().unwrap()["status"], "known");
            known = json["count"]["known"].as_u64().unwrap();
            assert_eq!(json["count"]["too_large"], 0);
            asked += 1;
        }
    });
    assert!(known >= 2, "this process, and the idle one");
}

#[test]
fn hidden_processes_are_reported_and_none_counts_as_gone() {
    // Where an unprivileged user may come.
    let open = tempfile::tempdir().unwrap();
    let (program, run, proc) =
        (open.path().join("bellwire"), open.path().join("run"), open.path().join("proc"));
    // By another process: a child that another test forks would keep this one's descriptor for writing, and nobody could run it.
    let (from, to) = (env!("CARGO_BIN_EXE_bellwire"), program.to_str().unwrap());
    assert_eq!(shell("cp \"$0\" \"$1\"", &[from, to]), Some(true));
    for dir in [&run, &proc] {
        fs::create_dir(dir).unwrap();
    }
    let words = |path: &Path| path.to_str().unwrap().to_owned();
    let (program, run, proc) = (words(&program), words(&run), words(&proc));
    let may = "chmod 755 \"$0\" && chown 65534:65534 \"$1\" && unshare -m true && \
               setpriv --reuid 65534 --regid 65534 --clear-groups true";
    if shell(may, &[&words(open.path()), &run]) != Some(true) {
        return eprintln!("skipped: this user may not mount proc(5), or be another");
    }
    let as_nobody = "exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let hidden = format!("mount -t proc -o hidepid=2 proc '{proc}' && {as_nobody}");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &hidden, "sh", &program, "--run-dir", &run]);
    command.args(["provide", "apps", "--root", &proc]).current_dir(open.path());
    let mut provider = Running::providing(&mut command);
    assert!(provider.stderr_until("incomplete").contains("hidepid"));
    let pids = ["1", &provider.pid().to_string(), "4194303"].map(str::to_owned);
    let mut command = Command::new("sh");
    command.args(["-c", as_nobody, "sh", &program, "--run-dir", &run, "get", "apps", "--json"]);
    let ended = Ended::of(command.args(&pids).current_dir(open.path()));
    assert_eq!(ended.status, Some(9), "{ended:?}");
    let json = ended.json();
    let states = [0, 1, 2].map(|at| json["apps"][at]["status"].as_str().unwrap().to_owned());
    assert_eq!(states, ["retry-later", "known", "retry-later"]);
}

#[test]
fn a_real_cgroup_and_its_processes_are_known_as_long_as_they_exist() {
    let unit = format!("bellwire-lookup-{}.service", std::process::id());
    let Some(made) = RealCgroup::new(&[&unit]) else { return };
    let place = Place::new();
    let _cgroups = place.provide(&["cgroups-lookup"]);
    let _apps = place.provide(&["apps"]);
    let path = made.path.clone();
    let lookup = || get(&place, "cgroups-lookup", std::slice::from_ref(&path));
    let (status, json) = lookup();
    assert_eq!(status, Some(0), "{json}");
    let found = &json["cgroups"][0];
    let inode = fs::metadata(made.dir()).unwrap().ino();
    assert_eq!(found["id"].as_u64().unwrap() << 8 >> 8, inode);
    assert_eq!(found["orchestrator"], "systemd");
    assert_eq!(found["labels"]["unit"], path[1..]);

    let mut idle = Idle::new();
    if idle.moves_to(made.dir()) {
        let found = app(&place, idle.pid());
        assert_eq!(found["cgroup"], path);
        assert_eq!(found["orchestrator"], "systemd");
        let name = path[1..].strip_suffix(".service").unwrap();
        assert_eq!((&found["cgroup_name"], &found["pending"]), (&name.into(), &false.into()));
        assert_eq!(found["labels"]["unit"], path[1..]);
    }
    idle.end();
    remove(made.dir());
    let (status, json) = lookup();
    assert_eq!((status, &json["cgroups"][0]["status"]), (Some(8), &"unknown".into()));
}

/// Two processes whose files are pipes: the provider waits at each of them until the test lets it go on.
struct Gates(tempfile::TempDir);

/// Where the provider is, until this is dropped.
type Held = fs::File;

impl Gates {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["self", "1", "2"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        let gates = Self(root);
        let paths = [1, 2].map(|pid| gates.status(pid));
        let paths = paths.each_ref().map(|path| path.to_str().unwrap());
        assert_eq!(shell("mkfifo \"$0\" \"$1\"", &paths), Some(true));
        gates
    }

    fn status(&self, pid: u32) -> PathBuf {
        self.0.path().join(pid.to_string()).join("status")
    }

    fn provide(&self, place: &Place) -> Running {
        place.provide(&["apps", "--root", self.0.path().to_str().unwrap()])
    }

    /// Waits until the provider looks at the first of them.
    fn wait_at_first(&self) -> Held {
        fs::OpenOptions::new().write(true).open(self.status(1)).unwrap()
    }
}

fn sessions(place: &Place) -> u64 {
    let ended = place.run(&["stat", AppsLookup::NAME, "--format", "json"]);
    let stats = ended.json();
    let services = stats["services"].as_array().unwrap_or_else(|| panic!("{stats}"));
    let row = services.iter().find(|row| row["service"] == AppsLookup::NAME).unwrap();
    row["stats"]["sessions"].as_u64().unwrap_or_else(|| panic!("{row}"))
}

#[test]
fn a_batch_of_a_killed_client_ends_with_the_current_item() {
    let (place, gates) = (Place::new(), Gates::new());
    let mut provider = gates.provide(&place);
    let mut client = place.start(&["get", "apps", "1", "2", "--timeout", "60s"]);
    let held = gates.wait_at_first();
    client.end_by(Signal::Kill);
    while sessions(&place) > 0 {
        thread::yield_now();
    }
    drop(held);
    // It would wait at the second for ever.
    provider.signal(Signal::Term);
    provider.all_ended();
    assert!(provider.end().success());
}

#[test]
fn a_provider_that_stops_during_a_batch_ends_with_the_current_item() {
    let (place, gates) = (Place::new(), Gates::new());
    let mut provider = gates.provide(&place);
    let mut client = place.start(&["get", "apps", "1", "2", "--timeout", "60s"]);
    let held = gates.wait_at_first();
    provider.signal(Signal::Term);
    // It answers what it can for a while, then closes the lane.
    assert!(!client.end().success());
    drop(held);
    provider.all_ended();
    assert!(provider.end().success());
}

#[test]
fn batches_cost_a_provider_no_more_memory_than_their_limit_allows() {
    let place = Place::new();
    let provider = place.provide(&["apps"]);
    let peak = || {
        let status = fs::read_to_string(format!("/proc/{}/status", provider.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    };
    let before = peak();
    let run_dir = RunDir::new(place.run_dir());
    let timeout = Duration::from_secs(60);
    let config = || ClientConfig::default().timeout(timeout).connect_timeout(timeout);
    let open = || Client::<AppsLookup>::with_config(&run_dir, config());
    let pids: Vec<u32> = (0..2 << 20).collect();
    let mut greedy = [open(), open()];
    for client in &mut greedy {
        let session = client.connect().unwrap();
        let error = session.call_batch(&pids).map(|answers| answers.len()).unwrap_err();
        let CallError::TooManyItems { items, limit } = error else { panic!("{error}") };
        assert_eq!((items, limit), (pids.len() as u64, session.max_batch() as u64));
        for batch in pids.chunks(session.max_batch()).take(4) {
            session.submit_batch(batch).unwrap();
        }
    }
    drop(greedy);
    let app = app(&place, std::process::id());
    assert_eq!(app["status"], "known");
    let grown = peak() - before;
    println!("{} KiB more than the {} KiB before", grown >> 10, before >> 10);
    assert!(grown < 128 << 20, "{} KiB more than the {} KiB before", grown >> 10, before >> 10);
}
