//! How soon a death is seen, while every processor is busy.
//!
//! Absolute times say little on a shared machine. So an observer, a process without Bellwire that waits for the same
//! death by a pidfd, runs beside: its delay is what this machine needs now to notify any process. The test asserts
//! how much later Bellwire's ends are.

use std::fmt::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bellwire::{
    Backoff, CallError, Client, Doorbell, Executed, ProviderState, Refreshed, RunDir, Server,
    ServerConfig, SnapshotCache,
};
use bellwire_memfd::{clock, poll};
use rustix::net::SocketAddrAny;

use crate::support::child::{Parent, Process};
use crate::support::guard::{TEST_TIMEOUT, test_deadline, until};
use crate::support::kernel;
use crate::support::parked::Thread;
use crate::support::services::{Echo, Hold, Numbers, echo};
use crate::support::test_server::{Dir, client_config};

/// Deaths of each kind.
const KILLS: usize = 100;
/// How much later than twice what the observers take an end may be, at the 99th percentile. Alone on a machine it is a
/// few milliseconds; other tests run beside this one, and each processor is busy besides.
const LATER: Duration = Duration::from_millis(20);

/// Keeps every processor busy, each by a process of its own, until it is dropped.
struct Load(#[expect(dead_code, reason = "they end when it is dropped")] Vec<Process>);

impl Load {
    fn everywhere(dir: &Dir) -> Self {
        let cpus = kernel::cpus().into_iter();
        Self(cpus.map(|cpu| Process::start(&format!("busy {cpu}"), &dir.run_dir)).collect())
    }
}

/// The role that spins on one processor.
pub(crate) fn spin(mut parent: Parent, cpu: usize) {
    kernel::pin(&[cpu]);
    parent.send_line("ready");
    thread::spawn(move || {
        while parent.next_line().is_some() {}
        std::process::exit(0);
    });
    loop {
        std::hint::spin_loop();
    }
}

/// The role that reports when the given processes have died, in nanoseconds of the monotonic clock.
pub(crate) fn observe(mut parent: Parent) {
    parent.send_line("ready");
    while let Some(pid) = parent.next_line() {
        let pidfd = kernel::pidfd(pid.parse().unwrap());
        parent.send_line("watching");
        assert!(poll::wait_readable(&[pidfd.as_fd()], None).unwrap().any());
        parent.send_line(&clock::now().as_nanos().to_string());
    }
}

/// Several, so that a chance delay of one of them matters little.
struct Observers([Process; 3]);

impl Observers {
    fn start(dir: &Dir) -> Self {
        Self([(); 3].map(|()| Process::start("observer", &dir.run_dir)))
    }

    /// Kills a process while the observers watch. When, in nanoseconds.
    fn kill(&mut self, victim: &mut Process) -> u64 {
        for observer in &mut self.0 {
            assert_eq!(observer.ask(&victim.pid().to_string()), "watching");
        }
        let killed = clock::now().as_nanos();
        victim.kill_unwaited();
        killed
    }

    /// How long after the kill each saw it, in nanoseconds.
    fn saw(&mut self, killed: u64) -> [u64; 3] {
        self.0.each_mut().map(|observer| observer.next_line().parse::<u64>().unwrap() - killed)
    }
}

/// One series at a time.
fn alone() -> MutexGuard<'static, ()> {
    static SERIES: Mutex<()> = Mutex::new(());
    SERIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nanoseconds from the kill on, by observer.
struct Latencies {
    kinds: Vec<(&'static str, Vec<u64>)>,
    observers: Vec<u64>,
}

impl Latencies {
    fn new(kinds: &[&'static str]) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind, Vec::new())).collect();
        Self { kinds, observers: Vec::new() }
    }

    /// Prints the delays. Fails, with a reason, when a kind is much later than the observers.
    fn judge(mut self) -> Result<(), String> {
        self.observers.sort_unstable();
        let mut text =
            "seen ms after the kill           n     p50     p90     p99     max\n".into();
        line(&mut text, "observers, by pidfd", &self.observers);
        for (kind, seen) in &mut self.kinds {
            seen.sort_unstable();
            line(&mut text, kind, seen);
        }
        println!("{text}");
        let limit = 2 * rank(&self.observers, 99) + u64::try_from(LATER.as_nanos()).unwrap();
        let late = |(_, seen): &&(_, Vec<u64>)| rank(seen, 99) >= limit;
        match self.kinds.iter().find(late) {
            Some((kind, _)) => Err(format!("{kind} is too late:\n{text}")),
            None => Ok(()),
        }
    }
}

/// Others use the machine too, and may preempt a thread that has to be quick: the best of some tries.
fn best_of_three(mut series: impl FnMut() -> Latencies) {
    let late: Vec<String> = (0..3).map_while(|_| series().judge().err()).collect();
    assert!(late.len() < 3, "{}", late.join("\n"));
}

fn line(text: &mut String, kind: &str, seen: &[u64]) {
    let ranks = [50, 90, 99, 100].map(|percent| rank(seen, percent) as f64 / 1e6);
    let [p50, p90, p99, max] = ranks;
    let n = seen.len();
    writeln!(text, "{kind:28} {n:5} {p50:7.2} {p90:7.2} {p99:7.2} {max:7.2}").unwrap();
}

/// The value that so many percent of a sorted list do not exceed.
fn rank(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent).div_ceil(100);
    sorted[at.saturating_sub(1)]
}

/// One that waits for a provider, in a thread of its own.
trait Survivor: Send {
    /// Connects to the current provider.
    fn connect(&mut self);
    /// Waits until it is gone.
    fn wait_for_end(&mut self);
}

/// Waits in a call that a handler holds.
struct Caller(Client<Hold>);

impl Survivor for Caller {
    fn connect(&mut self) {
        until("a session", || self.0.refresh() == ProviderState::Ready);
    }

    fn wait_for_end(&mut self) {
        let failed = self.0.call(&1);
        let executed = Executed::Maybe;
        assert!(
            matches!(failed, Err(CallError::PeerGone { executed: e }) if e == executed),
            "{failed:?}"
        );
    }
}

/// Calls all the time.
struct Chatter(Client<Echo>);

impl Survivor for Chatter {
    fn connect(&mut self) {
        until("a session", || self.0.refresh() == ProviderState::Ready);
    }

    fn wait_for_end(&mut self) {
        let session = self.0.session().unwrap();
        let failed = loop {
            match session.call(&vec![1]) {
                Ok(answer) => assert_eq!(answer, [1]),
                Err(error) => break error,
            }
        };
        assert!(matches!(failed, CallError::PeerGone { .. }), "{failed:?}");
    }
}

/// Has nothing in flight, and sleeps on its session's descriptor.
struct EventLoop(Client<Echo>);

impl Survivor for EventLoop {
    fn connect(&mut self) {
        until("a session", || self.0.refresh() == ProviderState::Ready);
    }

    fn wait_for_end(&mut self) {
        let session = self.0.session().unwrap();
        while session.is_open() {
            if !session.arm().unwrap() {
                let fd = session.pollable().unwrap();
                assert!(poll::wait_readable(&[fd], Some(test_deadline())).unwrap().any());
            }
        }
    }
}

/// Sleeps on the board.
struct Watcher(SnapshotCache<Numbers>);

impl Survivor for Watcher {
    fn connect(&mut self) {
        until("a board", || {
            !matches!(self.0.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Unavailable)
        });
    }

    fn wait_for_end(&mut self) {
        let found = self.0.wait_for_change(Some(TEST_TIMEOUT)).unwrap();
        assert_eq!(found, Refreshed::Unavailable);
    }
}

/// All kinds of survivors, in threads.
struct Survivors {
    kinds: Vec<&'static str>,
    go: Vec<Sender<()>>,
    reports: Receiver<Report>,
}

enum Report {
    /// Which client has connected to the provider, in which thread.
    Connected(usize, i32),
    /// Which client saw it die, and when.
    Saw(usize, u64),
}

/// How many of them, the first ones, wait in a handler.
const CALLERS: usize = 3;
/// Which of them does not sleep.
const CHATTER: usize = 6;

impl Survivors {
    fn start(run_dir: &RunDir) -> Self {
        let config = |doorbell| {
            let backoff = Backoff::default()
                .initial(Duration::from_micros(100))
                .max(Duration::from_millis(1));
            client_config().doorbell(doorbell).backoff(backoff)
        };
        let caller = |doorbell| Box::new(Caller(Client::with_config(run_dir, config(doorbell))));
        let event_loop =
            |doorbell| Box::new(EventLoop(Client::with_config(run_dir, config(doorbell))));
        let futex = config(Doorbell::Futex);
        let all: [(&str, Box<dyn Survivor>); 7] = [
            ("in a call, futex", caller(Doorbell::Futex)),
            ("in a call, eventfd", caller(Doorbell::Eventfd)),
            ("in a call, socket", caller(Doorbell::Socket)),
            ("event loop, eventfd", event_loop(Doorbell::Eventfd)),
            ("event loop, socket", event_loop(Doorbell::Socket)),
            (
                "watcher of the board",
                Box::new(Watcher(SnapshotCache::with_config(run_dir, futex.clone()))),
            ),
            ("calling all the time", Box::new(Chatter(Client::with_config(run_dir, futex)))),
        ];
        let (sender, reports) = channel();
        let (mut kinds, mut go) = (Vec::new(), Vec::new());
        for (at, (kind, mut survivor)) in all.into_iter().enumerate() {
            let (start, started) = channel();
            let sender = sender.clone();
            thread::spawn(move || {
                while started.recv().is_ok() {
                    survivor.connect();
                    sender.send(Report::Connected(at, kernel::thread_id())).unwrap();
                    survivor.wait_for_end();
                    // At the end of a test the receiver is gone.
                    let _ = sender.send(Report::Saw(at, clock::now().as_nanos()));
                }
            });
            kinds.push(kind);
            go.push(start);
        }
        Self { kinds, go, reports }
    }

    /// Lets all meet the provider, and waits until the sleepers sleep. Returns their threads.
    fn connect(&self, server: &mut Process) -> Vec<i32> {
        self.go.iter().for_each(|go| go.send(()).unwrap());
        let mut threads = vec![0; self.kinds.len()];
        for _ in &self.kinds {
            let Report::Connected(at, thread) = self.next_report() else {
                panic!("one saw a death too early")
            };
            threads[at] = thread;
        }
        for _ in 0..CALLERS {
            assert_eq!(server.next_line(), "came 1");
        }
        threads.remove(CHATTER);
        for thread in &threads {
            let syscall = format!("/proc/self/task/{thread}/syscall");
            Thread(Some(syscall.into())).wait_until_parked();
        }
        threads
    }

    fn next_report(&self) -> Report {
        self.reports.recv_timeout(TEST_TIMEOUT).expect("a survivor does not see it, or panicked")
    }
}

/// A provider with a worker for each held caller, and one for the others.
fn provider(dir: &Dir) -> Process {
    Process::start(&format!("server {}", CALLERS + 1), &dir.run_dir)
}

#[test]
fn a_providers_death_is_seen_by_everybody_as_soon_as_the_kernel_reports_it() {
    let dir = Dir::new();
    let _alone = alone();
    let _load = Load::everywhere(&dir);
    let mut observers = Observers::start(&dir);
    let survivors = Survivors::start(&dir.run_dir);
    best_of_three(|| {
        let mut latencies = Latencies::new(&survivors.kinds);
        for _ in 0..KILLS {
            let mut server = provider(&dir);
            survivors.connect(&mut server);
            let killed = observers.kill(&mut server);
            for _ in &survivors.kinds {
                let Report::Saw(at, saw) = survivors.next_report() else {
                    panic!("one met nobody")
                };
                latencies.kinds[at].1.push(saw - killed);
            }
            latencies.observers.extend(observers.saw(killed));
        }
        latencies
    });
}

#[test]
fn a_wait_for_an_idle_provider_is_not_woken() {
    let dir = Dir::new();
    let survivors = Survivors::start(&dir.run_dir);
    let mut server = provider(&dir);
    let threads = survivors.connect(&mut server);
    kernel::assert_no_wake_ups(|| threads.iter().copied().map(kernel::thread_sleeps).sum());
}

/// A server in this process, whose held handlers are all released on command.
struct GatedServer {
    dir: Dir,
    server: Server,
    round: Arc<(Mutex<u64>, Condvar)>,
    came: Receiver<u64>,
}

impl GatedServer {
    fn open(doorbell: Doorbell) -> Self {
        let dir = Dir::new();
        let config = ServerConfig::default().doorbell(doorbell).workers(1);
        let mut builder = Server::builder_with_config(&dir.run_dir, config);
        let round = Arc::new((Mutex::new(0), Condvar::new()));
        let (gate, (sender, came)) = (Arc::clone(&round), channel());
        let sender = Mutex::new(sender);
        builder.serve::<Echo>(echo).unwrap();
        builder
            .serve::<Hold>(move |_, round| {
                sender.lock().unwrap().send(round).unwrap();
                let (current, passed) = &*gate;
                let held = passed.wait_while(current.lock().unwrap(), |current| *current <= round);
                drop(held.unwrap());
                Ok(round)
            })
            .unwrap();
        let server = builder.start().unwrap();
        Self { dir, server, round, came }
    }

    fn release(&self, round: u64) {
        *self.round.0.lock().unwrap() = round + 1;
        self.round.1.notify_all();
    }
}

/// The role of a client that has a session that is idle, and one with a call, with each of two servers.
pub(crate) fn wait_for_death(mut parent: Parent, words: &[&str]) {
    let [round, dirs @ ..] = words else { panic!("{words:?}") };
    let round = round.parse().unwrap();
    let mut idle = Vec::new();
    for dir in dirs {
        let run_dir = RunDir::new(dir);
        let mut client = Client::<Echo>::with_config(&run_dir, client_config());
        assert_eq!(client.call(&vec![1]).unwrap(), [1]);
        idle.push(client);
        thread::spawn(move || Client::<Hold>::with_config(&run_dir, client_config()).call(&round));
    }
    parent.send_line("ready");
    parent.next_line();
}

/// The process's sessions: the endpoint of each, and its socket, of which this process now has a copy. That keeps the
/// socket open when the process dies.
fn sockets(pid: u32) -> Vec<(PathBuf, OwnedFd)> {
    let copies = kernel::copies(pid).into_iter();
    copies.filter_map(|copy| Some((endpoint(&copy)?, copy))).collect()
}

fn endpoint(socket: &OwnedFd) -> Option<PathBuf> {
    let name: SocketAddrAny = rustix::net::getpeername(socket).ok()??;
    let name = rustix::net::SocketAddrUnix::try_from(name).ok()?;
    Some(PathBuf::from(name.path()?.to_str().ok()?))
}

/// When the server has closed each of the sockets, in nanoseconds.
fn closed(sockets: &[(PathBuf, OwnedFd)]) -> Vec<u64> {
    let mut times = vec![None; sockets.len()];
    while times.contains(&None) {
        let open: Vec<usize> = (0..times.len()).filter(|at| times[*at].is_none()).collect();
        let fds: Vec<_> = open.iter().map(|at| sockets[*at].1.as_fd()).collect();
        let ready = poll::wait_readable(&fds, Some(test_deadline())).unwrap();
        assert!(ready.any(), "a server does not see it");
        let now = clock::now().as_nanos();
        for (place, at) in open.into_iter().enumerate() {
            if ready.is(place) {
                times[at] = Some(now);
            }
        }
    }
    times.into_iter().flatten().collect()
}

/// The server closes its end on another thread, after it has released everything else: the test sees that close. The
/// copies of the client's sockets prevent a hang-up: the servers rely on the process's death alone.
#[test]
fn a_clients_death_is_seen_by_its_servers_as_soon_as_the_kernel_reports_it() {
    let kinds = [
        "idle, server's eventfd",
        "in a call, server's eventfd",
        "idle, server's socket",
        "in a call, server's socket",
    ];
    let halls = [Doorbell::Eventfd, Doorbell::Socket].map(GatedServer::open);
    let dirs = halls.each_ref().map(|gated| gated.dir.run_dir.path().display().to_string());
    let services = ["echo.sock", "hold.sock"];
    let paths: Vec<PathBuf> = halls
        .iter()
        .flat_map(|gated| services.map(|service| gated.dir.run_dir.path().join(service)))
        .collect();
    let _alone = alone();
    let _load = Load::everywhere(&halls[0].dir);
    let mut observers = Observers::start(&halls[0].dir);
    let mut round = 0;
    best_of_three(|| {
        let mut latencies = Latencies::new(&kinds);
        for _ in 0..KILLS {
            round += 1;
            let role = format!("victim {round} {}", dirs.join(" "));
            let mut victim = Process::start(&role, &halls[0].dir.run_dir);
            for gated in &halls {
                assert_eq!(gated.came.recv_timeout(TEST_TIMEOUT).unwrap(), round);
            }
            let mut sockets = sockets(victim.pid());
            sockets.retain(|(path, _)| paths.contains(path));
            assert_eq!(sockets.len(), kinds.len());
            let killed = observers.kill(&mut victim);
            for (time, (path, _)) in closed(&sockets).into_iter().zip(&sockets) {
                let kind = paths.iter().position(|known| known == path).unwrap();
                latencies.kinds[kind].1.push(time - killed);
            }
            latencies.observers.extend(observers.saw(killed));
            for gated in &halls {
                gated.release(round);
            }
        }
        latencies
    });
    for gated in halls {
        let stats = gated.server.stop();
        assert_eq!((stats.sessions, stats.lost, stats.poisoned), (0, round, 0));
    }
}
