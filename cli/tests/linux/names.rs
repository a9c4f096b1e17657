//! Names of cgroups, from real sources: a file, commands, HTTP on a Unix socket, the kubelet's directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::machine::{Idle, RealCgroup, remove};
use crate::support::{Place, Running, Signal, bellwire, chmod, shell};

/// The id of a container that no other test has.
fn id(digit: u8) -> String {
    format!("{digit:x}{:063x}", std::process::id())
}

fn provide(place: &Place, subject: &str, args: &[&str]) -> Running {
    place.provide(&[&[subject, "--interval", "10ms"], args].concat())
}

/// A provider of the synthetic hierarchy, with the names of these sources.
fn provide_named(place: &Place, sources: &[&str], args: &[&str]) -> Running {
    let sources: Vec<String> = sources.iter().map(|source| format!("--names={source}")).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    provide(place, "cgroups", &[&[&*place.root_option()], &sources[..], args].concat())
}

/// One that says something before, or after, it is ready.
fn start(place: &Place, args: &[&str]) -> Running {
    place.start(&[&["provide", "cgroups", "--interval", "10ms"], args].concat())
}

/// The cgroup of this path in the snapshot once `is_right`; the test hangs otherwise.
fn wait_for(place: &Place, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    loop {
        let got = place.run(&["get", "cgroups", "--json"]);
        if got.status == Some(3) {
            continue;
        }
        let snapshot = got.json();
        let cgroups = snapshot["cgroups"].as_array().unwrap();
        match cgroups.iter().find(|cgroup| cgroup["path"] == path) {
            Some(cgroup) if is_right(cgroup) => return cgroup.clone(),
            _ => thread::yield_now(),
        }
    }
}

fn is_pending(cgroup: &Value) -> bool {
    cgroup["options"].as_array().unwrap().contains(&"pending".into())
}

fn has_name(name: &str) -> impl Fn(&Value) -> bool {
    move |cgroup| cgroup["name"] == name && !is_pending(cgroup)
}

/// A program of a shell.
fn script(place: &Place, name: &str, text: &str) -> String {
    let path = place.temp().join(name);
    // Not open for writing in this process, in which other tests fork.
    let text = format!("#!/bin/sh\n{text}\n");
    let written = shell("printf %s \"$0\" > \"$1\"", &[&text, path.to_str().unwrap()]);
    assert_eq!(written, Some(true));
    chmod("0755", &path);
    path.to_str().unwrap().to_owned()
}

/// The API of a container engine. Each path has what to answer; unknown ones 404.
struct Engine {
    socket: PathBuf,
    server: Arc<tiny_http::Server>,
    answers: Arc<Mutex<Vec<(String, u16, Value)>>>,
    asked: Arc<Mutex<usize>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    fn start(socket: PathBuf) -> Self {
        let server = Arc::new(tiny_http::Server::http_unix(&socket).unwrap());
        let answers = Arc::new(Mutex::new(Vec::<(String, u16, Value)>::new()));
        let asked = Arc::new(Mutex::new(0));
        let (theirs, known, count) = (server.clone(), answers.clone(), asked.clone());
        let thread = thread::spawn(move || {
            for request in theirs.incoming_requests() {
                *count.lock().unwrap() += 1;
                let known = known.lock().unwrap();
                let found = known.iter().find(|(path, ..)| path == request.url());
                let (status, body) = found
                    .map_or((404, "{}".into()), |(_, status, body)| (*status, body.to_string()));
                let answer = tiny_http::Response::from_string(body).with_status_code(status);
                let _ = request.respond(answer);
            }
        });
        Self { socket, server, answers, asked, thread: Some(thread) }
    }

    fn answer(&self, path: &str, status: u16, body: Value) {
        let mut answers = self.answers.lock().unwrap();
        answers.retain(|(known, ..)| known != path);
        answers.push((path.to_owned(), status, body));
    }

