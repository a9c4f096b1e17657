//! Many sessions of one server: how soon they are open, what idle sessions cost a call, how eight share a server.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use bellwire::{Client, ClientConfig, RunDir};

use crate::provider::{Echo, Provider, Sink, Wait};
use crate::ratios::Outcome;
use bellwire_floor::copy::{self, Shape};
use bellwire_floor::process::{Child, Peer, RoleResult, spawn};
use bellwire_floor::{Cpus, Ratio, ns_each};

pub const CROWD: &str = "crowd";
pub const STREAMER: &str = "streamer";

const SESSIONS: usize = 10_000;
const PROCESSES: usize = 4;
const STREAMERS: usize = 8;
const STREAM_FOR: Duration = Duration::from_millis(500);
const MANY: usize = 256;

/// Ten thousand sessions, opened by four processes that share the bench's processor. Beside them as many connections
/// with nothing in them.
pub fn connect(cpus: Cpus) -> Outcome {
    let bare = bare_connections()?;
    let (mut best, mut ran) = (f64::MAX, [0; 2]);
    for _ in 0..3 {
        let provider = Provider::start(cpus, Wait::Spin);
        let mut crowd = ManyClients::start(&provider, cpus)?;
        best = best.min(crowd.open(SESSIONS)?.as_secs_f64());
        ran = [on_cpu(&[provider.pid()]), on_cpu(&crowd.pids())];
    }
    let met = best < 5.0;
    println!(
        "connect, {SESSIONS} sessions: {best:.2} s, {:.0} us each; bare connections {:.0} us each, target below 5 s: {}",
        best * 1e6 / SESSIONS as f64,
        bare * 1e6 / SESSIONS as f64,
        if met { "met" } else { "MISSED" }
    );
    let [server, clients] = ran.map(|ran| ran as f64 / 1e3 / SESSIONS as f64);
    println!(
        "  time on a processor, starting included: server {server:.0} us, clients {clients:.0} us a session"
    );
    Ok(met)
}

/// The machine's time for the sockets alone: connect and accept, in one thread. Seconds.
fn bare_connections() -> std::io::Result<f64> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("bare.sock");
    let listener = UnixListener::bind(&path)?;
    let mut held: Vec<OwnedFd> = Vec::new();
    let mut took = Duration::ZERO;
    let mut made = 0;
    while made < SESSIONS {
        let began = Instant::now();
        let (client, server) = match UnixStream::connect(&path).and_then(|client| {
            let (server, _) = listener.accept()?;
            Ok((client, server))
        }) {
            Ok(pair) => pair,
            // This process may have fewer descriptors than both ends take.
            Err(error) if error.kind() == ErrorKind::Other || error.raw_os_error() == Some(24) => {
                held.clear();
                continue;
            }
            Err(error) => return Err(error),
        };
        took += began.elapsed();
        made += 1;
        held.extend([client.into(), server.into()]);
    }
    Ok(took.as_secs_f64())
}

/// A call with 10 000 idle sessions in the same server, beside the same call in a server that has this one.
pub fn idle_crowd(cpus: Cpus) -> Outcome {
    let cpus = cpus.two()?;
    let mut met = true;
    for (name, wait, calls) in [("hot", Wait::Spin, 20_000), ("parked", Wait::Park, 2_000)] {
        let (alone, crowded) = (Provider::start(cpus, wait), Provider::start(cpus, wait));
        let mut crowd = ManyClients::start(&crowded, cpus)?;
        crowd.open(SESSIONS - 1)?;
        let (mut few, mut many) = (alone.client::<Echo<64>>(), crowded.client::<Echo<64>>());
        for (rank, target) in [(50, None), (99, Some(1.2))] {
            let mut ratio = Ratio::new(format!("call, {name}, p{rank}, 10 000 idle / 1 session"));
            if let Some(target) = target {
                ratio = ratio.target(target);
            }
            let floor = || Ok(percentile(&mut few, calls, rank));
            let measured = || Ok(percentile(&mut many, calls, rank));
            let report = ratio.run(30, floor, measured, None)?;
            println!("{report}");
            met &= report.met().unwrap_or(true);
        }
    }
    Ok(met)
}

