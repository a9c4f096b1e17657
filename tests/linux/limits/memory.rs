//! A memory cgroup that is full: the kernel ends the process in it, and its peer continues.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::blobs::Storage;
use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::kernel;
use crate::support::test_server::Dir;

const HIERARCHY: &str = "/sys/fs/cgroup/memory";
const MIB: usize = 1 << 20;

/// A memory cgroup (version 1) for one process.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None`, and why, where none can be made.
    fn with_limit(bytes: usize) -> Option<Self> {
        let name = format!("bellwire-test-{}-{bytes}", std::process::id());
        let path = Path::new(HIERARCHY).join(name);
        let made = fs::create_dir(&path)
            .and_then(|()| fs::write(path.join("memory.limit_in_bytes"), bytes.to_string()));
        if let Err(error) = made {
            eprintln!("not run: no memory cgroup can be made in {HIERARCHY}: {error}");
            let _ = fs::remove_dir(&path);
            return None;
        }
        Some(Self(path))
    }

    fn take(&self, process: &Process) {
        fs::write(self.0.join("cgroup.procs"), process.pid().to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // As soon as its process is gone.
        until("the cgroup can be removed", || fs::remove_dir(&self.0).is_ok());
    }
}

/// A provider whose cgroup is full while it answers: the kernel ends it. Its client gets an error, and finds the
/// successor.
#[test]
fn a_client_survives_its_provider_whose_memory_cgroup_is_full() {
    let Some(cgroup) = Cgroup::with_limit(48 * MIB) else { return };
    let dir = Dir::new();
    let mut provider = Process::start("blobs", &dir.run_dir);
    cgroup.take(&provider);
    let mut consumer = Process::start("blob-client", &dir.run_dir);
    assert_eq!(consumer.ask("open"), "ok");
    assert_eq!(consumer.ask("call 100 100000 0 0"), "ok");
    let held = kernel::fds(consumer.pid());
    let reply = consumer.ask(&format!("call 100 {} {} 0", 60 * MIB, Storage::Sealed as u64));
    assert!(reply.contains("PeerGone"), "{reply}");
    assert!(provider.try_next_line().is_none(), "the provider was not ended");
    drop(provider);
    drop(cgroup);
    let _successor = Process::start("blobs", &dir.run_dir);
    until("the successor is found", || consumer.ask("open") == "ok");
    assert_eq!(consumer.ask("call 100 100000 0 0"), "ok");
    assert!(kernel::fds(consumer.pid()) <= held + 1);
}

/// A client whose cgroup is full while it calls: its server frees its slot, and the others notice nothing.
#[test]
fn a_server_survives_its_client_whose_memory_cgroup_is_full() {
    let Some(cgroup) = Cgroup::with_limit(32 * MIB) else { return };
    let dir = Dir::new();
    let mut provider = Process::start("blobs", &dir.run_dir);
    let mut good = Process::start("blob-client", &dir.run_dir);
    assert_eq!(good.ask("open"), "ok");
    assert_eq!(good.ask("call 100 100 0 0"), "ok");
    let held = kernel::fds(provider.pid());
    let mut greedy = Process::start("blob-client", &dir.run_dir);
    cgroup.take(&greedy);
    assert_eq!(greedy.ask("open"), "ok");
    greedy.send_line(&format!("call {} 100 0 {}", 60 * MIB, Storage::Sealed as u64));
    assert!(greedy.try_next_line().is_none(), "the client was not ended");
    drop(greedy);
    assert_eq!(good.ask("call 100 100 0 0"), "ok");
    until("its session is freed", || kernel::fds(provider.pid()) <= held + 1);
    provider.ask("stats");
}

/// Pages that another process allocated are its own charge: reading far more than the cgroup allows ends no process.
#[test]
fn a_reader_is_not_charged_for_pages_that_its_peer_allocated() {
    let Some(cgroup) = Cgroup::with_limit(24 * MIB) else { return };
    let dir = Dir::new();
    let _provider = Process::start("blobs", &dir.run_dir);
    let mut reader = Process::start("blob-client", &dir.run_dir);
    cgroup.take(&reader);
    assert_eq!(reader.ask("open"), "ok");
    let answer = format!("call 100 {} {} 0", 60 * MIB, Storage::Kept as u64);
    for _ in 0..2 {
        assert_eq!(reader.ask(&answer), "ok");
    }
}
