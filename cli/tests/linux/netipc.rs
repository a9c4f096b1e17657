//! `bellwire provide --netipc`: plugins that speak netipc, played by a peer that was written from its documents alone.

use std::path::PathBuf;

use crate::netipc_peer::{
    APPS, CGROUPS, Hello, Peer, SNAPSHOT, header, items, keys, text, u16_at, u32_at, u64_at,
};
use crate::support::{Ended, Place, Running};

/// An invocation, and its token.
const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const TOKEN: u64 = 0xc56c_de21_e711_bf96;

fn start(place: &Place, args: &[&str]) -> Running {
    Running::providing(place.command(args).env("NETDATA_INVOCATION_ID", UUID))
}

fn socket(place: &Place, service: &str) -> PathBuf {
    place.run_dir().join(format!("{service}.sock"))
}

fn peer(place: &Place, service: &str) -> Peer {
    Peer::open(&socket(place, service), Hello { token: TOKEN, ..Hello::default() })
}

fn path_key(path: &str) -> Vec<u8> {
    [path.as_bytes(), &[0]].concat()
}

#[test]
fn a_netipc_plugin_gets_the_same_cgroups_as_a_bellwire_client() {
    let place = Place::new();
    let names = place.temp().join("names");
    std::fs::write(&names, "/system.slice/cron.service the-clock\n").unwrap();
    let (root, file) = (place.root_option(), format!("--names=file:{}", names.display()));
    let _provider =
        start(&place, &["provide", "cgroups", "--netipc", &root, &file, "--interval", "100ms"]);
    let root = root.trim_start_matches("--root=");
    let refused = Peer::connect(&socket(&place, "cgroups-snapshot")).greet(Hello::default());
    assert_eq!(refused.status, 2, "without the token");
    let mut peer = peer(&place, "cgroups-snapshot");
    let mut snapshot = || {
        let answer = peer.call(SNAPSHOT, 1, &[1, 0, 0, 0]);
        assert_eq!((answer.status, u32_at(&answer.payload, 8)), (0, 1), "systemd is in it");
        answer.payload
    };
    let first = snapshot();
    let json = place.run(&["get", "cgroups", "--json"]).json();
    let new = json["cgroups"].as_array().unwrap();
    let old = items(&first[24..], u32_at(&first, 4) as usize);
    assert_eq!(old.len(), new.len());
    for (old, new) in old.iter().zip(new) {
        let path = new["path"].as_str().unwrap();
        let procs = format!("{root}{}/cgroup.procs", path.trim_end_matches('/'));
        assert_eq!((text(old, 16), text(old, 24)), (new["name"].as_str().unwrap(), &procs[..]));
        assert_eq!(u32_at(old, 12) == 1, new["enabled"].as_bool().unwrap());
        let is_service = path.starts_with("/system.slice/") && path.ends_with(".service");
        assert_eq!(u32_at(old, 8) & 2 != 0, is_service, "{path}");
    }
    assert!(old.iter().any(|item| text(item, 16) == "the-clock"), "the source of names counts");
    // The next generation, in the same session.
    place.cgroup("system.slice/another.service");
    let changed = loop {
        let changed = snapshot();
        if u64_at(&changed, 16) != u64_at(&first, 16) {
            break changed;
        }
    };
    assert_eq!(u32_at(&changed, 4) as usize, old.len() + 1);
}

#[test]
fn an_old_plugin_looks_cgroups_and_processes_up() {
    let place = Place::new();
    let _cgroups = start(&place, &["provide", "cgroups-lookup", "--netipc", &place.root_option()]);
    let paths = ["/system.slice/cron.service", "/no/such", "/\u{fffd}"].map(path_key);
    let not_text = vec![b'/', 0xff, 0];
    let request = keys(&[&paths[..], &[not_text]].concat());
    let answer = peer(&place, "cgroups-lookup").call(CGROUPS, 1, &request);
    assert_eq!((answer.status, u32_at(&answer.payload, 4)), (0, 4));
    let found = items(&answer.payload[16..], 4);
    assert_eq!((u16_at(found[0], 2), u16_at(found[0], 4)), (0, 1), "known, of systemd");
    assert_eq!(text(found[0], 8), "/system.slice/cron.service");
    assert!(!text(found[0], 16).is_empty() && u16_at(found[0], 24) > 0, "a name and labels");
    for (item, nth) in found[1..].iter().zip(1..) {
        assert_ne!(u16_at(item, 2), 0, "item {nth} is not known");
        assert_eq!((text_bytes(item, 16), u16_at(item, 24)), (0, 0));
    }

    let _apps = start(&place, &["provide", "apps", "--netipc"]);
    let pids = [std::process::id(), u32::MAX - 1];
    let request = keys(&pids.map(|pid| [pid.to_ne_bytes(), [0; 4]].concat()));
    let mut peer = peer(&place, "apps-lookup");
    let answer = peer.call(APPS, 1, &request);
    assert_eq!((answer.status, u32_at(&answer.payload, 4)), (0, 2));
    let found = items(&answer.payload[16..], 2);
    assert_eq!((u16_at(found[0], 2), u32_at(found[0], 8)), (0, pids[0]), "this process");
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(text(found[0], 32), comm.trim_end());
    assert_eq!(u32_at(found[0], 16), rustix::process::getuid().as_raw());
    assert!(u64_at(found[0], 24) > 0, "when it started");
    assert_eq!(
        (u16_at(found[1], 2), u32_at(found[1], 8), u32_at(found[1], 16)),
        (1, pids[1], u32::MAX)
    );
    // Nothing asked, nothing answered.
    let answer = peer.call(APPS, 1, &keys(&[]));
    assert_eq!((answer.status, answer.payload.len()), (0, 16));
}

