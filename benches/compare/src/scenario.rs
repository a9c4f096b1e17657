//! What is measured. `docs/benchmarks.md` has the definitions for people; a test holds it against this list.

use std::fmt;

use crate::floors::Kind;
use crate::load::{Load, Placing, SMALL, Work};
use crate::order::Pace;

/// One line of a report for each contender.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Its name: a group, and what distinguishes it within the group.
    pub(crate) name: String,
    pub(crate) group: &'static str,
    pub(crate) load: Load,
    pub(crate) pace: Pace,
    /// What is counted.
    pub(crate) unit: &'static str,
    /// How its time is taken.
    pub(crate) clock: Clock,
    /// The machine's own time for something similar.
    pub(crate) floor: Kind,
    /// What disturbs a sample.
    pub(crate) wants: Wants,
    /// The default length of a sample, ms.
    pub(crate) millis: u64,
}

/// How the time of operations is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Some in a row. Then as long again with each timed, for the percentiles.
    RowThenEach,
    /// Some in a row.
    Row,
    /// Each is timed; the figure is their median.
    Each,
    /// The receiver's: from the first message to the last.
    Received,
    /// The receiver's, each message from its send time; the figure is their median.
    OneWay,
    /// All clients together take a burst of events: from the first that is published to the last that the last one has, divided
    /// by the number of events.
    Burst,
    /// One operation of all clients together, after the server has published: from the first that began to the last
    /// that ended.
    Together,
}

/// What a sample must be to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Both ends spin: one placement throughout, and nothing else on the two processors.
    Quiet,
    /// One placement throughout.
    Placed,
    /// Both ends sleep, or share a processor: nothing.
    Nothing,
}

/// All scenarios, in the order of reports; `size` takes the place of the usual payloads.
pub(crate) fn all(size: Option<usize>) -> Vec<Scenario> {
    let sizes = |usual: &[usize]| size.map_or_else(|| usual.to_vec(), |size| vec![size]);
    let small = size.unwrap_or(SMALL);
    let mut all = Vec::new();
    for size in sizes(&[8, 64, 1 << 10, 64 << 10]) {
        all.push(calls("ping-pong", size));
    }
    for size in sizes(&[64, 1 << 10]) {
        let work = Work::Calls { size, depth: 16 };
        all.push(hot("pipeline-d16", Bytes(size), work, Kind::Copy { size }));
    }
    for (group, depth) in [("batch", 1), ("pipeline-batch-d16", 16)] {
        let floor = Kind::CopyItems;
        let batches = Scenario::new(group, None, Work::Batches { depth }, floor, Wants::Quiet);
        all.push(Scenario { unit: "item", ..batches });
    }
    for size in sizes(&[64, 1 << 10, 64 << 10]) {
        let floor = Kind::of_stream(size);
        let stream = hot("stream", Bytes(size), Work::Stream { size }, floor);
        all.push(Scenario { unit: "message", clock: Clock::Received, ..stream });
    }
    let one_way =
        hot("one-way", Bytes(small), Work::OneWay { size: small }, Kind::Half { size: small });
    all.push(Scenario {
        unit: "message",
        clock: Clock::OneWay,
        // The median of so many hardly moves for what takes a processor away now and then.
        wants: Wants::Placed,
        millis: 40,
        pace: Pace::Rate(50_000),
        ..one_way
    });
    let event_sizes = sizes(&[64, 1 << 10]);
    let size = size.unwrap_or(1 << 10);
    let mut eight = calls("clients-8", size);
    eight.load.clients = 8;
    let floor = Kind::Copy { size };
    all.push(Scenario { floor, wants: Wants::Placed, millis: 40, ..eight.alone() });
    for (group, placing, counts) in
        [("unpinned", Placing::Unpinned, &[1, 8, 16, 64][..]), ("busy", Placing::Busy, &[1, 8, 64])]
    {
        all.extend(counts.iter().map(|&clients| scheduled(group, placing, clients, small)));
    }
    all.extend([1, 100, 1_000, 10_000].map(sessions));
    let mut hundred = paced("reactor", "100-1k", Pace::Rate(1_000), SMALL, 1_000_000);
    hundred.load = Load {
        work: Work::Sessions { each: 1 },
        clients: 100,
        placing: Placing::Unpinned,
        ..hundred.load
    };
    all.push(hundred);
    all.extend(snapshots());
    for size in event_sizes {
        all.extend([1, 8, 64].map(|readers| events(size, readers)));
    }
    let connect = Scenario::new("connect", None, Work::Connect, Kind::Connect, Wants::Nothing);
    all.push(Scenario { unit: "connection", clock: Clock::Each, millis: 40, ..connect });
    for size in [48 << 10, 1 << 20] {
        let floor = Kind::Grow { size };
        let grow = hot("grow", Bytes(size), Work::Grow { size }, floor);
        all.push(Scenario { clock: Clock::Each, wants: Wants::Nothing, millis: 40, ..grow });
    }
    for (name, gap) in [("20us", 20), ("100us", 100), ("1ms", 1_000), ("10ms", 10_000)] {
        all.push(paced("parked", name, Pace::Gap(gap * 1_000), small, gap * 1_000));
    }
    let mut same = calls("same-cpu", small);
    same.load.placing = Placing::OneCpu;
    let same = Scenario { floor: Kind::FutexSameCpu, wants: Wants::Nothing, millis: 20, ..same };
    all.push(same.alone());
    for (name, rate) in
        [("100", 100), ("1k", 1_000), ("10k", 10_000), ("100k", 100_000), ("300k", 300_000)]
    {
        all.push(paced("rate", name, Pace::Rate(rate), small, 1_000_000_000 / rate));
    }
    all
}

