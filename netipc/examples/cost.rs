//! What clients of netipc cost beside those of Bellwire: the same handler and the same snapshot, in another process, by both
//! protocols, and datagrams of the same lengths over a bare `SOCK_SEQPACKET`. Each round takes every measure once.
//!
//! ```sh
//! cargo run --release --package bellwire-netipc --example cost
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellwire::{Client, Lookup, Refreshed, RunDir, Server, ServerConfig, SnapshotCache};
use bellwire_apps::{App, AppsLookup};
use bellwire_cgroups::{CgroupsSnapshot, Meta, Mode, encode, synthetic};
use bellwire_netipc::lookup::App as OldApp;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 11;
const CALLS: u32 = 2000;
const SNAPSHOTS: u32 = 50;
const CGROUPS: usize = 1000;
/// The datagrams of a look-up of one process: the request, and the answer to it.
const REQUEST: usize = 64;
const ANSWER: usize = 208;

fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(dir) => provide(Path::new(&dir)),
        None => measure(),
    }
}

fn measure() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut provider = Provider::start(dir.path())?;
    let run_dir = RunDir::new(dir.path());
    let mut client = Client::<AppsLookup>::new(&run_dir);
    let mut cache = SnapshotCache::<CgroupsSnapshot>::new(&run_dir);
    let mut old = bellwire_netipc::Client::new(dir.path());
    let bare = bare_socket()?;
    rustix::net::connect(&bare, &bare_name(dir.path())?)?;
    while cache.refresh()? != Refreshed::Changed {}
    old.snapshot(|_| ())?;
    let mut rows: [(&str, Vec<Duration>); 7] = [
        ("a look-up of one process by Bellwire", vec![]),
        ("by netipc", vec![]),
        ("datagrams of the same lengths over a bare socket", vec![]),
        ("a refresh of a changed snapshot of 1000 cgroups by Bellwire", vec![]),
        ("by netipc, the first request after the change", vec![]),
        ("by netipc, the second", vec![]),
        ("the difference, which is the translation", vec![]),
    ];
    for _ in 0..ROUNDS {
        let by_bellwire = each(CALLS, || {
            assert!(matches!(client.call(&7)?, Lookup::Known(_)));
            Ok(())
        })?;
        let by_netipc = each(CALLS, || {
            assert!(matches!(old.lookup_apps(&[7])?[..], [OldApp::Known(_)]));
            Ok(())
        })?;
        let mut answer = [0; ANSWER + 1];
        let by_socket = each(CALLS, || {
            rustix::net::send(&bare, &[7; REQUEST], SendFlags::empty())?;
            let (len, _) = rustix::net::recv(&bare, &mut answer[..], RecvFlags::empty())?;
            assert_eq!(len, ANSWER);
            Ok(())
        })?;
        let [mut refresh, mut first, mut second] = [Duration::ZERO; 3];
        for _ in 0..SNAPSHOTS {
            provider.publish()?;
            refresh += each(1, || {
                while cache.refresh()? != Refreshed::Changed {}
                Ok(())
            })?;
            let mut read = || {
                each(1, || {
                    assert_eq!(old.snapshot(|view| view.items.len())?, CGROUPS);
                    Ok(())
                })
            };
            first += read()?;
            second += read()?;
        }
        let [refresh, first, second] = [refresh, first, second].map(|sum| sum / SNAPSHOTS);
        let measured =
            [by_bellwire, by_netipc, by_socket, refresh, first, second, first - second.min(first)];
        for ((_, row), measured) in rows.iter_mut().zip(measured) {
            row.push(measured);
        }
    }
    println!("| | median | least | most |\n| --- | --- | --- | --- |");
    for (what, mut row) in rows {
        row.sort();
        let [median, least, most] = [row.get(ROUNDS / 2), row.first(), row.last()]
            .map(|time| time.map_or(0.0, Duration::as_secs_f64) * 1e6);
        println!("| {what} | {median:.1} µs | {least:.1} µs | {most:.1} µs |");
    }
    Ok(())
}

/// How long one of so many takes.
fn each(count: u32, mut run: impl FnMut() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    for _ in 0..count {
        run()?;
    }
    Ok(start.elapsed() / count)
}

/// The other process.
struct Provider {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Provider {
    fn start(dir: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut provider = Self { child, lines };
        provider.told()?;
        Ok(provider)
    }

    fn told(&mut self) -> Result<()> {
        self.lines.read_line(&mut String::new())?;
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        self.child.stdin.as_mut().ok_or("no input")?.write_all(b"\n")?;
        self.told()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves, and publishes a snapshot at each line of its input.
fn provide(dir: &Path) -> Result<()> {
    let mut builder =
        Server::builder_with_config(&RunDir::new(dir), ServerConfig::default().netipc(true));
    let app = App {
        ppid: 1,
        uid: 1000,
        started: Duration::from_secs(9),
        comm: "nginx".into(),
        cgroup: "/system.slice/nginx.service".into(),
        orchestrator: bellwire_cgroups::Orchestrator::default(),
        cgroup_name: "nginx".into(),
        labels: vec![("unit".into(), "nginx.service".into())],
        pending: false,
    };
    builder.serve::<AppsLookup>(move |_, _| Ok(Lookup::Known(app.clone())))?;
    let publisher = builder.publish::<CgroupsSnapshot>()?;
    let _server = builder.start()?;
    let bare = bare_socket()?;
    rustix::net::bind(&bare, &bare_name(dir)?)?;
    rustix::net::listen(&bare, 1)?;
    std::thread::spawn(move || {
        let client = rustix::net::accept(&bare)?;
        while rustix::net::recv(&client, &mut [0; REQUEST + 1][..], RecvFlags::empty())?.0 > 0 {
            rustix::net::send(&client, &[7; ANSWER], SendFlags::NOSIGNAL)?;
        }
        Ok::<_, rustix::io::Errno>(())
    });
    for seed in [0, 1].into_iter().cycle() {
        publisher.publish(&encode(&synthetic::entries(CGROUPS, seed), Meta::now(Mode::V2))?)?;
        println!("published");
        if stdin().read_line(&mut String::new())? == 0 {
            break;
        }
    }
    Ok(())
}

fn bare_socket() -> Result<std::os::fd::OwnedFd> {
    Ok(rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?)
}

fn bare_name(dir: &Path) -> Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(dir.join("bare"))?)
}
