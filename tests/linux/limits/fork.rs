#![allow(unsafe_code, reason = "fork")]
//! The embedding process forks, and the child continues in the same program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bellwire::{
    CallError, Client, Doorbell, ErrorKind, ProviderState, PublishError, Publisher, RefreshError,
    Refreshed, RunDir, ServeError, Server, ServerBuilder, SnapshotCache,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::support::child::{Parent, ParentWriter, Process};
use crate::support::gate::Gate;
use crate::support::guard::{TEST_TIMEOUT, test_deadline};
use crate::support::rogue::Rogue;
use crate::support::services::{Echo, Hold, Numbers, numbers};
use crate::support::test_server::{Dir, client_config, serve_all};
use bellwire_memfd::{Linux, prelude::*};

/// More than a reader copies: it is mapped.
const MAPPED: u64 = 40_000;

/// Forks; the child runs only this. Returns how it ended.
fn fork(child: impl FnOnce()) -> Pid {
    // SAFETY: the child does what this test is about, and ends without going back.
    match unsafe { libc::fork() } {
        0 => {
            let done = catch_unwind(AssertUnwindSafe(child)).inspect_err(|panic| {
                let what = panic.downcast_ref::<String>().map_or("", |text| text);
                eprint!(
                    "{}",
                    ParentWriter::line(&format!("panicked: {}", what.replace('\n', " ")))
                );
            });
            // SAFETY: it ends here, and no destructor of the parent's runs.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        pid => Pid::from_raw(pid).expect("a fork"),
    }
}

/// What a child of fork does, and how it ends: 0 if all is right, else a signal or a panic.
fn ends(child: impl FnOnce()) -> String {
    let pid = fork(child);
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => "well".into(),
        (code, signal) => format!("exit {code:?}, signal {signal:?}"),
    }
}

/// All that a process may have.
struct Everything {
    run_dir: RunDir,
    server: Server,
    publisher: Publisher<Numbers>,
    builder: ServerBuilder,
    clients: Vec<Client<Echo>>,
    fresh: Client<Echo>,
    cache: SnapshotCache<Numbers>,
    empty: Client<Hold>,
    /// Waits for a provider.
    absent: Client<Hold>,
}

impl Everything {
    fn new() -> Self {
        let run_dir = RunDir::from_environment();
        let mut builder = Server::builder(&run_dir);
        let publisher = serve_all(&mut builder, &Gate::new(|_| {}));
        let server = builder.start().unwrap();
        publisher.publish(&numbers(1, MAPPED)).unwrap();
        let doorbells = [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket];
        let clients = doorbells.map(|doorbell| {
            let config = client_config().doorbell(doorbell);
            let mut client = Client::<Echo>::with_config(&run_dir, config);
            // Both lanes have grown.
            assert_eq!(client.call(&vec![1; 100_000]).unwrap(), vec![1; 100_000]);
            client
        });
        let mut fresh = Client::<Echo>::with_config(&run_dir, client_config());
        fresh.connect().unwrap();
        let mut cache = SnapshotCache::<Numbers>::with_config(&run_dir, client_config());
        assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
        let other = run_dir.path().join("other");
        let mut builder = Server::builder(&RunDir::new(&other));
        builder.serve::<Echo>(|_, bytes| Ok(bytes)).unwrap();
        let empty = Client::with_config(&run_dir, client_config());
        let clients = clients.into();
        let mut absent = Client::with_config(&nowhere(&run_dir), client_config());
        absent.pollable_arrival().unwrap();
        Self { run_dir, server, publisher, builder, clients, fresh, cache, empty, absent }
    }

    fn use_it(mut self) {
        for client in self.clients.iter_mut().chain([&mut self.fresh]) {
            let session = client.session().unwrap();
            assert!(!session.is_open());
            forked(session.call(&vec![2]));
            forked(session.call_batch(&[vec![1], vec![2]]));
            forked(session.submit(&vec![3; 200_000]).map(|_| session.wait_reply(TEST_TIMEOUT)));
            forked(session.try_reply());
            forked(session.arm());
            forked(session.trim());
            forked(session.post(&vec![4]));
            forked(session.raw().post(&[4]));
            forked(session.post_batch(&[vec![4]]));
            forked(session.flush(TEST_TIMEOUT));
            forked(client.call(&vec![2]));
            forked(client.connect());
            let state = client.refresh();
            assert!(
                matches!(state, ProviderState::Failed { kind: ErrorKind::Forked, .. }),
                "{state:?}"
            );
        }
        forked(self.empty.call(&1));
        forked(self.empty.wait_available(TEST_TIMEOUT));
        for found in [self.cache.refresh(), self.cache.refresh_within(TEST_TIMEOUT)] {
            let forked = matches!(found, Err(RefreshError::Call(CallError::Forked)));
            assert!(forked, "{found:?}");
        }
        assert!(self.cache.wait_for_change(None).is_err());
        // Write-sealed memory is there.
        assert!(self.cache.current().unwrap().bytes() == numbers(1, MAPPED));
        assert!(matches!(self.publisher.publish(&[0; 8]), Err(PublishError::Forked)));
        let error = self.builder.serve::<Hold>(|_, number| Ok(number)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("after the fork"));
        assert!(matches!(self.builder.start(), Err(ServeError::Forked)));
        let mut absent = Client::<Hold>::with_config(&nowhere(&self.run_dir), client_config());
        let none = absent.wait_available(Duration::from_millis(1)).unwrap_err();
        assert!(matches!(none, CallError::Deadline { .. }), "{none}");
        // Its own client works like any other.
        let mut own = Client::<Echo>::with_config(&self.run_dir, client_config());
        assert_eq!(own.call(&vec![7; 100_000]).unwrap(), vec![7; 100_000]);
    }

