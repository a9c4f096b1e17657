//! The floor of many clients: many callers, each now and then, and one thread that answers all of them.
//!
//! Two ways: datagrams over socket pairs, waited for with epoll; and *bells*, the least that shared memory costs
//! where both ends sleep: the caller copies its request into a slot of its own and writes an eventfd, the server
//! waits for all of them with epoll, copies in and out, and wakes the caller's futex. The server checks nothing,
//! keeps no counters, and never spins.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::{Errno, retry_on_intr, write};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::thread::futex::{Flags, wait, wake};

use super::process::{Child, Peer, RoleResult, spawn};
use super::shared::{LINE, Region, Slots, Word};
use super::sync::{AtomicU32, Ordering};
use super::{Cpus, Error, Result};

/// The server's role.
pub const SERVER: &str = "floor-crowd-server";
/// The callers' role.
pub const CALLERS: &str = "floor-crowd-callers";

/// Bytes of a request, and of an answer.
pub const SIZE: usize = 64;
/// The most callers: as many descriptors as one message passes, less one for the memory.
pub const MOST: usize = 200;
/// Shared bytes of a caller with a bell: its counter, the server's counter, a slot for each.
const SHARE: usize = 4 * LINE;

/// What carries the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Datagrams over socket pairs.
    Sockets,
    /// Shared memory, eventfds and futexes.
    Bells,
}

/// A server and its callers, each a process.
pub struct Floor {
    /// Answers.
    pub server: Child,
    /// Calls on command: [`order`].
    pub callers: Child,
}

/// A connection that can be called.
pub trait Caller: Send {
    /// One call; whether the answer is the request's bytes.
    fn call(&mut self, request: &[u8; SIZE]) -> bool;
}

/// What callers have done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// How many calls were answered.
    pub calls: u64,
    /// What half of them took at most, in nanoseconds.
    pub p50: u64,
    /// What all but one in a hundred took at most, in nanoseconds.
    pub p99: u64,
}

impl Floor {
    /// `callers` callers on the client's CPU, one server on the peer's.
    pub fn start(cpus: Cpus, kind: Kind, callers: usize) -> Result<Floor> {
        cpus.two()?;
        let callers = callers.clamp(1, MOST);
        let mut near = Vec::new();
        let mut far = Vec::new();
        for _ in 0..callers {
            let (one, other) = match kind {
                Kind::Sockets => socketpair(
                    AddressFamily::UNIX,
                    SocketType::SEQPACKET,
                    SocketFlags::CLOEXEC,
                    None,
                )
                .map_err(Error::system("create a socket pair"))?,
                Kind::Bells => {
                    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                        .map_err(Error::system("create an eventfd"))?;
                    let same = bell.try_clone().map_err(Error::system("duplicate an eventfd"))?;
                    (bell, same)
                }
            };
            near.push(one);
            far.push(other);
        }
        let region = Region::create(SHARE * callers)?;
        let args = [kind.name().to_owned()];
        let server = spawn(SERVER, &[cpus.peer], &args, &with(&region, &far))?;
        let callers = spawn(CALLERS, &[cpus.client], &args, &with(&region, &near))?;
        Ok(Floor { server, callers })
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Bells => "bells",
        }
    }

    fn of(peer: &Peer) -> Result<Self> {
        Ok(if peer.arg(0)? == "sockets" { Self::Sockets } else { Self::Bells })
    }
}

fn with<'a>(region: &'a Region, descriptors: &'a [OwnedFd]) -> Vec<BorrowedFd<'a>> {
    [region.descriptor()].into_iter().chain(descriptors.iter().map(AsFd::as_fd)).collect()
}

/// Answers until told to end.
pub fn server(peer: &mut Peer) -> RoleResult {
    let kind = Kind::of(peer)?;
    let (region, descriptors) = passed(peer)?;
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let edge = match kind {
        Kind::Sockets => epoll::EventFlags::IN,
        Kind::Bells => epoll::EventFlags::IN | epoll::EventFlags::ET,
    };
    for (at, descriptor) in descriptors.iter().enumerate() {
        epoll::add(&poller, descriptor, epoll::EventData::new_u64(at as u64), edge)?;
    }
    let mut shares = Vec::new();
    for at in 0..descriptors.len() {
        shares.push(Share::new(&region, at)?);
    }
    let end = epoll::EventData::new_u64(u64::MAX);
    epoll::add(&poller, std::io::stdin(), end, epoll::EventFlags::IN)?;
    peer.ready()?;
    let mut events = Vec::with_capacity(256);
    let mut bytes = [0; SIZE];
    loop {
        events.clear();
        retry_on_intr(|| epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), None))?;
        for event in &events {
            let at = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let (Some(descriptor), Some(share)) = (descriptors.get(at), shares.get_mut(at)) else {
                return Ok(());
            };
            match kind {
                Kind::Sockets => {
                    let (_, len) =
                        retry_on_intr(|| recv(descriptor, &mut bytes, RecvFlags::empty()))?;
                    if len != SIZE {
                        return Ok(());
                    }
                    retry_on_intr(|| send(descriptor, &bytes, SendFlags::NOSIGNAL))?;
                }
                Kind::Bells => share.answer(&mut bytes)?,
            }
        }
    }
}

/// Calls on command: messages of `rate millis threads`, answered by `calls p50 p99`.
pub fn callers(peer: &mut Peer) -> RoleResult {
    let kind = Kind::of(peer)?;
    let (region, descriptors) = passed(peer)?;
    match kind {
        Kind::Sockets => follow(peer, descriptors.into_iter().map(Socket).collect()),
        Kind::Bells => {
            let mut bells = Vec::new();
            for (at, bell) in descriptors.into_iter().enumerate() {
                bells.push(Bell { bell, share: Share::new(&region, at)? });
            }
            follow(peer, bells)
        }
    }
}

