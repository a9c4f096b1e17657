//! The contenders: Bellwire and what else carries messages between two processes.
//!
//! Each is one file with a [`Contender`]. Its server runs in one process and its clients in others; the harness
//! starts them, says what to send, checks every answer and holds the clock. `docs/benchmarks.md` says how to add one.

mod arrivals;
mod bellwire;
mod bellwire_c;
mod condvar;
mod iceoryx2;
mod interprocess;
mod ipc_channel;
mod mqueue;
mod packets;
mod streams;
mod validation;

use std::thread;

use ::bellwire::Snapshot;
use ::bellwire_cgroups::{CgroupsSnapshot, Index, View};
use ::bellwire_floor::process::Peer;
use zerocopy::IntoBytes;

use crate::Outcome;
use crate::burst::Burst;
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::{Measure, Payload};
use crate::serve;

/// A way to carry messages.
pub(crate) trait Contender: 'static {
    /// What it is called on the command line and in reports: `a-z`, `0-9` and `-`.
    const NAME: &'static str;

    /// Which version this is, and how it is set up.
    fn about() -> ContenderInfo;

    /// Why it cannot do `load`; `None` if it can. A report shows the sentence. By default it carries messages from one end to
    /// another, and nothing that another contender shows in the same way.
    fn refuses(load: &Load) -> Option<&'static str> {
        duplicate_of(load)
    }

    /// Starts the other end, which runs until it is dropped, in the process and on the processor that it has to itself. It
    /// returns once clients can connect. Threads that it starts inherit the processor.
    ///
    /// Each request goes to [`Handler::answer`], which turns the bytes into those of the answer in place; each
    /// message of a one-way load to [`Handler::take`], from one thread.
    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server>;

    /// Runs a measuring process: hands `measure` a function that opens a connection.
    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()>;
}

fn duplicate_of(load: &Load) -> Option<&'static str> {
    match load.work {
        Work::Sessions { .. } => Some("serves each connection as in unpinned"),
        Work::Refresh { .. } => Some("copies snapshots as seqpacket does"),
        Work::Events { .. } => Some("sends to each reader alone, as seqpacket does"),
        Work::LookUp { .. } => Some("finds things in the same index as bellwire"),
        _ => None,
    }
}

/// Serves each client that `accept` returns on a thread of its own. All threads end with their process.
fn serve_each<T: Send + 'static>(
    name: &str,
    mut accept: impl FnMut() -> Outcome<T> + Send + 'static,
    serve: impl Fn(T) -> Outcome<()> + Clone + Send + 'static,
) -> Outcome<()> {
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        while let Ok(client) = accept() {
            let serve = serve.clone();
            // Without a thread the connection is closed, and the client reports that.
            let _ = thread::Builder::new().spawn(move || serve(client));
        }
    })?;
    Ok(())
}

/// Answers whole messages, or takes those of a one-way load, until an empty one: the client is gone.
#[inline]
fn serve_messages<E>(
    load: &Load,
    handler: Handler,
    mut receive: impl FnMut(&mut [u8]) -> Result<usize, E>,
    mut send: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let is_one_way = load.is_one_way();
    let mut buffer = vec![0; load.longest()];
    loop {
        let len = receive(&mut buffer)?;
        let Some(message) = buffer.get_mut(..len).filter(|message| !message.is_empty()) else {
            return Ok(());
        };
        if is_one_way {
            handler.take(message);
        } else {
            handler.answer(message);
            send(message)?;
        }
    }
}

/// A running server, in the hands of the harness.
pub(crate) trait Server {
    /// What it has counted so far.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Publishes the next generation of a snapshot: these bytes. Clients that refresh from now on get them.
    fn publish(&mut self, _snapshot: &[u8]) -> Outcome<()> {
        Err("this server publishes nothing".into())
    }

    /// Publishes these events, one after the other, for every reader.
    fn send_burst(&mut self, _burst: Burst) -> Outcome<()> {
        Err("this server publishes no events".into())
    }
}

/// Threads that end with the process of their server.
impl Server for () {}

