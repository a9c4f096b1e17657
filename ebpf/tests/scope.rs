//! Which processes the tracer attaches to.

use std::path::Path;
use std::process::Command;

use crate::support::process::{Process, copy_of_program, copy_to, program};
use crate::support::semaphore;
use crate::support::tracer::{TRACER, Tracer, run, skip};
use crate::support::wait_until;

/// The tracer with these arguments, and without files.
fn tracer(args: &[&str]) -> Option<Tracer> {
    let mut command = Command::new(TRACER);
    command.args(args).args(["--json", "--rate", "all"]);
    Tracer::start_by(command)
}

/// Peers are attached to soon after the processes that were named, and probes one after the other.
fn is_attached(file: &Path, pids: &[u32]) -> bool {
    let is_on = |pid, probe| semaphore::of(pid, file, probe).count() > 0;
    pids.iter().all(|pid| is_on(*pid, "message") && is_on(*pid, "reply"))
}

#[test]
fn only_a_process_and_its_peers_are_attached_to() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let file = copy_of_program(dirs[0].path());
    let start = |role: &str, dir: &Path| Process::start_by(Command::new(&file), role, dir);
    let servers = dirs.each_ref().map(|dir| start("server", dir.path()));
    let mut clients = dirs.each_ref().map(|dir| start("client", dir.path()));
    clients.iter_mut().for_each(|client| drop(client.ask("calls 1 0")));
    let Some(tracer) = tracer(&["breakdown", "-p", &servers[0].pid().to_string()]) else { return };
    let count = |pid| semaphore::of(pid, &file, "message").count();
    wait_until(|| is_attached(&file, &[servers[0].pid(), clients[0].pid()]));
    assert_eq!([count(servers[1].pid()), count(clients[1].pid())], [0, 0]);
    clients.iter_mut().for_each(|client| drop(client.ask("calls 10 0")));
    // A client that comes later is a peer soon.
    let mut third = start("client", dirs[0].path());
    third.ask("calls 1 0");
    wait_until(|| is_attached(&file, &[third.pid()]));
    third.ask("calls 5 0");
    let tables = tracer.tables();
    assert_eq!(tables.len(), 1, "{tables:#?}");
    // Its first call, and any while the tracer attached to one end only, are not counted.
    let calls = tables[0]["calls"].as_u64().unwrap();
    assert!((14..=16).contains(&calls), "{tables:#?}");
}

#[test]
fn only_the_processes_of_a_service_are_attached_to() {
    let dir = tempfile::tempdir().unwrap();
    let file = copy_of_program(dir.path());
    let start = |role: &str| Process::start_by(Command::new(&file), role, dir.path());
    let server = start("server");
    let mut client = start("client");
    let other = start("hog");
    client.ask("calls 1 0");
    let Some(_tracer) = tracer(&["breakdown", "-s", "nap"]) else { return };
    let count = |pid| semaphore::of(pid, &file, "message").count();
    wait_until(|| is_attached(&file, &[server.pid(), client.pid()]));
    assert_eq!(count(other.pid()), 0);
}

#[test]
fn a_program_in_a_changed_root_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let jail = dir.path().join("jail");
    std::fs::create_dir_all(jail.join("run")).unwrap();
    let status = Command::new("cp")
        .args(["--archive", "--dereference", "--parents", "/lib64"])
        .arg(&jail)
        .status()
        .unwrap();
    assert!(status.success());
    for library in libraries() {
        let to = jail.join(library.strip_prefix("/").unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy_to(&library, &to);
    }
    copy_to(&program(), &jail.join("program"));
    let mut command = Command::new("chroot");
    command.arg(&jail).arg("/program");
    if !Command::new("chroot").args(["/", "true"]).status().unwrap().success() {
        return skip("chroot is not permitted");
    }
    let server = Process::start_by(command, "server", Path::new("/run"));
    let mut client = Process::start("client", &jail.join("run"));
    client.ask("calls 1 0");
    let Some(tracer) = tracer(&["breakdown", "-p", &server.pid().to_string()]) else { return };
    client.ask("calls 10 0");
    let tables = tracer.tables();
    assert_eq!(tables[0]["calls"], 10, "{tables:#?}");
}

/// The shared libraries of this program, as ldd lists them.
fn libraries() -> Vec<std::path::PathBuf> {
    let listed = Command::new("ldd").arg(program()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(Into::into).collect()
}

#[test]
fn containers_of_one_image_are_one_program() {
    let dir = tempfile::tempdir().unwrap();
    let lower = dir.path().join("lower");
    std::fs::create_dir(&lower).unwrap();
    copy_to(&program(), &lower.join("program"));
    // Each in a mount namespace of its own, which ends with it.
    let contained = |role: &str, name: &str| {
        let mut command = Command::new("unshare");
        let place = dir.path().join(name);
        for part in ["upper", "work", "root"] {
            std::fs::create_dir_all(place.join(part)).unwrap();
        }
        let enter = "mount -t overlay none -o \"lowerdir=$0,upperdir=$1/upper,workdir=$1/work\" \"$1/root\" && \
                     program=\"$1/root/program\" && shift && exec \"$program\" \"$@\"";
        command.args(["--mount", "sh", "-c", enter]).arg(&lower).arg(&place);
        Process::try_start_by(command, role, dir.path())
    };
    let Some(server) = contained("server", "a") else { return skip("no overlay file system") };
    let Some(mut client) = contained("client", "b") else { return skip("no overlay file system") };
    client.ask("calls 1 0");
    let listed = run(&["list", "--json"]);
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).unwrap();
    for pid in [server.pid(), client.pid()] {
        assert_eq!(listed.iter().filter(|process| process["pid"] == pid).count(), 1);
    }
    // Without a scope it attaches to files: of two attachments to one file, each would report each answer.
    let Some(tracer) = tracer(&["breakdown", "--by-session"]) else { return };
    client.ask("calls 10 0");
    let (tables, status, messages) = tracer.finish_with_messages();
    // Those of other tests' sessions that were in flight when it attached are not counted either.
    let unseen = messages.split_once("not counted: ").map_or("0", |(_, rest)| rest);
    let unseen = unseen.split(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(status.success() && unseen < 10, "{messages}");
    let table = tables.iter().find(|table| table["server"] == server.pid()).unwrap();
    assert_eq!((&table["calls"], &table["samples"]), (&10.into(), &10.into()), "{table:#}");
}

#[test]
fn a_hundred_programs_are_attached_to() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(TRACER);
    command.args(["record", "--json", "-o", "/dev/null"]);
    let original = copy_of_program(dir.path());
    for number in 0..100 {
        let copy = dir.path().join(format!("program{number}"));
        std::fs::copy(&original, &copy).unwrap();
        command.arg("--exe").arg(copy);
    }
    let last = dir.path().join("program99");
    let Some(tracer) = Tracer::start_by(command) else { return };
    // Not executed by this process: a descriptor that writes it may have been inherited.
    let server = Process::try_start_by(Command::new(&last), "server", dir.path());
    if let Some(server) = server {
        assert!(semaphore::of(server.pid(), &last, "message").count() > 0);
    }
    tracer.finish();
}
