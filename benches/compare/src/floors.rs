//! Which floor of `bellwire_floor` stands beside a scenario.

use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use bellwire_cgroups::{self as cgroups, CgroupEntry, Meta, Mode, synthetic};
use bellwire_floor::pingpong::{Link, PingPong};
use bellwire_floor::reads::{Found, Words};
use bellwire_floor::{Cpus, Spread, copy, eventfd, futex, handover, hot, ns_each};

use crate::Outcome;

/// The machine's own time for something similar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Two processes that spin, and copy this many bytes each way.
    Hot { size: usize },
    /// Half of that.
    Half { size: usize },
    /// Two processes that spin: one copies messages in, the other out.
    Copy { size: usize },
    /// That of 4 008 bytes, of which an item has 8.
    CopyItems,
    /// That of large messages, in pieces that stay in the caches.
    Bulk { size: usize },
    /// That of a snapshot's bytes.
    Snapshot { cgroups: usize },
    /// Two processes that sleep by futex(2), so many ns between two round trips.
    Futex { gap: u64 },
    /// The same on one processor, without a gap.
    FutexSameCpu,
    /// A Unix socket connected and accepted, and two pages and two lanes of the default size handed over.
    Connect,
    /// A lane handed over each way that takes records of this size, and these bytes copied each way.
    Grow { size: usize },
    /// Two words of private memory, loaded with Acquire.
    TwoLoads,
    /// Names, paths and ids of so many cgroups, compared at known positions.
    Found { cgroups: usize },
}

/// Bytes of the ring: what the lanes of a stream grow to.
const RING: usize = 256 << 10;
/// Slots of the rings beside a hot floor, and the largest messages that they are for.
const SLOTS: usize = 64;
const LARGEST_IN_RINGS: usize = 64 << 10;
/// What a session's page and lane have.
const PAGE: usize = 4 << 10;
const LANE: usize = 16 << 10;
/// Bytes of the lane in which a large message begins to go in parts.
const STREAMED: usize = 256 << 10;
/// Items of the average batch, and their bytes.
const ITEMS: u16 = 501;

/// A floor that is running: measures for about so long what one operation takes, ns.
pub(crate) type Floor = Box<dyn FnMut(Duration) -> Outcome<f64>>;

impl Kind {
    /// Starts it.
    pub(crate) fn start(self, cpus: Cpus) -> Outcome<Floor> {
        Ok(match self {
            Self::Hot { size } => in_a_row(hot::UnpausedFloor::start(cpus, size)?),
            Self::Half { size } => part(in_a_row(hot::UnpausedFloor::start(cpus, size)?), 2.0),
            Self::Copy { size } => copies(cpus, size)?,
            Self::CopyItems => {
                let size = usize::from(ITEMS) * size_of::<u64>();
                part(copies(cpus, size)?, f64::from(ITEMS))
            }
            Self::Bulk { size } => bulks(cpus, size)?,
            Self::Snapshot { cgroups } => bulks(cpus, snapshot_len(cgroups)?)?,
            Self::Futex { gap } => spaced(futex::Floor::start(cpus)?, gap),
            Self::FutexSameCpu => in_a_row(futex::Floor::start(cpus.same())?),
            Self::Connect => connect(cpus)?,
            Self::Grow { size } => grow(cpus, size)?,
            Self::TwoLoads => {
                let words = Words::default();
                sampled(1_000, move |n| Ok(words.loads(n)))
            }
            Self::Found { cgroups } => {
                let keys = |cgroup: CgroupEntry| {
                    [cgroup.name.into(), cgroup.path.into(), cgroup.id.to_le_bytes().into()]
                };
                let groups = synthetic::entries(cgroups, 7).into_iter().map(keys).collect();
                let mut found = Found::new(groups, 7);
                let mut compared = move |n| Ok(found.compare(n).ok_or("two copies differ")?);
                // One pass, so that the caches hold as much of it as they can.
                compared(3 * u64::try_from(cgroups)?)?;
                sampled(1_000, compared)
            }
        })
    }

    /// The machine's time by other means, besides the floor of the ratios.
    pub(crate) fn others(self, cpus: Cpus) -> Outcome<Vec<(&'static str, Floor)>> {
        let others = match self {
            // With a pause it synchronizes with the pause's length, and differs from run to run. The rings show the
            // part of the memory in a call's time.
            Self::Hot { size } if size <= LARGEST_IN_RINGS => [
                ("bare, with a pause", in_a_row(hot::Floor::start(cpus, size)?)),
                ("bare rings", in_a_row(hot::Floor::ring(cpus, size, SLOTS)?)),
            ],
            Self::Futex { gap } => [
                ("bare eventfd, read", spaced(eventfd::Floor::start(cpus)?, gap)),
                ("bare eventfd, epoll", spaced(eventfd::Epoll::start(cpus)?, gap)),
            ],
            Self::FutexSameCpu => [
                ("bare eventfd, read", in_a_row(eventfd::Floor::start(cpus.same())?)),
                ("bare eventfd, epoll", in_a_row(eventfd::Epoll::start(cpus.same())?)),
            ],
            _ => return Ok(Vec::new()),
        };
        Ok(others.into())
    }