/// One connection, of the measuring end. Calls of its methods are what the clock times; they are compiled into the
/// loops around them. Only the methods for loads that the contender supports have to be there.
pub(crate) trait Client {
    /// Sends `request` and waits for its answer, which it puts at the start of `answer`. The answer's length.
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        self.submit(request)?;
        self.reply(answer)
    }

    /// Makes `steps` calls, one after the other, and checks the answers.
    #[inline]
    fn calls(&mut self, payload: &mut Payload, steps: u64) -> Outcome<()> {
        for _ in 0..steps {
            payload.next();
            let len = self.call(&payload.request, &mut payload.answer)?;
            payload.check(len)?;
        }
        Ok(())
    }

    /// Makes `steps` calls, `depth` of them in flight, by tasks or threads of its own, and checks the answers. Those of
    /// clients that return `None` are made by [`submit`](Client::submit) and [`reply`](Client::reply).
    #[inline]
    fn concurrent_calls(&mut self, _: &Payload, _depth: usize, _steps: u64) -> Option<Outcome<()>> {
        None
    }

    /// Sends `request`. Others may be in flight, fewer than the load's `depth`. It may wait for room.
    fn submit(&mut self, _request: &[u8]) -> Outcome<()> {
        Err("this client keeps nothing in flight".into())
    }

    /// Waits for the answer to the oldest request that was submitted. Its length.
    fn reply(&mut self, _answer: &mut [u8]) -> Outcome<usize> {
        Err("this client keeps nothing in flight".into())
    }

    /// Calls with all of `items` in one message. As bytes, little-endian, unless the contender has batches of its
    /// own.
    #[inline]
    fn batch(&mut self, items: &[u64], answers: &mut [u64]) -> Outcome<usize> {
        self.submit_batch(items)?;
        self.batch_reply(answers)
    }

    /// [`submit`](Client::submit) with all of `items` in one message.
    #[inline]
    fn submit_batch(&mut self, items: &[u64]) -> Outcome<()> {
        self.submit(items.as_bytes())
    }

    /// [`reply`](Client::reply) to the oldest batch. The number of its items.
    #[inline]
    fn batch_reply(&mut self, answers: &mut [u64]) -> Outcome<usize> {
        Ok(self.reply(answers.as_mut_bytes())? / size_of::<u64>())
    }

    /// Sends `message`, which gets no answer. It may wait for room, and it may keep the message until
    /// [`finish_posts`](Client::finish_posts).
    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        self.submit(message)
    }

    /// Ensures that everything posted has been sent, and takes the answers, if any.
    fn finish_posts(&mut self) -> Outcome<()> {
        Ok(())
    }

    /// Gets the newest snapshot if it is newer than the one held, and validates it, as Bellwire's reader does: with
    /// [`Snapshot::update`](::bellwire::Snapshot::update) against the one held. Whether it was newer.
    fn refresh(&mut self) -> Outcome<bool> {
        Err("this client reads no snapshots".into())
    }

    /// Waits for the next event, and copies it into `event`. Its length.
    fn event(&mut self, _event: &mut [u8]) -> Outcome<usize> {
        Err("this client gets no events".into())
    }

    /// The snapshot held: its bytes and its index.
    fn snapshot(&self) -> Outcome<View<'_>> {
        Err("this client reads no snapshots".into())
    }

    /// Releases what a large message needed, so that the next large one finds the connection in its initial state.
    fn trim(&mut self) -> Outcome<()> {
        Ok(())
    }

    /// What this end has counted so far.
    fn counters(&mut self) -> Counters {
        Counters::default()
    }
}

const _: () =
    assert!(cfg!(target_endian = "little"), "items lie in messages as they lie in memory");

/// What carries nothing: the part of a changed snapshot's time that all contenders have.
pub(crate) const VALIDATION: &str = validation::Validation::NAME;

/// The most items of a batch.
pub(crate) const ITEMS: usize = 1_000;

/// Puts a message at the start of `into`. Its length.
#[inline]
fn put(message: &[u8], into: &mut [u8]) -> Outcome<usize> {
    let into = into.get_mut(..message.len()).ok_or("an answer that is too long")?;
    into.copy_from_slice(message);
    Ok(message.len())
}

/// A snapshot's index, where a reader has validated one: as Bellwire's reader does, against the one before it.
#[derive(Default)]
struct Indexed(Option<Index>);

