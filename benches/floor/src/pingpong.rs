//! A round trip over any carrier: the part that all two-way floors share.

use std::time::{Duration, Instant};

use super::private::{Private, expected};
use super::process::{Child, Peer};
use super::{Error, Result};

/// One end of a two-way connection.
pub trait Link {
    /// Trips before the clock starts: enough for both ends to be in their loops, caches warm.
    const WARM: u64;

    /// Sends the outgoing bytes and wakes the other end if it needs that.
    fn send(&mut self) -> Result<()>;

    /// Waits for the other end's bytes.
    fn receive(&mut self) -> Result<()>;

    /// What is sent, and what was received last; `None` where a turn carries no bytes.
    fn buffers(&mut self) -> Option<(&mut Private, &Private)> {
        None
    }
}

/// A floor for round trips: this end, and a peer that is asleep between two calls.
pub struct PingPong<L> {
    child: Child,
    link: L,
    seed: u64,
}

impl<L: Link> PingPong<L> {
    /// Over a child that runs [`answer`].
    pub(super) fn new(child: Child, link: L) -> PingPong<L> {
        PingPong { child, link, seed: 0 }
    }

    /// How long `n` round trips take.
    ///
    /// The peer's wake-up, the warm-up and the check that the right bytes arrived are not counted.
    pub fn round_trips(&mut self, n: u64) -> Result<Duration> {
        let mut lap = [Duration::ZERO];
        self.laps(n, &mut lap)?;
        let [lap] = lap;
        Ok(lap)
    }

    /// How long each of `laps.len()` times `trips` round trips takes, without a pause between them.
    pub fn laps(&mut self, trips: u64, laps: &mut [Duration]) -> Result<()> {
        self.timed(trips, Duration::ZERO, laps)
    }

    /// How long each of `trips` round trips takes with a sleep of `gap` before it.
    pub fn spaced(&mut self, trips: usize, gap: Duration) -> Result<Vec<Duration>> {
        let mut took = vec![Duration::ZERO; trips];
        self.timed(1, gap, &mut took)?;
        Ok(took)
    }

    fn timed(&mut self, trips: u64, gap: Duration, laps: &mut [Duration]) -> Result<()> {
        self.seed += 2;
        let turns = trips.saturating_mul(laps.len() as u64).saturating_add(L::WARM);
        fill(&mut self.link, self.seed);
        order(&self.child, turns, self.seed)?;
        for _ in 0..L::WARM {
            self.link.send()?;
            self.link.receive()?;
        }
        for lap in laps {
            if !gap.is_zero() {
                std::thread::sleep(gap);
            }
            let start = Instant::now();
            for _ in 0..trips {
                self.link.send()?;
                self.link.receive()?;
            }
            *lap = start.elapsed();
        }
        self.check()
    }

    /// Both ends received what the other sent.
    fn check(&mut self) -> Result<()> {
        let sum = finished(&self.child)?;
        let Some((sent, received)) = self.link.buffers() else { return Ok(()) };
        let answer = expected(received.bytes().len(), self.seed + 1);
        if received.checksum() != answer || sum != sent.checksum() {
            return Err(Error::Corrupt { role: self.child.role() });
        }
        Ok(())
    }
}

/// The peer's side: does the ordered number of turns, then sleeps until the next order.
pub fn answer<L: Link>(peer: &Peer, mut link: L) -> Result<()> {
    orders(peer, |turns, seed| {
        fill(&mut link, seed + 1);
        for _ in 0..turns {
            link.receive()?;
            link.send()?;
        }
        Ok(link.buffers().map_or(0, |(_, received)| received.checksum()))
    })
}

fn fill(link: &mut impl Link, seed: u64) {
    if let Some((outgoing, _)) = link.buffers() {
        outgoing.fill(seed);
    }
}

/// Orders the peer of a floor to do `turns`.
pub fn order(child: &Child, turns: u64, seed: u64) -> Result<()> {
    child.send(&[turns.to_le_bytes(), seed.to_le_bytes()].concat())
}

/// Waits until the peer has done them; what its last bytes sum to.
pub fn finished(child: &Child) -> Result<u64> {
    let answer = child.receive()?;
    answer.as_slice().try_into().map(u64::from_le_bytes).map_err(|_| child.gone())
}

/// Executes orders until told to end.
pub fn orders(peer: &Peer, mut work: impl FnMut(u64, u64) -> Result<u64>) -> Result<()> {
    peer.ready()?;
    while let Some(order) = peer.receive()? {
        let (turns, seed) = match order.as_chunks() {
            ([turns, seed], []) => (u64::from_le_bytes(*turns), u64::from_le_bytes(*seed)),
            _ => return Err(Error::arguments("an order of another length")),
        };
        let sum = work(turns, seed)?;
        peer.send(&sum.to_le_bytes())?;
    }
    Ok(())
}