/// The length of the text whose offset and length are at `at`.
fn text_bytes(item: &[u8], at: usize) -> u32 {
    u32_at(item, at + 4)
}

#[test]
fn ls_counts_the_netipc_clients() {
    let place = Place::new();
    let provider = start(&place, &["provide", "cgroups", "--netipc", "--synthetic", "10"]);
    let listed = || place.run(&["ls", "--format", "json"]).json()["endpoints"][0]["netipc"].clone();
    assert_eq!(listed(), 0);
    let peers = [peer(&place, "cgroups-snapshot"), peer(&place, "cgroups-snapshot")];
    // The provider counts when it has a moment.
    while listed() != 2 {}
    let table = place.run(&["ls"]);
    assert!(table.stdout.contains("NETIPC"), "{table:?}");
    drop(peers);
    drop(provider);
}

#[test]
fn ls_distinguishes_a_provider_of_netipc_alone_from_a_squatter() {
    use std::os::unix::fs::PermissionsExt;

    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};

    let place = Place::new();
    std::fs::create_dir_all(place.run_dir()).unwrap();
    std::fs::set_permissions(place.run_dir(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // One answers each HELLO with a refusal, as a provider of plugin-ipc does without its token; one is silent.
    for (service, state, answer) in [
        ("cgroups-snapshot", "netipc", [header(3, 0, 2, 48, 1, 0), vec![0; 48]].concat()),
        ("apps-lookup", "squatted", vec![]),
        ("cgroups-lookup", "squatted", b"BWC1".to_vec()),
    ] {
        let path = socket(&place, service);
        let listener =
            rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 8).unwrap();
        let provider = std::thread::spawn(move || {
            let client = rustix::net::accept(&listener).unwrap();
            let mut hello = [0; 100];
            let (len, _) = rustix::net::recv(&client, &mut hello, RecvFlags::empty()).unwrap();
            if !answer.is_empty() {
                rustix::net::send(&client, &answer, SendFlags::NOSIGNAL).unwrap();
            }
            (hello, len, client, listener)
        });
        let mut command = place.command(&["ls", "--format", "json"]);
        let listed = Ended::of(command.env("NETDATA_INVOCATION_ID", UUID)).json();
        let mut listed = listed["endpoints"].as_array().unwrap().iter();
        let listed = listed.find(|endpoint| endpoint["service"] == service);
        assert_eq!(listed.unwrap()["state"], state, "{service}");
        let (hello, len, ..) = provider.join().unwrap();
        assert_eq!((&hello[..4], len, &hello[64..72]), (&b"CPIN"[..], 76, &[0; 8][..]), "a token");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn netdatas_run_dir_is_used_and_accepted_only_when_configured() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let netdata = place.temp().join("netdata");
    std::fs::create_dir(&netdata).unwrap();
    std::fs::set_permissions(&netdata, std::fs::Permissions::from_mode(0o775)).unwrap();
    let run = |args: &[&str]| {
        let mut command = place.command(args);
        command.env_remove("BELLWIRE_RUN_DIR").env("NETDATA_RUN_DIR", &netdata);
        command
    };
    let args = ["provide", "cgroups", "--netipc", "--synthetic", "10"];
    let refused = Ended::of(&mut run(&args));
    assert!(refused.status != Some(0) && refused.stderr.contains("0775"), "{refused:?}");
    assert!(refused.stderr.contains("--group-run-dir"), "{refused:?}");
    let _provider = Running::providing(&mut run(&[&args[..], &["--group-run-dir"]].concat()));
    let hello = Hello::default();
    let mut peer = Peer::open(&netdata.join("cgroups-snapshot.sock"), hello);
    let answer = peer.call(SNAPSHOT, 1, &[1, 0, 0, 0]);
    assert_eq!((answer.status, u32_at(&answer.payload, 4)), (0, 10));
}
