//! The processor time of a server with a hundred sessions, each of which calls a thousand times a second.

use bellwire::{Client, ClientConfig, RunDir};

use crate::provider::{Echo, Provider, Wait};
use crate::ratios::Outcome;
use crate::scale::on_cpu;
use bellwire_floor::Cpus;
use bellwire_floor::many_clients::{self, Caller, Floor, Kind, SIZE, Seen};
use bellwire_floor::process::{Peer, RoleResult, spawn};

pub const CALLERS: &str = "crowd-callers";

const SESSIONS: usize = 100;
const RATE: u32 = 1_000;
const THREADS: u32 = 20;
const MILLIS: u32 = 300;
const ROUNDS: usize = 15;

/// One kind's rounds.
#[derive(Default)]
struct Column {
    /// Server's nanoseconds for a call.
    each: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    rate: Vec<f64>,
}

/// A hundred sessions at a thousand calls a second, over Bellwire, over datagrams, and over bare bells: how much
/// processor time their server takes for a call.
pub fn server_time(cpus: Cpus) -> Outcome {
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::Spin);
    let words = [provider.path(), SESSIONS.to_string()];
    let callers = spawn(CALLERS, &[cpus.client], &words, &[])?;
    let sockets = Floor::start(cpus, Kind::Sockets, SESSIONS)?;
    let bells = Floor::start(cpus, Kind::Bells, SESSIONS)?;
    let subjects = [
        ("SOCK_SEQPACKET, epoll", sockets.server.pid(), &sockets.callers),
        ("bare bells: eventfd, epoll, futex", bells.server.pid(), &bells.callers),
        ("Bellwire", provider.pid(), &callers),
    ];
    let mut columns = [Column::default(), Column::default(), Column::default()];
    for round in 0..=ROUNDS {
        for (column, (_, server, callers)) in columns.iter_mut().zip(&subjects) {
            let before = on_cpu(&[*server]);
            let seen = many_clients::order(callers, RATE, MILLIS, THREADS)?;
            // The first round is not counted: the machine was cold.
            if round > 0 {
                column.note(on_cpu(&[*server]) - before, seen);
            }
        }
    }
    let floor = columns[0].each.clone();
    let mut median = f64::MAX;
    for (column, (name, ..)) in columns.iter_mut().zip(&subjects) {
        let mut ratios: Vec<f64> =
            column.each.iter().zip(&floor).map(|(each, floor)| each / floor).collect();
        median = middle(&mut ratios);
        println!(
            "server's time, {SESSIONS} sessions at {RATE}/s, {name}: {:.0} ns a call, p50 {:.0} us, p99 {:.0} us, {:.0} calls/s, ratio {median:.2} [{:.2}..{:.2}]",
            middle(&mut column.each),
            middle(&mut column.p50) / 1e3,
            middle(&mut column.p99) / 1e3,
            middle(&mut column.rate),
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
    let met = median <= 0.5;
    println!("  target at most 0.5 of SOCK_SEQPACKET: {}", if met { "met" } else { "MISSED" });
    Ok(met)
}

impl Column {
    fn note(&mut self, ran: u64, seen: Seen) {
        self.each.push(ran as f64 / seen.calls.max(1) as f64);
        self.p50.push(seen.p50 as f64);
        self.p99.push(seen.p99 as f64);
        self.rate.push(seen.calls as f64 * 1e3 / f64::from(MILLIS));
    }
}

fn middle(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The process that calls through sessions.
pub fn callers(peer: &mut Peer) -> RoleResult {
    let run_dir = RunDir::new(peer.arg(0)?);
    let mut callers = Vec::new();
    for _ in 0..peer.number(1)? {
        let mut client = Client::with_config(&run_dir, ClientConfig::default());
        client.connect()?;
        callers.push(Session(client));
    }
    many_clients::follow(peer, callers)
}

struct Session(Client<Echo<64>>);

impl Caller for Session {
    fn call(&mut self, request: &[u8; SIZE]) -> bool {
        self.0.call(request).is_ok_and(|answer| answer == *request)
    }
}