fn passed(peer: &mut Peer) -> Result<(Region, Vec<OwnedFd>)> {
    let region = Region::open(peer.descriptor()?)?;
    let descriptors = std::iter::from_fn(|| peer.descriptor().ok()).collect();
    Ok((region, descriptors))
}

/// Has `callers` call as each order says.
pub fn follow<C: Caller>(peer: &Peer, mut callers: Vec<C>) -> RoleResult {
    peer.ready()?;
    while let Some(order) = peer.receive()? {
        let order = std::str::from_utf8(&order)?;
        let mut words = order.split(' ').map(str::parse::<u32>);
        let mut word = || words.next().and_then(std::result::Result::ok).ok_or(order.to_owned());
        let (rate, millis, threads) = (word()?, word()?, word()?);
        let Seen { calls, p50, p99 } =
            paced(&mut callers, rate, Duration::from_millis(millis.into()), threads as usize)?;
        peer.send(format!("{calls} {p50} {p99}").as_bytes())?;
    }
    Ok(())
}

/// Orders callers to call `rate` times a second each, for `millis`, from this many threads.
pub fn order(callers: &Child, rate: u32, millis: u32, threads: u32) -> Result<Seen> {
    callers.send(format!("{rate} {millis} {threads}").as_bytes())?;
    let answer = callers.receive()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let mut words = answer.split(' ').map(str::parse::<u64>);
    let mut word = || words.next().and_then(std::result::Result::ok).ok_or_else(|| callers.gone());
    Ok(Seen { calls: word()?, p50: word()?, p99: word()? })
}

/// A caller that is late by more than a call skips the missed ones.
fn paced<C: Caller>(
    callers: &mut [C],
    rate: u32,
    span: Duration,
    threads: usize,
) -> std::result::Result<Seen, String> {
    let share = callers.len().div_ceil(threads.max(1)).max(1);
    let until = Instant::now() + span;
    let took: Vec<Option<Vec<u64>>> = thread::scope(|scope| {
        let threads: Vec<_> = callers
            .chunks_mut(share)
            .zip(0_u32..)
            .map(|(mine, number)| scope.spawn(move || some_paced(mine, rate, number, until)))
            .collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    let mut all = Vec::new();
    for took in took {
        all.extend(took.ok_or("a wrong answer, or none")?);
    }
    all.sort_unstable();
    let rank = |rank| all.get(all.len() * rank / 100).copied().unwrap_or(0);
    Ok(Seen { calls: all.len() as u64, p50: rank(50), p99: rank(99) })
}

fn some_paced<C: Caller>(
    callers: &mut [C],
    rate: u32,
    number: u32,
    until: Instant,
) -> Option<Vec<u64>> {
    let gap = Duration::from_secs(1)
        / rate.saturating_mul(u32::try_from(callers.len()).unwrap_or(u32::MAX)).max(1);
    let mut due = Instant::now() + gap.mul_f64(f64::from(number % 16) / 16.0);
    let mut took = Vec::new();
    loop {
        for caller in &mut *callers {
            if due >= until {
                return Some(took);
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let request = [(took.len() % 251).try_into().unwrap_or(0); SIZE];
            let began = Instant::now();
            if !caller.call(&request) {
                return None;
            }
            let ended = Instant::now();
            took.push(u64::try_from((ended - began).as_nanos()).unwrap_or(u64::MAX));
            due = (due + gap).max(ended.checked_sub(gap).unwrap_or(ended));
        }
    }
}

struct Socket(OwnedFd);

impl Caller for Socket {
    fn call(&mut self, request: &[u8; SIZE]) -> bool {
        let mut answer = [0; SIZE];
        retry_on_intr(|| send(&self.0, request, SendFlags::NOSIGNAL)).is_ok()
            && retry_on_intr(|| recv(&self.0, &mut answer, RecvFlags::empty())).is_ok()
            && answer == *request
    }
}

struct Bell {
    bell: OwnedFd,
    share: Share,
}

impl Caller for Bell {
    fn call(&mut self, request: &[u8; SIZE]) -> bool {
        let before = self.share.answered.load(Ordering::Relaxed);
        self.share.request.put(0, request);
        // Pairs with the acquire in `Share::answer`: a server that sees the counter sees the request.
        self.share.asked.store(before.wrapping_add(1), Ordering::Release);
        if write(&self.bell, &1_u64.to_ne_bytes()).is_err() {
            return false;
        }
        while self.share.answered.load(Ordering::Acquire) == before {
            match wait(&self.share.answered, Flags::empty(), before, None) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        let mut answer = [0; SIZE];
        self.share.answer.take(0, &mut answer);
        answer == *request
    }
}

/// What a caller and the server share.
struct Share {
    asked: Word<AtomicU32>,
    answered: Word<AtomicU32>,
    request: Slots,
    answer: Slots,
}

impl Share {
    fn new(region: &Region, at: usize) -> Result<Self> {
        let start = at * SHARE;
        Ok(Self {
            asked: region.word(start)?,
            answered: region.word(start + LINE)?,
            request: region.slots(start + 2 * LINE, SIZE, 1)?,
            answer: region.slots(start + 3 * LINE, SIZE, 1)?,
        })
    }

    fn answer(&mut self, bytes: &mut [u8; SIZE]) -> Result<()> {
        // Pairs with the release in `Bell::call`.
        let asked = self.asked.load(Ordering::Acquire);
        if asked != self.answered.load(Ordering::Relaxed) {
            self.request.take(0, bytes);
            self.answer.put(0, bytes);
            self.answered.store(asked, Ordering::Release);
            wake(&self.answered, Flags::empty(), 1).map_err(Error::system("wake a futex"))?;
        }
        Ok(())
    }
}