/// The nanoseconds that so many percent of some calls do not exceed.
fn percentile(client: &mut Client<Echo<64>>, calls: usize, rank: usize) -> f64 {
    let session = client.session().expect("the session is gone");
    // The other server was awake until now.
    for _ in 0..calls / 10 {
        session.call(&[7; 64]).expect("no answer");
    }
    let mut times: Vec<u128> = (0..calls)
        .map(|_| {
            let began = Instant::now();
            session.call(&[7; 64]).expect("no answer");
            began.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[calls * rank / 100] as f64
}

/// Eight processes on the bench's processor send messages of 1 KiB, each answered by an empty one, to one server on the
/// other; beside one process that copies such messages to another.
pub fn eight(cpus: Cpus) -> Outcome {
    const MESSAGES: u64 = 50_000;
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::Spin);
    let streamers = Streamers::start(&provider, cpus, STREAMERS, 0)?;
    let mut floor = copy::Floor::start(cpus, Shape::new(1024, 1).ring(256 << 10))?;
    let mut shares = Vec::new();
    let (mut rate, mut ran, mut answered) = (0_f64, [0; 2], 0);
    let report = Ratio::new("stream, 8 clients, 1 KiB / plain copy").run(
        10,
        || Ok(ns_each(floor.messages(MESSAGES)?, MESSAGES)),
        || {
            let on_cpu = || [on_cpu(&[provider.pid()]), on_cpu(&streamers.pids())];
            let before = on_cpu();
            let (counts, took) = streamers.run()?;
            let all: u64 = counts.iter().sum();
            let after = on_cpu();
            ran = [0, 1].map(|at| ran[at] + after[at] - before[at]);
            answered += all;
            rate = rate.max(all as f64 / took.as_secs_f64());
            shares.extend(counts.iter().map(|count| *count as f64 * 100.0 / all as f64));
            Ok(ns_each(took, all))
        },
        None,
    )?;
    println!("{report}");
    shares.sort_by(f64::total_cmp);
    let median = report.best().map_or(f64::MAX, |best| best.measured.median);
    let met = median < 1e9 / 3e6;
    println!(
        "stream, 8 clients, 1 KiB: {:.2} M messages/s (best {:.2}), shares {:.1} to {:.1} %, target at least 3.0: {}",
        1e3 / median,
        rate / 1e6,
        shares.first().unwrap_or(&0.0),
        shares.last().unwrap_or(&0.0),
        if met { "met" } else { "MISSED" }
    );
    let [server, clients] = ran.map(|ran| ran as f64 / answered as f64);
    println!(
        "  time on a processor, spinning included: server {server:.0} ns, clients {clients:.0} ns a message"
    );
    Ok(met)
}

/// The nanoseconds that all threads of some processes have run.
pub fn on_cpu(pids: &[u32]) -> u64 {
    let tasks = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let text = |task: fs::DirEntry| fs::read_to_string(task.path().join("schedstat")).ok();
    let ran = |text: String| text.split(' ').next()?.parse::<u64>().ok();
    tasks.flatten().filter_map(|task| ran(text(task.ok()?)?)).sum()
}

/// A client that calls once in a while, alone and beside some that send as fast as they are answered. They share a
/// processor, on which the senders have lower priority; the remaining cost, a switch or two, is in the figure.
pub fn fairness(cpus: Cpus) -> Outcome {
    const CALLS: usize = 300;
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::Spin);
    let mut quiet = provider.client::<Echo<64>>();
    let mut text = String::new();
    for flooders in [0, 1, 2, 4] {
        let streamers = Streamers::start(&provider, cpus, flooders, 19)?;
        streamers.begin(Duration::from_secs(60))?;
        let mut times = now_and_then(&mut quiet, CALLS);
        times.sort_unstable();
        let [p50, p99] = [50, 99].map(|rank| times[CALLS * rank / 100].as_nanos() as f64 / 1e3);
        let _ = write!(text, "; beside {flooders}: p50 {p50:.0} us, p99 {p99:.0} us");
    }
    println!("fairness, a call each ms{}", text.replace("; beside 0:", " alone:"));
    Ok(true)
}