impl Indexed {
    #[inline]
    fn update(&mut self, bytes: &[u8]) -> Outcome<()> {
        match &mut self.0 {
            Some(index) => CgroupsSnapshot::update(index, bytes)?,
            None => self.0 = Some(CgroupsSnapshot::validate(bytes)?),
        }
        Ok(())
    }

    fn view(&self) -> Outcome<View<'_>> {
        Ok(self.0.as_ref().ok_or("nothing was published")?.view())
    }
}

/// What a report says about a contender.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ContenderInfo {
    /// The version of what carries the messages.
    pub(crate) version: String,
    /// How it is set up, as its documentation advises.
    pub(crate) settings: String,
}

impl ContenderInfo {
    fn new(version: impl Into<String>, settings: impl Into<String>) -> Self {
        Self { version: version.into(), settings: settings.into() }
    }

    /// Of what this project has.
    fn of_this_project(settings: impl Into<String>) -> Self {
        Self::new(env!("CARGO_PKG_VERSION"), settings)
    }

    /// Of what the kernel has.
    fn of_linux(settings: impl Into<String>) -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Self::new(format!("Linux {release}"), settings)
    }
}

/// What a contender counts by itself; `None` for what it does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Counters {
    /// How often this end woke the other: each is a system call.
    pub(crate) wakes: Option<u64>,
    /// How often it slept.
    pub(crate) parks: Option<u64>,
    /// System calls that it made for messages, as far as they are known.
    pub(crate) system_calls: Option<u64>,
}

/// A contender without its types.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) about: fn() -> ContenderInfo,
    pub(crate) refuses: fn(&Load) -> Option<&'static str>,
    pub(crate) serve: fn(&Peer, &Case) -> Outcome<()>,
    pub(crate) measure: fn(&Case, Measure<'_>) -> Outcome<()>,
}

/// All of them, Bellwire first.
pub(crate) const ALL: &[Entry] = &[
    Entry::of::<bellwire::Bellwire<bellwire::Defaults>>(),
    Entry::of::<bellwire::Batched>(),
    Entry::of::<bellwire_c::BellwireC>(),
    Entry::of::<bellwire::Tasks>(),
    Entry::of::<bellwire::Bellwire<bellwire::Workers>>(),
    Entry::of::<bellwire::Bellwire<bellwire::Uring>>(),
    Entry::of::<iceoryx2::Requests>(),
    Entry::of::<iceoryx2::Events>(),
    Entry::of::<iceoryx2::Topics>(),
    Entry::of::<packets::Packets<packets::Seqpacket>>(),
    Entry::of::<packets::Packets<packets::Datagram>>(),
    Entry::of::<streams::Streams<streams::UnixStream>>(),
    Entry::of::<streams::Buffered>(),
    Entry::of::<streams::Streams<streams::Tcp>>(),
    Entry::of::<streams::Streams<streams::Fifo>>(),
    Entry::of::<condvar::ShmCondvar>(),
    Entry::of::<mqueue::Mqueue>(),
    Entry::of::<ipc_channel::IpcChannel>(),
    Entry::of::<streams::Streams<interprocess::Interprocess>>(),
    Entry::of::<validation::Validation>(),
];

impl Entry {
    const fn of<C: Contender>() -> Self {
        Self {
            name: C::NAME,
            about: C::about,
            refuses: C::refuses,
            serve: serve::run::<C>,
            measure: C::measure,
        }
    }

    /// The one with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|entry| entry.name == name)
    }
}

impl Counters {
    fn of_system_calls(calls: u64) -> Self {
        Self { system_calls: Some(calls), ..Self::default() }
    }

    /// Of an end whose wakes and parks are one system call each, and all that it makes.
    fn of_waits(wakes: u64, parks: u64) -> Self {
        Self { wakes: Some(wakes), parks: Some(parks), system_calls: Some(wakes + parks) }
    }

    /// What was counted since `before`, or by both ends.
    pub(crate) fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| Some(each(one?, other?));
        Self {
            wakes: both(self.wakes, other.wakes),
            parks: both(self.parks, other.parks),
            system_calls: both(self.system_calls, other.system_calls),
        }
    }
}
