//! The service of `docs/tutorial.md`: the counters of this machine's disks, on Linux.
//!
//! ```text
//! cargo run --features derive --example disk_stats -- provide
//! cargo run --features derive --example disk_stats -- sda
//! ```

use std::error::Error;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use bellwire::{
    CallError, Client, ClientConfig, Delivery, Event, HandlerError, Malformed, Message, RunDir,
    Server, Service, Snapshot, SnapshotCache, StartAt, Subscriber,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The counters of a disk.
#[derive(Message, Clone, Debug, PartialEq)]
struct Disk {
    name: String,
    reads: u64,
    writes: u64,
}

/// Error code: no such disk.
const NO_SUCH_DISK: u32 = 1;

/// One disk, by its name.
#[derive(Service)]
#[service(name = "disk-stats", request = String, response = Disk, idempotent)]
struct DiskStats;

/// All disks, each second.
struct AllDisks;

impl Snapshot for AllDisks {
    const NAME: &'static str = "disk-list";
    type Index = Vec<Disk>;
    type Error = Malformed;

    fn validate(bytes: &[u8]) -> Result<Vec<Disk>, Malformed> {
        Vec::decode(bytes)
    }
}

/// A disk that was not there before.
struct DiskAppeared;

impl Event for DiskAppeared {
    const NAME: &'static str = "disk-appeared";
    type Message = Disk;
}

fn read(diskstats: &Path) -> io::Result<Vec<Disk>> {
    let disk = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next()?.to_owned();
        let (reads, writes) = (words.next()?.parse().ok()?, words.nth(3)?.parse().ok()?);
        Some(Disk { name, reads, writes })
    };
    Ok(std::fs::read_to_string(diskstats)?.lines().filter_map(disk).collect())
}

fn provide(run_dir: &RunDir, diskstats: &Path, stop: &Receiver<()>) -> Result<(), Box<dyn Error>> {
    let mut builder = Server::builder(run_dir);
    // Takes the sockets of disk-stats.socket, if systemd started this process.
    builder.inherit_sockets()?;
    let file = diskstats.to_owned();
    builder.serve::<DiskStats>(move |_caller, name| {
        let found = read(&file)?.into_iter().find(|disk| disk.name == name);
        found.ok_or_else(|| HandlerError::with_code(NO_SUCH_DISK, format!("no disk {name:?}")))
    })?;
    let snapshots = builder.publish::<AllDisks>()?;
    let appeared = builder.events::<DiskAppeared>(64 << 10)?;
    let server = builder.start()?;
    notify("READY=1")?;
    let mut known: Vec<String> = Vec::new();
    loop {
        let (disks, mut bytes) = (read(diskstats)?, Vec::new());
        disks.encode(&mut bytes);
        snapshots.publish(&bytes)?;
        for disk in disks.iter().filter(|disk| !known.contains(&disk.name)) {
            appeared.send(disk)?;
        }
        known = disks.into_iter().map(|disk| disk.name).collect();
        if stop.recv_timeout(Duration::from_secs(1)) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    notify("STOPPING=1")?;
    // Answers the requests it has taken, refuses the others, and removes the sockets.
    server.stop();
    Ok(())
}

/// Tells systemd, if it has started this process.
fn notify(state: &str) -> io::Result<()> {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    UnixDatagram::unbound()?.send_to(state.as_bytes(), socket).map(|_| ())
}

fn ask(run_dir: &RunDir, name: &str) -> Result<(), CallError> {
    let config = ClientConfig::default().timeout(Duration::from_millis(500));
    let mut client = Client::<DiskStats>::with_config(run_dir, config);
    match client.call(&name.to_owned()) {
        Ok(Disk { reads, writes, .. }) => println!("{name}: {reads} reads, {writes} writes"),
        Err(CallError::Handler { code: Some(NO_SUCH_DISK), .. }) => println!("no disk {name}"),
        Err(CallError::Handler { reason, .. }) => println!("{reason}"),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn follow(run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let mut all = SnapshotCache::<AllDisks>::new(run_dir);
    all.refresh_within(Duration::from_secs(2))?;
    let count = all.current().map_or(0, |snapshot| snapshot.index().len());
    println!("{count} disks");
    let mut appeared = Subscriber::<DiskAppeared>::new(run_dir, StartAt::Now);
    loop {
        match appeared.next(None)? {
            Some(Delivery::Event { event, .. }) => println!("{} appeared", event.name),
            Some(Delivery::Missed { events }) => println!("{events} more appeared"),
            Some(Delivery::Restarted) | None => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let run_dir = RunDir::from_environment();
    match std::env::args().nth(1).as_deref() {
        Some("provide") => {
            let (stopped, stop) = channel();
            let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
            std::thread::spawn(move || signals.forever().next().map(|_| stopped.send(())));
            provide(&run_dir, Path::new("/proc/diskstats"), &stop)
        }
        Some(name) => Ok(ask(&run_dir, name)?),
        None => follow(&run_dir),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_tutorial_shows_this_program() {
        let tutorial = include_str!("../docs/tutorial.md");
        for (fence, least, program) in [
            ("```rust,ignore\n", 4, include_str!("disk_stats.rs")),
            ("```c\n", 2, include_str!("languages/disk_stats.c")),
            ("```go\n", 2, include_str!("languages/go/disk-stats/main.go")),
            ("```ini\n[Service]\n", 1, include_str!("languages/disk-stats.service")),
            ("```ini\n[Socket]\n", 1, include_str!("languages/disk-stats.socket")),
        ] {
            let pieces: Vec<&str> = tutorial.split(fence).skip(1).collect();
            assert!(pieces.len() >= least, "{fence}");
            for piece in pieces {
                let shown = piece.split("```").next().unwrap();
                assert!(program.contains(shown), "the program has no\n{shown}");
            }
        }
    }

    #[test]
    fn disks_are_served_published_and_announced() {
        let dir = tempfile::tempdir().unwrap();
        let (run_dir, file) = (RunDir::new(dir.path().join("run")), dir.path().join("diskstats"));
        let sda = "   8  0 sda 17 2 3 4 5 6 7 8 0 1 1\n";
        std::fs::write(&file, sda).unwrap();
        let ((stopped, stop), provider) = (channel(), (run_dir.clone(), file.clone()));
        let provider =
            std::thread::spawn(move || provide(&provider.0, &provider.1, &stop).unwrap());
        let mut client = Client::<DiskStats>::new(&run_dir);
        client.wait_available(Duration::from_secs(60)).unwrap();
        let disk = |name: &str| Disk { name: name.into(), reads: 17, writes: 5 };
        assert_eq!(client.call(&"sda".into()).unwrap(), disk("sda"));
        let absent = client.call(&"sdb".into()).unwrap_err();
        assert!(matches!(&absent, CallError::Handler { code: Some(NO_SUCH_DISK), .. }));
        let mut all = SnapshotCache::<AllDisks>::new(&run_dir);
        let mut appeared = Subscriber::<DiskAppeared>::new(&run_dir, StartAt::Oldest);
        let mut next = || match appeared.next(None).unwrap() {
            Some(Delivery::Event { event, .. }) => event,
            other => panic!("{other:?}"),
        };
        assert_eq!(next(), disk("sda"));
        all.refresh_within(Duration::from_secs(60)).unwrap();
        assert_eq!(all.current().unwrap().index(), &[disk("sda")]);
        std::fs::write(&file, format!("{sda}{}", sda.replace("sda", "sdb"))).unwrap();
        assert_eq!(next(), disk("sdb"));
        stopped.send(()).unwrap();
        provider.join().unwrap();
        assert!(client.call(&"sda".into()).is_err());
    }
}
