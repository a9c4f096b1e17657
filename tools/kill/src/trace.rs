//! The trace of a victim that is not killed, instruction by instruction. Points are drawn from it.

use fastrand::Rng;

use crate::address::{Address, Depth};
use crate::error::{Error, Result};
use crate::phase::{Part, Phase, Side};
use crate::tracee::Words;

/// The watched thread's execution from the gate to the end of its scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) gaps: Vec<Gap>,
    /// By how much the words of the page had advanced at the end.
    pub(crate) moved: Words,
}

/// The instructions between two system calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gap {
    /// The system call before it; `None` at the gate.
    pub(crate) call: Option<i64>,
    /// The address of each instruction.
    pub(crate) path: Vec<u64>,
    /// After how many of them each word changed for the first time.
    pub(crate) head_at: Option<u64>,
    pub(crate) tail_at: Option<u64>,
    pub(crate) rang_at: Option<u64>,
}

/// A range of instructions of one gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    calls: usize,
    from: u64,
    to: u64,
    /// It ends in a sleep that lasts until a ring.
    sleeps: bool,
}

impl Span {
    /// How many points it has.
    pub(crate) fn len(&self) -> u64 {
        self.to - self.from + 1
    }

    /// Whether it begins where a system call returns.
    pub(crate) fn is_behind_call(&self) -> bool {
        self.calls > 0 && self.from == 0
    }
}

/// The system calls by which a victim stops itself at its end, which are not part of a scenario.
const ENDING: [i64; 4] =
    [libc::SYS_getpid, libc::SYS_gettid, libc::SYS_tgkill, libc::SYS_rt_sigprocmask];

impl Gap {
    /// How many instructions it has.
    fn len(&self) -> u64 {
        self.path.len() as u64
    }

    /// Records the instruction at an address, and which words it changed.
    pub(crate) fn step(&mut self, address: u64, before: Words, now: Words) {
        self.path.push(address);
        let at = Some(self.len());
        if now.head != before.head {
            self.head_at = self.head_at.or(at);
        }
        if now.tail != before.tail {
            self.tail_at = self.tail_at.or(at);
        }
        if now.rings != before.rings {
            self.rang_at = self.rang_at.or(at);
        }
    }
}

impl Trace {
    /// Removes the instructions by which a victim stops itself at its end.
    pub(crate) fn cut_ending(&mut self) {
        let is_ending = |gap: &Gap| gap.call.is_some_and(|call| ENDING.contains(&call));
        while self.gaps.last().is_some_and(is_ending) {
            self.gaps.pop();
        }
    }

    /// Returns the spans of a phase.
    pub(crate) fn spans(&self, phase: &Phase) -> Result<Vec<Span>> {
        let missing = |why: &str| Error::NoPhase { phase: phase.name, why: why.to_owned() };
        let whole = |from: usize, to: usize| -> Vec<Span> {
            (from..to.min(self.gaps.len())).map(|calls| self.span(calls, 0, u64::MAX)).collect()
        };
        let (at, gap) = match phase.part {
            Part::All => return Ok(whole(0, self.gaps.len())),
            Part::Connect | Part::Handshake => {
                let [send, receive] = [
                    [libc::SYS_sendmsg, libc::SYS_sendto],
                    [libc::SYS_recvmsg, libc::SYS_recvfrom],
                ];
                let first = if phase.side == Side::Client { send } else { receive };
                let is_first = |gap: &Gap| gap.call.is_some_and(|call| first.contains(&call));
                let at = self.gaps.iter().position(is_first);
                let at = at.ok_or_else(|| missing("no handshake message"))?;
                let is_connect = phase.part == Part::Connect;
                return Ok(if is_connect { whole(0, at) } else { whole(at, self.gaps.len()) });
            }
            _ => {
                let at = self.gaps.iter().position(|gap| gap.tail_at.is_some());
                let at = at.ok_or_else(|| missing("Tail never changes"))?;
                (at, self.gaps.get(at).cloned().unwrap_or_default())
            }
        };
        let [tail, rang] = [gap.tail_at, gap.rang_at].map(|at| at.unwrap_or(gap.len()));
        let wait = (at + 1..self.gaps.len()).find(|at| self.is_wait(*at));
        Ok(match phase.part {
            Part::Write => vec![self.span(at, gap.head_at.unwrap_or(0), tail - 1)],
            Part::Publish => vec![self.span(at, tail, rang - 1)],
            Part::Ring => {
                gap.rang_at.ok_or_else(|| missing("no doorbell is rung"))?;
                vec![self.span(at, rang, gap.len()), self.span(at + 1, 0, 0)]
            }
            Part::Wake if phase.side == Side::Server => {
                vec![self.span(at, 0, gap.head_at.unwrap_or(tail))]
            }
            Part::Wake => {
                let woken = wait.ok_or_else(|| missing("the victim never waits"))?;
                whole(woken, self.gaps.len())
            }
            _ => {
                // A client's trace continues after its wait, a server's ends there.
                let end = wait.unwrap_or(self.gaps.len());
                let mut spans = whole(at + 1, end);
                let last = spans.last_mut().ok_or_else(|| missing("no path to a sleep"))?;
                last.sleeps = true;
                spans
            }
        })
    }