    fn spec(&self, kind: &str) -> String {
        format!("{kind}:{}", self.socket.display())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.server.unblock();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn a_container_has_the_name_that_its_engine_reports() {
    let place = Place::new();
    let (web, api) = (id(1), Engine::start(place.temp().join("docker.sock")));
    let path = format!("/containers/{web}/json");
    api.answer(&path, 500, json!({}));
    let scope = format!("docker-{web}.scope");
    let Some(made) = RealCgroup::new(&["system.slice", &scope, "inside"]) else { return };
    let owner = made.path.strip_suffix("/inside").unwrap();
    let docker = api.spec("docker");
    let mut provider = start(&place, &["--names", &docker]);
    assert!(provider.stderr_until("no names").contains("status 500"));
    let waits = wait_for(&place, owner, is_pending);
    assert_eq!(waits["name"], format!("docker_{}", &web[..12]));

    let config = json!({ "Image": "nginx:1", "Labels": { "app": "shop" }, "Env": ["A=b"] });
    api.answer(&path, 200, json!({ "Name": "/web-1", "Config": config }));
    let found = wait_for(&place, owner, has_name("web-1"));
    assert_eq!(found["labels"], json!({ "image": "nginx:1", "app": "shop" }));
    let hash = format!("{:#018x}", bellwire_cgroups::name_hash("web-1"));
    assert_eq!(found["name_hash"], hash);
    let inside = wait_for(&place, &made.path, has_name("web-1_inside"));
    assert_eq!(inside["labels"]["image"], "nginx:1");
    // It is not asked again at each scan.
    let asked = *api.asked.lock().unwrap();
    let late =
        RealCgroup::new(&["system.slice", &format!("bellwire-{}-a.slice", std::process::id())]);
    wait_for(&place, &late.unwrap().path, |_| true);
    assert_eq!(*api.asked.lock().unwrap(), asked);

    // The other two services say the same.
    let _lookup = provide(&place, "cgroups-lookup", &["--names", &docker]);
    let _apps = provide(&place, "apps", &["--names", &docker]);
    let cgroup = loop {
        let found = place.run(&["get", "cgroups-lookup", &made.path, "--json"]).json();
        let cgroup = found["cgroups"][0].clone();
        if !cgroup["options"].as_str().unwrap().contains("pending") {
            break cgroup;
        }
    };
    assert_eq!(cgroup["name"], "web-1_inside");
    assert_eq!(cgroup["labels"]["app"], "shop");
    assert_eq!(cgroup["labels"]["container_id"], web);
    let mut idle = Idle::new();
    let pid = idle.pid().to_string();
    let app = || place.run(&["get", "apps", &pid, "--json"]).json()["apps"][0].clone();
    if idle.moves_to(made.dir()) {
        let app = loop {
            let app = app();
            if app["pending"] == false {
                break app;
            }
        };
        assert_eq!(app["cgroup_name"], "web-1_inside");
        assert_eq!(app["labels"]["image"], "nginx:1");
    }
    idle.end();
    remove(made.dir());
}

#[test]
fn podman_names_containers_and_pods_and_nomad_its_tasks() {
    let place = Place::new();
    let (web, pod, task) = (id(2), id(3), id(4));
    let api = Engine::start(place.temp().join("podman.sock"));
    api.answer(&format!("/containers/{web}/json"), 200, json!({ "Name": "web" }));
    let env = ["NOMAD_JOB_NAME=shop", "NOMAD_TASK_NAME=db", "NOMAD_SHORT_ALLOC_ID=1a2b3c4d"];
    let container = json!({ "Name": "/db-1", "Config": { "Env": env } });
    api.answer(&format!("/containers/{task}/json"), 200, container);
    let of_pod = format!("/v4.0.0/libpod/pods/{pod}/json");
    api.answer(&of_pod, 200, json!({ "Name": "shop", "Labels": { "a": "b" } }));
    for path in [
        format!("machine.slice/machine-libpod_pod_{pod}.slice/libpod-{web}.scope"),
        format!("system.slice/docker-{task}.scope"),
    ] {
        let dir = place.root().join(path);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup.events"), "populated 1\n").unwrap();
    }
    let _provider = provide_named(&place, &[&api.spec("podman"), &api.spec("docker")], &[]);
    let slice = format!("/machine.slice/machine-libpod_pod_{pod}.slice");
    assert_eq!(wait_for(&place, &slice, has_name("shop"))["labels"], json!({ "a": "b" }));
    wait_for(&place, &format!("{slice}/libpod-{web}.scope"), has_name("web"));
    let task = format!("/system.slice/docker-{task}.scope");
    wait_for(&place, &task, has_name("shop-db-1a2b3c4d"));
}

#[test]
fn a_command_names_excludes_or_defers_cgroups() {
    let place = Place::new();
    for name in ["lxc", "lxc/web", "lxc/db", "lxc/off"] {
        place.cgroup(name);
    }
    let ready = place.temp().join("ready");
    let command = script(
        &place,
        "names",
        &format!(
            "case $1 in\n/lxc/web) echo \"$2-named path=\\\"$1\\\"\" ;;\n\
             /lxc/db) test -e '{}' || exit 2; echo db ;;\n/lxc/off) exit 3 ;;\nesac",
            ready.display()
        ),
    );
    let _provider = provide_named(&place, &[&format!("command:{command}")], &[]);
    let web = wait_for(&place, "/lxc/web", has_name("lxc_web-named"));
    assert_eq!(web["labels"], json!({ "path": "/lxc/web" }));
    // Nothing was printed.
    wait_for(&place, "/lxc", has_name("lxc"));
    let off = wait_for(&place, "/lxc/off", |cgroup| cgroup["enabled"] == false);
    assert_eq!(off["name"], "lxc_off");
    assert_eq!(wait_for(&place, "/lxc/db", is_pending)["name"], "lxc_db");
    fs::write(ready, "").unwrap();
    wait_for(&place, "/lxc/db", has_name("db"));
    // No command was run for it.
    wait_for(&place, "/system.slice/cron.service", has_name("cron"));
}

#[test]
fn a_command_that_hangs_delays_no_scan_and_leaves_no_process() {
    let place = Place::new();
    place.cgroup("lxc");
    place.cgroup("lxc/web");
    let pids = place.temp().join("pids");
    let text = format!("sleep 1000 &\necho $! >> '{}'\nsleep 1000", pids.display());
    let (root, source) =
        (place.root_option(), format!("command:{}", script(&place, "hang", &text)));
    let args = [&root, "--names", &source, "--names-timeout", "100ms"];
    let mut provider = start(&place, &args);
    assert!(provider.stderr_until("no names").contains("timed out"));
    wait_for(&place, "/lxc/web", is_pending);
    place.cgroup("other");
    wait_for(&place, "/other", |_| true);
    // The end does not wait for one that has just begun.
    drop(provider);
    let args = [&args[..4], &["1h"]].concat();
    fs::write(&pids, "").unwrap();
    let mut provider = place.start(&[&["provide", "cgroups"], &args[..]].concat());
    while fs::read_to_string(&pids).unwrap().lines().count() < 2 {
        thread::yield_now();
    }
    assert!(provider.end_by(Signal::Term).success());
    // What it started holds its standard error, too.
    provider.all_ended();
    for pid in fs::read_to_string(&pids).unwrap().lines() {
        let cmdline = Path::new("/proc").join(pid).join("cmdline");
        while fs::read(&cmdline).is_ok_and(|words| !words.is_empty()) {
            thread::yield_now();
        }
    }
}

#[test]
fn a_file_is_read_again_when_it_changes_and_takes_precedence_over_a_command() {
    let place = Place::new();
    place.cgroup("lxc");
    place.cgroup("lxc/web");
    let names = place.temp().join("names");
    let write = |text: &str| {
        let new = place.temp().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, &names).unwrap();
    };
    write("# mine\n/lxc/web shop stage=\"prod\"\n/system.slice/cron.service Cron\n");
    let command = script(&place, "other", "echo other");
    let (file, command) = (format!("file:{}", names.display()), format!("command:{command}"));
    let mut provider = provide_named(&place, &[&file, &command], &[]);
    assert_eq!(
        wait_for(&place, "/lxc/web", has_name("shop"))["labels"],
        json!({ "stage": "prod" })
    );
    wait_for(&place, "/system.slice/cron.service", has_name("Cron"));
    wait_for(&place, "/lxc", has_name("other"));
    write("/lxc/web market\n");
    wait_for(&place, "/lxc/web", has_name("market"));
    wait_for(&place, "/system.slice/cron.service", has_name("cron"));
    write("/lxc/web\n");
    assert!(provider.stderr_until("no names").contains("line 1"));
    wait_for(&place, "/lxc/web", has_name("market"));
    let bad = place.exits(1, &["provide", "cgroups", "--names", &file]);
    assert!(bad.stderr.contains("line 1"), "{bad:?}");
}

#[test]
fn pods_have_the_names_of_their_logs() {
    let place = Place::new();
    let (id, uid) = (id(5), "2ca4a155-3599-498d-bb9d-4446693fa3ea");
    let pod = format!("kubepods.slice/kubepods-pod{}.slice", uid.replace('-', "_"));
    fs::create_dir_all(place.root().join(format!("{pod}/cri-containerd-{id}.scope"))).unwrap();
    let logs = place.temp();
    fs::create_dir_all(logs.join(format!("pods/shop_web-0_{uid}/nginx"))).unwrap();
    fs::create_dir(logs.join("containers")).unwrap();
    fs::write(logs.join(format!("containers/web-0_shop_nginx-{id}.log")), "").unwrap();
    let _provider = provide_named(&place, &[&format!("k8s:{}", logs.display())], &[]);
    let labels = json!({ "namespace": "shop", "pod": "web-0" });
    assert_eq!(wait_for(&place, &format!("/{pod}"), has_name("k8s_shop_web-0"))["labels"], labels);
    let scope = format!("/{pod}/cri-containerd-{id}.scope");
    wait_for(&place, &scope, has_name("k8s_shop_web-0_nginx"));
}

#[test]
fn patterns_select_enabled_cgroups_and_those_named_by_a_command() {
    let place = Place::new();
    for name in ["lxc", "lxc/web", "user.slice"] {
        place.cgroup(name);
    }
    let command = format!("command:{}", script(&place, "c", "echo n-$2"));
    let rules = [
        "--rename=!/lxc/* /lxc* */cron.service",
        "--enable=!/user.slice *",
        "--enable-names=!n-lxc *",
    ];
    let _provider = provide_named(&place, &[&command], &rules);
    for (path, name, enabled) in [
        ("/lxc", "n-lxc", false),
        ("/lxc/web", "lxc_web", true),
        ("/user.slice", "user.slice", false),
        ("/system.slice/cron.service", "n-cron", true),
    ] {
        let found = wait_for(&place, path, has_name(name));
        assert_eq!(found["enabled"], enabled, "{path}");
    }
    place.exits(2, &["provide", "apps", "--enable", "*"]);
    assert_eq!(place.run(&["provide", "cgroups", "--names", "lxc"]).status, Some(2));
}

/// In v1, `cgroup.procs` shows only processes of the reader's pid namespace.
#[test]
fn a_provider_in_a_pid_namespace_sees_which_cgroups_are_populated() {
    let place = Place::new();
    let name = format!("bellwire-pidns-{}", std::process::id());
    let pids = Path::new("/sys/fs/cgroup/pids");
    let Some(made) = RealCgroup::below(pids, &[&name, "empty"]) else {
        return eprintln!(
            "skipped: there is no v1 hierarchy of pids here, or no cgroup may be made"
        );
    };
    let mut idle = Idle::new();
    let mut command = std::process::Command::new("unshare");
    let program = bellwire().get_program().to_owned();
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(program);
    command.arg("--run-dir").arg(place.run_dir()).args(["provide", "cgroups"]);
    if shell("unshare --pid --fork --mount-proc true", &[]) != Some(true) {
        eprintln!("skipped: this user may not make a pid namespace");
    } else if idle.moves_to(&made.dirs[0]) {
        let _provider = Running::providing(&mut command);
        let is = |path: &str| {
            let options = wait_for(&place, path, |_| true)["options"].clone();
            options.as_array().unwrap().contains(&"populated".into())
        };
        assert!(is(&format!("/{name}")) && !is(&made.path));
    }
    idle.end();
    made.dirs.iter().rev().for_each(|dir| remove(dir));
}
