//! What is compared with what.

use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::event::Bells;
use crate::peer::Peer;
use crate::pipe;
use crate::rounds::{compare, many, side};
use crate::session::{Echo, HOT, PARKED, SIZE, Sink, call, connect, stream};

/// How much faster than the pipe a call is to be when both ends are hot.
const TARGET: f64 = 5.0;
/// Whichever end spins needs a processor of its own.
const PROCESSORS: usize = 2;
/// Samples of each side. One takes some milliseconds at the most: short enough not to be interrupted, as a rule.
const ROUNDS: usize = 101;
/// The same for the quick check.
const QUICK_ROUNDS: usize = 25;
/// How often the quick check tries: something else may have the processors.
const TRIES: usize = 3;

type Measure = fn(&Peer);

pub(crate) fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let peer = Peer::start();
    let processors = available_parallelism().map_or(1, usize::from);
    if wanted.as_deref() == Some("quick") {
        if processors < PROCESSORS {
            println!("skipped: a hot call needs two processors, and here is one");
            return ExitCode::SUCCESS;
        }
        return verdict((0..TRIES).any(|_| calls_hot(&peer, QUICK_ROUNDS, true)));
    }
    println!("two processes, {processors} processors; under Wine a sanity figure of Wine's\n");
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| name.contains(wanted));
    let met = !is_wanted("hot") || calls_hot(&peer, ROUNDS, false);
    let others: [(&str, Measure); 3] =
        [("parked", parked), ("stream", streams), ("connect", connections)];
    for (_, measure) in others.into_iter().filter(|(name, _)| is_wanted(name)) {
        measure(&peer);
    }
    verdict(met)
}

fn verdict(met: bool) -> ExitCode {
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Both ends look instead of sleeping. Whether the target is met: by the median ratio, or, whatever else the machine does, by the
/// least sample of each side, which nothing interrupted.
fn calls_hot(peer: &Peer, rounds: usize, by_least: bool) -> bool {
    let mut session = connect::<Echo<HOT>>(peer, HOT);
    let mut pipe = pipe::Client::connect(&peer.pipe());
    let [[ours, _], [theirs, ratio]] = compare(
        "call, both ends hot",
        rounds,
        [
            side("bellwire", 500, 500, || call(&mut session)),
            side("named pipe", 5, 20, || pipe.call(&[7; SIZE])),
        ],
    );
    let judged = if by_least { theirs.least / ours.least } else { ratio.median };
    let met = judged >= TARGET;
    println!("  {judged:.1}, target {TARGET} or more: {}", if met { "met" } else { "MISSED" });
    met
}

/// Both ends sleep before each message, unless it comes while they are about to: that spares a wait, so that a call may
/// cost less than two events that are always waited for.
fn parked(peer: &Peer) {
    let mut session = connect::<Echo<PARKED>>(peer, PARKED);
    let mut pipe = pipe::Client::connect(&peer.pipe());
    let bells = Bells::open(&peer.bells());
    compare(
        "call, neither end spins",
        ROUNDS,
        [
            side("bellwire", 5, 20, || call(&mut session)),
            side("two events", 5, 20, || bells.round_trip()),
            side("named pipe", 5, 20, || pipe.call(&[7; SIZE])),
        ],
    );
}

/// One way, as fast as the other end takes it. The session's are answered, each by nothing, in passing.
fn streams(peer: &Peer) {
    const MESSAGES: u32 = 2_000;
    const THROUGH_PIPE: u32 = 50;
    let mut session = connect::<Sink>(peer, HOT);
    let mut pipe = pipe::Client::connect(&peer.pipe());
    let ours = || {
        stream(&mut session, MESSAGES / 4);
        stream(&mut session, MESSAGES)
    };
    let theirs = || {
        pipe.stream(SIZE, THROUGH_PIPE / 4);
        pipe.stream(SIZE, THROUGH_PIPE)
    };
    let sides = [many("bellwire", MESSAGES, ours), many("named pipe", THROUGH_PIPE, theirs)];
    compare("message of a stream", ROUNDS, sides);
}

/// To the first answer, and the end.
fn connections(peer: &Peer) {
    let session = || call(&mut connect::<Echo<PARKED>>(peer, PARKED));
    let pipe = || pipe::Client::connect(&peer.pipe()).call(&[7; SIZE]);
    let sides = [side("bellwire", 1, 2, session), side("named pipe", 1, 2, pipe)];
    compare("connect, one call, close", ROUNDS, sides);
}

/// How long `count` of them take.
pub(crate) fn timed(count: u32, mut what: impl FnMut()) -> Duration {
    let began = Instant::now();
    (0..count).for_each(|_| what());
    began.elapsed()
}
