//! Where the two CPUs are: one core, one cache, or two caches.
//!
//! A virtual machine's CPUs move about the host within seconds, and a spinning round trip costs 50, 120 or 500 ns
//! accordingly. A ping-pong of two words shows which it is now. A sample counts where the probe before it and the
//! probe after it agree and nothing else ran on the two CPUs in between; samples of different placements are never
//! combined.

use std::fmt;
use std::time::Duration;

use super::process::preemptions;
use super::{Cpus, Result, Spread, hot, ns_each};

/// What the two CPUs have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// Two threads of one core: a round trip below 80 ns.
    OneCore,
    /// One last-level cache: below 250 ns.
    OneCache,
    /// Two of them: more than that.
    TwoCaches,
    /// It changed during the probe, or something else ran on one of the CPUs.
    Unclear,
}

impl Placement {
    /// What a two-word round trip of `ns` means. The limits are those of the EPYC that they were tried on;
    /// elsewhere the names may be wrong, but equal names still mean equal costs.
    pub fn of_round_trip(ns: f64) -> Placement {
        match ns {
            ns if ns < 80.0 => Placement::OneCore,
            ns if ns < 250.0 => Placement::OneCache,
            _ => Placement::TwoCaches,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Placement::OneCore => "one core",
            Placement::OneCache => "one cache",
            Placement::TwoCaches => "two caches",
            Placement::Unclear => "unclear",
        })
    }
}

/// One probe of the placement.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// What it is.
    pub placement: Placement,
    /// The median round trip of two words, in ns.
    pub ns: f64,
    /// [`preemptions`] as the probe began and as it ended.
    preempted: [u64; 2],
}

/// Why a sample does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The placement changed, or was unclear.
    Moved,
    /// Something else ran on one of the CPUs.
    Preempted,
}

/// Probes the placement on request; about 4 ms each.
pub struct Prober {
    floor: hot::UnpausedFloor,
}

impl Prober {
    /// A probe is this many laps of that many round trips.
    const LAPS: usize = 24;
    const TRIPS: u64 = 1_000;

    /// Starts the spinning peer, which sleeps between probes.
    pub fn start(cpus: Cpus) -> Result<Prober> {
        Ok(Prober { floor: hot::UnpausedFloor::start(cpus, 0)? })
    }

    /// Where the two CPUs are now: [`Placement::Unclear`] unless the ends of the middle half of the laps agree.
    pub fn probe(&mut self) -> Result<Probe> {
        let began = preemptions();
        let mut laps = [Duration::ZERO; Prober::LAPS];
        self.floor.laps(Prober::TRIPS, &mut laps)?;
        let laps = laps.map(|lap| ns_each(lap, Prober::TRIPS));
        let Spread { median: ns, middle: (low, high), .. } = Spread::of(laps).unwrap_or_default();
        let placement = Placement::of_round_trip(ns);
        let agree = [low, high].map(Placement::of_round_trip) == [placement; 2];
        let placement = if agree { placement } else { Placement::Unclear };
        Ok(Probe { placement, ns, preempted: [began, preemptions()] })
    }
}

/// The placement that all of `probes` saw, if it is one and clear.
pub fn agreed(probes: &[Probe]) -> std::result::Result<Placement, Lost> {
    let [first, others @ ..] = probes else { return Err(Lost::Moved) };
    let all = others.iter().all(|probe| probe.placement == first.placement);
    let clear = first.placement != Placement::Unclear;
    if all && clear { Ok(first.placement) } else { Err(Lost::Moved) }
}

/// The same, if nothing was preempted between them.
pub fn steady(probes: &[Probe]) -> std::result::Result<Placement, Lost> {
    let [first, others @ ..] = probes else { return Err(Lost::Moved) };
    let mut ended = first.preempted[1];
    for probe in others {
        if probe.preempted[0] != ended {
            return Err(Lost::Preempted);
        }
        ended = probe.preempted[1];
    }
    agreed(probes)
}