impl Scenario {
    fn new(
        group: &'static str,
        tail: Option<&dyn fmt::Display>,
        work: Work,
        floor: Kind,
        wants: Wants,
    ) -> Self {
        let name = tail.map_or_else(|| group.to_owned(), |tail| format!("{group}-{tail}"));
        let load = Load { work, clients: 1, placing: Placing::Pinned, falsify: 0 };
        Self {
            name,
            group,
            load,
            pace: Pace::Max,
            unit: "call",
            clock: Clock::Row,
            floor,
            wants,
            millis: 10,
        }
    }

    /// Called as its group, of which it is the only one.
    fn alone(self) -> Self {
        Self { name: self.group.to_owned(), ..self }
    }

    /// Whether `word` of a command line means it: its name, its group, or what its name begins with.
    pub(crate) fn is_meant_by(&self, word: &str) -> bool {
        let rest = self.name.strip_prefix(word);
        self.group == word || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Whether a rate makes sense for it.
    pub(crate) fn is_of_single_calls(&self) -> bool {
        let is_one =
            matches!(self.load.work, Work::Calls { depth: 1, .. } | Work::Sessions { each: 1 });
        is_one && self.group != "parked"
    }

    /// The bytes of one operation's message, where they are worth a throughput.
    pub(crate) fn bytes(&self) -> Option<usize> {
        match self.load.work {
            Work::Calls { size, .. } | Work::Stream { size } | Work::OneWay { size } => Some(size),
            Work::Grow { size } | Work::Events { size } => Some(size),
            Work::Batches { .. } => Some(size_of::<u64>()),
            _ => None,
        }
    }

    /// What an operation is, in a few words.
    pub(crate) fn about(&self) -> String {
        let Load { work, clients, placing, .. } = self.load;
        let text = match work {
            Work::Calls { size, depth: 1 } => format!("call of {:#} and its answer", Bytes(size)),
            Work::Calls { size, depth } => {
                format!("call of {:#} and its answer, {depth} in flight", Bytes(size))
            }
            Work::Sessions { each } => {
                format!("call of {:#} and its answer, {each} sessions each in turn", Bytes(SMALL))
            }
            Work::Batches { depth } => {
                format!("item of 8 B in messages of 2 to 1 000, {depth} in flight")
            }
            Work::Stream { size } => format!("message of {:#} one way", Bytes(size)),
            Work::OneWay { size } => {
                format!("message of {:#} one way, from its send time", Bytes(size))
            }
            Work::Refresh { cgroups, changed: true } => {
                format!("refresh to a new snapshot of {cgroups} cgroups")
            }
            Work::Refresh { cgroups, .. } => {
                format!("refresh that finds nothing new, {cgroups} cgroups")
            }
            Work::Events { size } => format!("event of {:#} to every reader", Bytes(size)),
            Work::LookUp { cgroups } => {
                format!("look-up by name, path and id among {cgroups} cgroups")
            }
            Work::Connect => "connection opened, up to its first answer".to_owned(),
            Work::Grow { size } => format!("first call of {:#} after calls of 64 B", Bytes(size)),
        };
        let many = if clients > 1 { format!(", {clients} clients") } else { String::new() };
        let pace = match self.pace {
            Pace::Max => String::new(),
            Pace::Rate(rate) => format!(", {rate} a second"),
            Pace::Gap(gap) => format!(", after a sleep of {} µs", gap / 1_000),
        };
        let place = match placing {
            Placing::Pinned => "",
            Placing::OneCpu => ", both ends on one processor",
            Placing::Unpinned => ", on any processor",
            Placing::Busy => ", on any processor, beside a process that never sleeps",
        };
        text + &many + &pace + place
    }
}

fn hot(group: &'static str, size: Bytes, work: Work, floor: Kind) -> Scenario {
    Scenario::new(group, Some(&size), work, floor, Wants::Quiet)
}

fn calls(group: &'static str, size: usize) -> Scenario {
    let calls = hot(group, Bytes(size), Work::Calls { size, depth: 1 }, Kind::Hot { size });
    Scenario { clock: Clock::RowThenEach, ..calls }
}

/// Calls of so many clients, wherever the scheduler puts all ends.
fn scheduled(group: &'static str, placing: Placing, clients: usize, size: usize) -> Scenario {
    let work = Work::Calls { size, depth: 1 };
    let tail = format!("c{clients}");
    let mut one = Scenario::new(group, Some(&tail), work, Kind::Hot { size }, Wants::Nothing);
    (one.load.placing, one.load.clients) = (placing, clients);
    Scenario { clock: Clock::RowThenEach, millis: 60, ..one }
}

/// Calls of two clients, or one, on so many sessions together.
fn sessions(count: usize) -> Scenario {
    let (clients, floor) = (count.min(2), Kind::Hot { size: SMALL });
    let work = Work::Sessions { each: count / clients };
    let mut one = Scenario::new("reactor", Some(&count), work, floor, Wants::Nothing);
    (one.load.placing, one.load.clients) = (Placing::Unpinned, clients);
    Scenario { clock: Clock::RowThenEach, millis: 200, ..one }
}

/// Calls with sleep between them: next to a bare futex that is used as seldom, or where there is no sleep, to the hot floor.
fn paced(group: &'static str, tail: &str, pace: Pace, size: usize, gap: u64) -> Scenario {
    let floor = if gap < 20_000 { Kind::Hot { size } } else { Kind::Futex { gap } };
    let work = Work::Calls { size, depth: 1 };
    let paced = Scenario::new(group, Some(&tail), work, floor, Wants::Nothing);
    let millis = (gap / 1_000_000 * 15).max(60);
    Scenario { pace, clock: Clock::Each, millis, ..paced }
}

fn events(size: usize, readers: usize) -> Scenario {
    let tail = format!("{}-r{readers}", Bytes(size));
    let floor = Kind::Copy { size };
    let mut one =
        Scenario::new("events", Some(&tail), Work::Events { size }, floor, Wants::Nothing);
    one.load.clients = readers;
    Scenario { unit: "event", clock: Clock::Burst, millis: 40, ..one }
}

fn snapshots() -> Vec<Scenario> {
    let mut all = Vec::new();
    for changed in [false, true] {
        for cgroups in [16, 1_000, 10_000] {
            for readers in [1, 8] {
                let state = if changed { "changed" } else { "unchanged" };
                let tail = format!("{state}-{cgroups}-r{readers}");
                let work = Work::Refresh { cgroups, changed };
                let floor = if changed { Kind::Snapshot { cgroups } } else { Kind::TwoLoads };
                let mut one = Scenario::new("snapshot", Some(&tail), work, floor, Wants::Nothing);
                one.load.clients = readers;
                one.clock = if changed { Clock::Together } else { Clock::Row };
                all.push(Scenario { unit: "refresh", millis: 40, ..one });
            }
        }
    }
    for cgroups in [16, 1_000, 10_000] {
        let work = Work::LookUp { cgroups };
        let floor = Kind::Found { cgroups };
        let look = Scenario::new("lookup", Some(&cgroups), work, floor, Wants::Nothing);
        all.push(Scenario { unit: "look-up", ..look });
    }
    all
}

/// A number of bytes, as names have it; with `#`, as sentences do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, name, unit) = match self.0 {
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => (bytes >> 20, "m", " MiB"),
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 10) => (bytes >> 10, "k", " KiB"),
            bytes => (bytes, "", " B"),
        };
        write!(f, "{number}{}", if f.alternate() { unit } else { name })
    }
}