    fn span(&self, calls: usize, from: u64, to: u64) -> Span {
        let len = self.gaps.get(calls).map_or(0, Gap::len);
        Span { calls, from: from.min(len), to: to.min(len).max(from.min(len)), sleeps: false }
    }

    fn is_wait(&self, at: usize) -> bool {
        let waits = [libc::SYS_futex_waitv, libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
        self.gaps.get(at).and_then(|gap| gap.call).is_some_and(|call| waits.contains(&call))
    }
}

/// Draws a point from a phase's spans: first a system call, then an instruction after it, each uniformly.
pub(crate) fn draw(phase: &'static Phase, spans: &[Span], random: &mut Rng) -> Option<Address> {
    let span = random.choice(spans)?;
    let instructions = random.u64(span.from..=span.to);
    let sleeps = span.sleeps && random.u8(..8) == 0;
    let depth = if sleeps { Depth::Asleep } else { Depth::Instructions(instructions) };
    Some(Address { phase, calls: span.calls, depth })
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::{Gap, Trace, draw};
    use crate::address::Depth;
    use crate::phase::Phase;

    /// The trace of a client's call: it writes and rings, parks, and wakes.
    fn call() -> Trace {
        let gap = |call, len| Gap { call, path: vec![0; len], ..Gap::default() };
        let first = Gap { tail_at: Some(60), rang_at: Some(80), ..gap(None, 100) };
        let rest = [libc::SYS_write, libc::SYS_futex_waitv, libc::SYS_tgkill];
        let rest = rest.map(|call| gap(Some(call), 30));
        let mut trace = Trace { gaps: vec![first], ..Trace::default() };
        trace.gaps.extend(rest);
        trace.cut_ending();
        trace
    }

    #[test]
    fn the_parts_of_a_call_are_adjacent() {
        let spans = |name: &str| {
            let spans = call().spans(Phase::named(name).unwrap()).unwrap();
            spans.iter().map(|span| (span.calls, span.from, span.to)).collect::<Vec<_>>()
        };
        assert_eq!(spans("client/write"), [(0, 0, 59)]);
        assert_eq!(spans("client/publish"), [(0, 60, 79)]);
        assert_eq!(spans("client/ring"), [(0, 80, 100), (1, 0, 0)]);
        assert_eq!(spans("client/park"), [(1, 0, 30)]);
        assert_eq!(spans("client/wake"), [(2, 0, 30)]);
    }

    #[test]
    fn a_phase_that_is_not_in_the_trace_is_an_error() {
        assert!(call().spans(Phase::named("client/connect").unwrap()).is_err());
        assert!(Trace::default().spans(Phase::named("client/write").unwrap()).is_err());
    }

    #[test]
    fn every_instruction_of_a_span_is_drawn_and_no_other() {
        let phase = Phase::named("client/publish").unwrap();
        let spans = call().spans(phase).unwrap();
        let mut random = Rng::with_seed(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let address = draw(phase, &spans, &mut random).unwrap();
            let Depth::Instructions(count) = address.depth else { panic!("{address}") };
            seen.insert(count);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), (60..80).collect::<Vec<_>>());
    }

    #[test]
    fn the_same_seed_draws_the_same_points() {
        let phase = Phase::named("client/park").unwrap();
        let spans = call().spans(phase).unwrap();
        let points = |seed| {
            let mut random = Rng::with_seed(seed);
            (0..50)
                .map(|_| draw(phase, &spans, &mut random).unwrap().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(points(5), points(5));
        assert_ne!(points(5), points(6));
        assert!(points(5).iter().any(|point| point.ends_with("asleep")));
    }
}
