//! What is measured. `docs/benchmarks.md` has the definitions for people; a test holds it against this list.

use std::fmt;

use crate::floors::Kind;
use crate::load::{Load, Placing, SMALL, Work};
use crate::order::Schedule;

/// One line of a report for each contender.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Its name: a group, and what distinguishes it within the group.
    pub(crate) name: String,
    pub(crate) group: &'static str,
    pub(crate) load: Load,
    pub(crate) schedule: Schedule,
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
    let call = |size| Work::Calls { size, depth: 1 };
    let mut all = Vec::new();
    for size in sizes(&[8, 64, 1 << 10, 64 << 10]) {
        all.push(Scenario::new("ping-pong", Bytes(size), call(size), 10));
    }
    for size in sizes(&[64, 1 << 10]) {
        let work = Work::Calls { size, depth: 16 };
        all.push(Scenario::new("pipeline-d16", Bytes(size), work, 10));
    }
    for (group, depth) in [("batch", 1), ("pipeline-batch-d16", 16)] {
        all.push(Scenario::alone(group, Work::Batches { depth }, 10));
    }
    for size in sizes(&[64, 1 << 10, 64 << 10]) {
        all.push(Scenario::new("stream", Bytes(size), Work::Stream { size }, 10));
    }
    let one_way = Scenario::new("one-way", Bytes(small), Work::OneWay { size: small }, 40);
    all.push(one_way.scheduled(Schedule::Rate(50_000)));
    let eight = Scenario::alone("clients-8", call(size.unwrap_or(1 << 10)), 40);
    all.push(eight.by(8, Placing::Pinned));
    for (group, placing, counts) in
        [("unpinned", Placing::Unpinned, &[1, 8, 16, 64][..]), ("busy", Placing::Busy, &[1, 8, 64])]
    {
        for &clients in counts {
            let calls = Scenario::new(group, format!("c{clients}"), call(small), 60);
            all.push(calls.by(clients, placing));
        }
    }
    for sessions in [1, 100, 1_000, 10_000] {
        let clients = sessions.min(2);
        let work = Work::Sessions { each: sessions / clients };
        all.push(Scenario::new("reactor", sessions, work, 200).by(clients, Placing::Unpinned));
    }
    let hundred = Scenario::new("reactor", "100-1k", Work::Sessions { each: 1 }, 60);
    all.push(hundred.by(100, Placing::Unpinned).scheduled(Schedule::Rate(1_000)));
    for (state, changed) in [("unchanged", false), ("changed", true)] {
        for cgroups in [16, 1_000, 10_000] {
            let work = Work::Refresh { cgroups, changed };
            for readers in [1, 8] {
                let tail = format!("{state}-{cgroups}-r{readers}");
                let refresh = Scenario::new("snapshot", tail, work, 40);
                all.push(refresh.by(readers, Placing::Pinned));
            }
        }
    }
    for cgroups in [16, 1_000, 10_000] {
        all.push(Scenario::new("lookup", cgroups, Work::LookUp { cgroups }, 10));
    }
    for size in sizes(&[64, 1 << 10]) {
        for readers in [1, 8, 64] {
            let tail = format!("{}-r{readers}", Bytes(size));
            let events = Scenario::new("events", tail, Work::Events { size }, 40);
            all.push(events.by(readers, Placing::Pinned));
        }
    }
    all.push(Scenario::alone("connect", Work::Connect, 40));
    for size in [48 << 10, 1 << 20] {
        all.push(Scenario::new("grow", Bytes(size), Work::Grow { size }, 40));
    }
    for (name, us) in [("20us", 20), ("100us", 100), ("1ms", 1_000), ("10ms", 10_000)] {
        all.push(
            Scenario::new("parked", name, call(small), 60).scheduled(Schedule::Gap(us * 1_000)),
        );
    }
    all.push(Scenario::alone("same-cpu", call(small), 20).by(1, Placing::OneCpu));
    for (name, rate) in
        [("100", 100), ("1k", 1_000), ("10k", 10_000), ("100k", 100_000), ("300k", 300_000)]
    {
        all.push(Scenario::new("rate", name, call(small), 60).scheduled(Schedule::Rate(rate)));
    }
    all
}

impl Scenario {
    /// Of one client, as fast as it can.
    fn new(group: &'static str, tail: impl fmt::Display, work: Work, millis: u64) -> Self {
        Self { name: format!("{group}-{tail}"), ..Self::alone(group, work, millis) }
    }