    /// All of it works, and other processes reach it.
    fn works(&mut self) {
        for client in self.clients.iter_mut().chain([&mut self.fresh]) {
            assert_eq!(client.call(&vec![5]).unwrap(), [5]);
        }
        let generation = self.publisher.publish(&numbers(1, MAPPED)).unwrap();
        assert_eq!(self.cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
        assert_eq!(self.cache.current().unwrap().generation(), generation);
        let sockets = std::fs::read_dir(self.run_dir.path().join("other")).unwrap();
        assert_eq!(sockets.count(), 2, "a socket and its lock");
        let nowhere = nowhere(&self.run_dir);
        std::fs::create_dir(nowhere.path()).unwrap();
        let is_notified =
            Linux::wait_any(&[self.absent.pollable_arrival().unwrap()], Some(test_deadline()));
        assert!(is_notified.unwrap(), "the wait was ended by a child");
        std::fs::remove_dir(nowhere.path()).unwrap();
        self.absent.refresh();
        let lost = self.server.stats().lost;
        assert_eq!(lost, 0);
        let mut another = Client::<Echo>::with_config(&self.run_dir, client_config());
        assert_eq!(another.call(&vec![6]).unwrap(), [6]);
    }
}

/// A run dir where nobody serves.
fn nowhere(run_dir: &RunDir) -> RunDir {
    RunDir::new(run_dir.path().join("nowhere"))
}

#[track_caller]
fn forked<T: std::fmt::Debug>(result: Result<T, CallError>) {
    let error = match result {
        Err(error) => error,
        Ok(found) => panic!("{found:?}"),
    };
    assert!(matches!(error, CallError::Forked), "{error:?}");
    assert!(error.to_string().contains("open the client after the fork"));
}

/// A provider that forks on command.
pub(super) fn play(mut parent: Parent) {
    let mut everything = Everything::new();
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        let reply = match &*line {
            "use" => {
                let mut taken = Some(everything);
                let reply = ends(|| taken.take().unwrap().use_it());
                everything = taken.unwrap();
                reply
            }
            "drop" => {
                let mut taken = Some(everything);
                let reply = ends(|| drop(taken.take()));
                everything = taken.unwrap();
                reply
            }
            "stop" => {
                let mut taken = Some(everything);
                let reply = ends(|| {
                    taken.take().unwrap().server.stop();
                });
                everything = taken.unwrap();
                reply
            }
            "help" => {
                let helper = fork(|| {
                    loop {
                        // SAFETY: it has no arguments.
                        unsafe { libc::pause() };
                    }
                });
                helper.as_raw_nonzero().to_string()
            }
            line => panic!("what is {line:?}?"),
        };
        everything.works();
        parent.send_line(&reply);
    }
}

#[test]
fn a_forked_child_cannot_use_its_parents_sessions_and_can_open_its_own() {
    let dir = Dir::new();
    let mut embedder = Process::start("limits fork", &dir.run_dir);
    assert_eq!(embedder.ask("use"), "well");
    assert_eq!(embedder.ask("use"), "well");
}

#[test]
fn a_forked_child_that_drops_its_parents_objects_leaves_the_parents_intact() {
    let dir = Dir::new();
    let mut embedder = Process::start("limits fork", &dir.run_dir);
    for what in ["drop", "stop", "drop"] {
        assert_eq!(embedder.ask(what), "well", "{what}");
    }
}

/// Ended with the test.
struct Helper(Pid);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[test]
fn a_helper_of_a_provider_that_was_killed_keeps_no_successor_out_and_no_client_waiting() {
    let dir = Dir::new();
    let mut provider = Process::start("limits fork", &dir.run_dir);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(client.call(&vec![1]).unwrap(), [1]);
    // Accepted, or about to be.
    let waiting = Rogue::connect(&dir.run_dir, "echo");
    let helper: i32 = provider.ask("help").parse().unwrap();
    let helper = Helper(Pid::from_raw(helper).unwrap());
    provider.kill();
    waiting.is_closed();
    // No process listens, though the helper lives.
    let mut late = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(late.refresh(), ProviderState::Absent);
    // The endpoints that it had, one try each.
    let mut builder = Server::builder(&dir.run_dir);
    let _publisher = serve_all(&mut builder, &Gate::new(|_| {}));
    let _server = builder.start().unwrap();
    assert_eq!(client.call(&vec![2]).unwrap(), [2]);
    assert!(rustix::process::test_kill_process(helper.0).is_ok(), "the helper lives");
}