fn now_and_then(client: &mut Client<Echo<64>>, calls: usize) -> Vec<Duration> {
    let session = client.session().expect("the session is gone");
    let call = |_| {
        std::thread::sleep(Duration::from_millis(1));
        let began = Instant::now();
        session.call(&[7; 64]).expect("no answer");
        began.elapsed()
    };
    (0..calls).map(call).collect()
}

/// Processes with many sessions.
struct ManyClients(Vec<Child>);

impl ManyClients {
    fn start(provider: &Provider, cpus: Cpus) -> bellwire_floor::Result<Self> {
        let path = provider.path();
        let child = |_| spawn(CROWD, &[cpus.client], std::slice::from_ref(&path), &[]);
        Ok(Self((0..PROCESSES).map(child).collect::<Result<_, _>>()?))
    }

    fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::pid).collect()
    }

    /// Opens this many sessions, and reports how long that took.
    fn open(&mut self, sessions: usize) -> bellwire_floor::Result<Duration> {
        let began = Instant::now();
        for (at, child) in self.0.iter().enumerate() {
            let each = (sessions + at) / PROCESSES;
            child.send(each.to_string().as_bytes())?;
        }
        for child in &self.0 {
            child.receive()?;
        }
        Ok(began.elapsed())
    }
}

/// The process that opens sessions.
pub fn crowd(peer: &mut Peer) -> RoleResult {
    let run_dir = RunDir::new(peer.arg(0)?);
    let mut clients: Vec<Client<Echo<64>>> = Vec::new();
    peer.ready()?;
    while let Some(message) = peer.receive()? {
        for _ in 0..std::str::from_utf8(&message)?.parse()? {
            let config = ClientConfig::default().connect_timeout(Duration::from_secs(30));
            let mut client = Client::with_config(&run_dir, config);
            client.connect()?;
            clients.push(client);
        }
        peer.send(b"opened")?;
    }
    Ok(())
}

/// Processes that send as fast as they are answered.
struct Streamers(Vec<Child>);

impl Streamers {
    fn start(
        provider: &Provider,
        cpus: Cpus,
        count: usize,
        nice: i32,
    ) -> bellwire_floor::Result<Self> {
        let words = [provider.path(), nice.to_string()];
        let child = |_| spawn(STREAMER, &[cpus.client], &words, &[]);
        Ok(Self((0..count).map(child).collect::<Result<_, _>>()?))
    }

    fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::pid).collect()
    }

    fn begin(&self, span: Duration) -> bellwire_floor::Result<()> {
        self.0.iter().try_for_each(|child| child.send(span.as_micros().to_string().as_bytes()))
    }

    /// Makes all of them stream, and reports how many messages of each were answered, and in what time.
    fn run(&self) -> Result<(Vec<u64>, Duration), Box<dyn std::error::Error + Send + Sync>> {
        let began = Instant::now();
        self.begin(STREAM_FOR)?;
        let counts =
            self.0.iter().map(|child| Ok(std::str::from_utf8(&child.receive()?)?.parse()?));
        let counts: Result<Vec<u64>, Box<dyn std::error::Error + Send + Sync>> = counts.collect();
        Ok((counts?, began.elapsed()))
    }
}

/// The process that streams, for the ordered number of microseconds.
pub fn streamer(peer: &mut Peer) -> RoleResult {
    let run_dir = RunDir::new(peer.arg(0)?);
    let mut client = Client::<Sink<1024>>::new(&run_dir);
    let session = client.connect()?;
    let request = [7; 1024];
    rustix::process::nice(peer.arg(1)?.parse()?)?;
    peer.ready()?;
    while let Some(message) = peer.receive()? {
        let span = Duration::from_micros(std::str::from_utf8(&message)?.parse()?);
        let (began, mut answered) = (Instant::now(), 0_u64);
        while began.elapsed() < span {
            session.call_many(std::iter::repeat_n(&request, MANY), |_, answer| {
                answered += u64::from(answer.is_ok());
            })?;
        }
        peer.send(answered.to_string().as_bytes())?;
    }
    Ok(())
}