    /// Called as its group, of which it is the only one.
    fn alone(group: &'static str, work: Work, millis: u64) -> Self {
        let load = Load { work, clients: 1, placing: Placing::Pinned, falsify: 0 };
        Self { name: group.to_owned(), group, load, schedule: Schedule::Max, millis }
    }

    fn by(mut self, clients: usize, placing: Placing) -> Self {
        (self.load.clients, self.load.placing) = (clients, placing);
        self
    }

    /// For at least 15 operations, where each waits for its time.
    pub(crate) fn scheduled(self, schedule: Schedule) -> Self {
        let millis = self.millis.max(15 * (schedule.gap() / 1_000_000));
        Self { schedule, millis, ..self }
    }

    /// What is counted.
    pub(crate) fn unit(&self) -> &'static str {
        match self.load.work {
            Work::Calls { .. } | Work::Sessions { .. } | Work::Grow { .. } => "call",
            Work::Batches { .. } => "item",
            Work::Stream { .. } | Work::OneWay { .. } => "message",
            Work::Refresh { .. } => "refresh",
            Work::Events { .. } => "event",
            Work::LookUp { .. } => "look-up",
            Work::Connect => "connection",
        }
    }

    /// How its time is taken.
    pub(crate) fn clock(&self) -> Clock {
        match self.load.work {
            Work::Calls { depth: 1, .. } | Work::Sessions { .. }
                if self.schedule == Schedule::Max =>
            {
                Clock::RowThenEach
            }
            Work::Calls { depth: 1, .. } | Work::Sessions { .. } => Clock::Each,
            Work::Connect | Work::Grow { .. } => Clock::Each,
            Work::Stream { .. } => Clock::Received,
            Work::OneWay { .. } => Clock::OneWay,
            Work::Events { .. } => Clock::Burst,
            Work::Refresh { changed: true, .. } => Clock::Together,
            _ => Clock::Row,
        }
    }

    /// The machine's own time for something similar.
    pub(crate) fn floor(&self) -> Kind {
        let Load { work, clients, placing, .. } = self.load;
        match work {
            Work::Calls { depth: 1, .. } if placing == Placing::OneCpu => Kind::FutexSameCpu,
            // Between others there is no sleep.
            Work::Calls { depth: 1, .. } | Work::Sessions { .. }
                if self.schedule.gap() >= 20_000 =>
            {
                Kind::Futex { gap: self.schedule.gap() }
            }
            Work::Calls { size, depth: 1 } if clients == 1 || placing != Placing::Pinned => {
                Kind::Hot { size }
            }
            Work::Sessions { .. } => Kind::Hot { size: SMALL },
            Work::Stream { size } if size >= 32 << 10 => Kind::Bulk { size },
            Work::Calls { size, .. } | Work::Stream { size } | Work::Events { size } => {
                Kind::Copy { size }
            }
            Work::Batches { .. } => Kind::CopyItems,
            Work::OneWay { size } => Kind::Half { size },
            Work::Refresh { cgroups, changed: true } => Kind::Snapshot { cgroups },
            Work::Refresh { .. } => Kind::TwoLoads,
            Work::LookUp { cgroups } => Kind::Found { cgroups },
            Work::Connect => Kind::Connect,
            Work::Grow { size } => Kind::Grow { size },
        }
    }

    /// What disturbs a sample.
    pub(crate) fn wants(&self) -> Wants {
        match self.load.work {
            _ if self.load.placing != Placing::Pinned => Wants::Nothing,
            // The median of so many hardly moves for what takes a processor away now and then.
            Work::OneWay { .. } => Wants::Placed,
            Work::Calls { .. } | Work::Batches { .. } | Work::Stream { .. } => {
                match self.schedule {
                    Schedule::Max if self.load.clients == 1 => Wants::Quiet,
                    Schedule::Max => Wants::Placed,
                    _ => Wants::Nothing,
                }
            }
            _ => Wants::Nothing,
        }
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
        let schedule = match self.schedule {
            Schedule::Max => String::new(),
            Schedule::Rate(rate) => format!(", {rate} a second"),
            Schedule::Gap(gap) => format!(", after a sleep of {} µs", gap / 1_000),
        };
        let place = match placing {
            Placing::Pinned => "",
            Placing::OneCpu => ", both ends on one processor",
            Placing::Unpinned => ", on any processor",
            Placing::Busy => ", on any processor, beside a process that never sleeps",
        };
        text + &many + &schedule + place
    }
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