    /// In a few words.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Hot { .. } => "two processes spin, and copy the bytes each way",
            Self::Half { .. } => "half of: two processes spin, and copy the bytes each way",
            Self::Copy { .. } => "plain copy from process to process, one way",
            Self::CopyItems => "plain copy of the items from process to process, one way",
            Self::Bulk { .. } | Self::Snapshot { .. } => {
                "plain copy of the bytes from process to process, one way, in pieces"
            }
            Self::Futex { .. } => "bare futex ping-pong with the same gaps, median",
            Self::FutexSameCpu => "bare futex ping-pong on one processor",
            Self::Connect => "bare socket connected and accepted, and the same regions handed over",
            Self::Grow { .. } => {
                "two processes spin: the same regions handed over, and the bytes copied, each way"
            }
            Self::TwoLoads => "two loads of one's own memory with Acquire",
            Self::Found { .. } => {
                "the same names, paths and ids compared where they are known to lie, in one's own memory"
            }
        }
    }
}

/// Bytes of a snapshot of so many cgroups.
fn snapshot_len(cgroups: usize) -> Outcome<usize> {
    Ok(cgroups::encode(&synthetic::entries(cgroups, 7), Meta::now(Mode::V2))?.len())
}

fn copies(cpus: Cpus, size: usize) -> Outcome<Floor> {
    let mut floor = copy::Floor::start(cpus, size, RING)?;
    Ok(sampled(64, move |n| Ok(floor.messages(n)?)))
}

fn bulks(cpus: Cpus, size: usize) -> Outcome<Floor> {
    let mut floor = copy::Bulk::start(cpus, size)?;
    Ok(sampled(4, move |n| Ok(floor.messages(n)?)))
}

/// One of so many parts of an operation.
fn part(mut whole: Floor, parts: f64) -> Floor {
    Box::new(move |span| Ok(whole(span)? / parts))
}

/// Round trips with a sleep of so many ns before each: their median.
fn spaced<L: Link + 'static>(mut floor: PingPong<L>, gap: u64) -> Floor {
    Box::new(move |span| {
        let trips = span.as_nanos() / u128::from(gap + 50_000);
        let gap = Duration::from_nanos(gap);
        let took = floor.spaced(usize::try_from(trips)?.max(4), gap)?;
        let took = Spread::of(took.into_iter().map(|took| ns_each(took, 1)));
        Ok(took.ok_or("no round trip")?.median)
    })
}

fn in_a_row<L: Link + 'static>(mut floor: PingPong<L>) -> Floor {
    sampled(16, move |n| Ok(floor.round_trips(n)?))
}

/// The sockets in this process, and the regions as the floor hands them over, one after the other.
fn connect(cpus: Cpus) -> Outcome<Floor> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("bare.sock");
    let listener = UnixListener::bind(&path)?;
    let mut pages = handover::Floor::start(cpus, PAGE)?;
    let mut lanes = handover::Floor::start(cpus, LANE)?;
    Ok(Box::new(move |span| {
        let (_keep, each) = (&dir, span / 3);
        let sockets = in_time(each, 4, |n| {
            let mut took = Duration::ZERO;
            for _ in 0..n {
                let began = Instant::now();
                let pair = (UnixStream::connect(&path)?, listener.accept()?);
                took += began.elapsed();
                drop(pair);
            }
            Ok(took)
        })?;
        let page = in_time(each, 4, |n| Ok(pages.acknowledged(n)?))?;
        let lane = in_time(each, 4, |n| Ok(lanes.acknowledged(n)?))?;
        Ok(sockets + 2.0 * page + 2.0 * lane)
    }))
}

/// The lanes that such a request and its answer make, then the call; one after the other.
fn grow(cpus: Cpus, size: usize) -> Outcome<Floor> {
    // A record is at most half a lane, with its header. What has no room in 256 KiB goes in parts, for which the lane doubles.
    let lanes = match (2 * size + 1).next_power_of_two() {
        lane if lane <= STREAMED => vec![lane],
        _ => vec![STREAMED, 2 * STREAMED],
    };
    let floors = lanes.into_iter().map(|lane| handover::Floor::start(cpus, lane));
    let mut lanes = floors.collect::<Result<Vec<_>, _>>()?;
    let mut calls = hot::UnpausedFloor::start(cpus, size)?;
    Ok(Box::new(move |span| {
        let mut took = in_time(span / 2, 16, |n| Ok(calls.round_trips(n)?))?;
        for lane in &mut lanes {
            took += 2.0 * in_time(span / 4, 4, |n| Ok(lane.acknowledged(n)?))?;
        }
        Ok(took)
    }))
}

/// Operations in a row, at first `few`.
fn sampled(few: u64, mut run: impl FnMut(u64) -> Outcome<Duration> + 'static) -> Floor {
    Box::new(move |span| in_time(span, few, &mut run))
}

/// Finds how many operations take about `span`, beginning with `few`; what one of the last series took, ns.
fn in_time(
    span: Duration,
    few: u64,
    mut operations: impl FnMut(u64) -> Outcome<Duration>,
) -> Outcome<f64> {
    let mut n = few;
    loop {
        let took = operations(n)?;
        if took * 2 >= span {
            return Ok(ns_each(took, n));
        }
        let more = span.as_nanos() / took.as_nanos().max(1);
        n = n.saturating_mul(u64::try_from(more)?.clamp(2, 64));
    }
}
