//! The services of the harness: calls that carry their own number, and snapshots that show when they are torn.

use std::sync::LazyLock;
use std::time::Duration;

use bellwire::{
    Backoff, ClientConfig, Doorbell, Event, Geometry, LaneConfig, ServerConfig, Service, Snapshot,
    SpinPolicy,
};
use bellwire_core::wire::BroadcastRecord;

/// Answers a request with its number, at the length that the request asks for.
#[derive(Debug)]
pub(crate) struct NumberedCall;

impl Service for NumberedCall {
    const NAME: &'static str = "numbered-call";
    type Request = Vec<u8>;
    type Response = Vec<u8>;
}

/// The length of a message that fits in a lane of the initial size.
pub(crate) const SHORT: usize = 40;
/// The length of one that does not fit, so that the lane grows.
pub(crate) const LONG: usize = 2_100;
/// The length of one that is sent as an attachment.
pub(crate) const ATTACHED: usize = 2_400;

const ATTACH_FROM: usize = 2_300;
const HEAD: usize = 24;

/// The contents of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSpec {
    pub(crate) number: u64,
    /// The length of the answer in bytes.
    pub(crate) answer: usize,
    /// Whether the handler waits until it is released.
    pub(crate) hold: bool,
}

/// The bytes that follow the numbers of a message: neighboring bytes differ.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |at: usize| (at.wrapping_mul(167) ^ (at >> 8)).to_le_bytes().first().copied();
    (0..ATTACHED).filter_map(byte).collect()
});

/// Creates the pattern ahead of the first message.
pub(crate) fn prepare() {
    LazyLock::force(&PATTERN);
}

impl CallSpec {
    pub(crate) fn request(self, len: usize) -> Vec<u8> {
        let hold = u64::from(self.hold);
        message([self.number, self.answer as u64, hold], len)
    }

    /// Parses a request; `None` if a byte of it is wrong.
    pub(crate) fn read(request: &[u8]) -> Option<Self> {
        let [number, answer, hold] = read(request)?;
        let answer = usize::try_from(answer).ok().filter(|len| *len <= ATTACHED)?;
        (hold <= 1).then_some(Self { number, answer, hold: hold == 1 })
    }

    pub(crate) fn respond(self) -> Vec<u8> {
        message([!self.number, 0, 0], self.answer)
    }

    /// Whether `answer` is the answer to this request, to the last byte.
    pub(crate) fn is_answer(self, answer: &[u8]) -> bool {
        answer.len() == self.answer && read(answer) == Some([!self.number, 0, 0])
    }
}

fn message(numbers: [u64; 3], len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes.extend_from_slice(PATTERN.get(HEAD..len).unwrap_or_default());
    bytes
}

fn read(bytes: &[u8]) -> Option<[u64; 3]> {
    let (numbers, rest) = bytes.split_at_checked(HEAD)?;
    if PATTERN.get(HEAD..bytes.len()) != Some(rest) {
        return None;
    }
    let (words, _) = numbers.as_chunks::<8>();
    match words {
        [a, b, c] => Some([a, b, c].map(|word| u64::from_le_bytes(*word))),
        _ => None,
    }
}

/// Events that carry their own sequence, so many bytes each.
#[derive(Debug)]
pub(crate) struct NumberedEvent;

impl Event for NumberedEvent {
    const NAME: &'static str = "numbered-event";
    type Message = Vec<u8>;
}

pub(crate) const EVENT_LEN: u32 = 120;
/// The bytes of events in the first ring: the least that a publisher creates. It holds [`FULL`] events, and a pad.
pub(crate) const RING: u64 = 64 << 10;
const EVENT_SPACE: u64 = BroadcastRecord::space(EVENT_LEN);
/// How many events fill the first ring. They are published before the gate.
pub(crate) const FULL: u64 = RING / EVENT_SPACE;
/// How many are published over them after the gate, the first of them behind a pad. The second is written over the first event
/// that the survivor has not taken.
pub(crate) const EVENTS: u64 = 3;
/// One more, in a larger ring: its arrival is certain only if the publisher lives until that ring is passed.
pub(crate) const LAST_EVENT: u64 = FULL + EVENTS + 1;

/// The event with this sequence.
pub(crate) fn event(sequence: u64) -> Vec<u8> {
    message([sequence, !sequence, 0], EVENT_LEN as usize)
}

/// How many events end at or before `tail` in the first ring.
pub(crate) fn events_before(tail: u64) -> u64 {
    (tail / RING) * FULL + (tail % RING) / EVENT_SPACE
}

/// A snapshot that repeats one number: a torn one is not valid.
#[derive(Debug)]
pub(crate) struct NumberSnapshot<const WORDS: usize>;

/// Too long for a broadcast ring: passed in memory of its own.
pub(crate) type PassedSnapshot = NumberSnapshot<33_000>;
/// Short enough for a broadcast ring, in which each but the first has its delta ahead of it.
pub(crate) type RingSnapshot = NumberSnapshot<16>;

/// So many words of a snapshot are checked, evenly spread: a victim that checks is stepped through it.
const CHECKED: usize = 500;

/// A word differs from the first one, or the number is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {word} of the snapshot is {found}, the first is {first}")]
pub(crate) struct Torn {
    word: usize,
    found: u64,
    first: u64,
}

impl<const WORDS: usize> NumberSnapshot<WORDS> {
    pub(crate) fn bytes(number: u64) -> Vec<u8> {
        number.to_le_bytes().repeat(WORDS)
    }
}

impl<const WORDS: usize> Snapshot for NumberSnapshot<WORDS> {
    const NAME: &'static str = if WORDS > CHECKED { "passed-snapshot" } else { "ring-snapshot" };
    const MAX_LEN: usize = 512 << 10;
    /// The number.
    type Index = u64;
    type Error = Torn;

    fn validate(bytes: &[u8]) -> Result<u64, Torn> {
        let (words, _) = bytes.as_chunks::<8>();
        let first = words.first().map_or(0, |word| u64::from_le_bytes(*word));
        let torn = |(word, found)| Torn { word, found, first };
        let numbers = words.iter().map(|word| u64::from_le_bytes(*word)).enumerate();
        let mut numbers = numbers.step_by(WORDS.div_ceil(CHECKED));
        if first == 0 || words.len() != WORDS {
            return Err(torn((0, first)));
        }
        numbers.find(|(_, number)| *number != first).map_or(Ok(first), |found| Err(torn(found)))
    }

    const PUBLISHES_DELTAS: bool = WORDS <= CHECKED;

    fn delta(index: &u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let next = Self::validate(bytes).ok()?;
        Some([*index, next, !next].map(u64::to_le_bytes).concat())
    }

    fn apply_delta(index: &mut u64, delta: &[u8]) -> bool {
        let (words, _) = delta.as_chunks::<8>();
        let [old, next, check] = *words else { return false };
        let [old, next, check] = [old, next, check].map(u64::from_le_bytes);
        let is_right = old == *index && next != 0 && check == !next;
        if is_right {
            *index = next;
        }
        is_right
    }

    fn to_bytes(index: &u64) -> Vec<u8> {
        Self::bytes(*index)
    }
}

/// Longer than any step of a victim takes, so that every wait ends by an event.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);

/// The smallest lane: the fewer bytes a victim copies, the more of its instructions are of interest.
const LANE: Geometry = match Geometry::new(4096) {
    Ok(size) => size,
    Err(_) => Geometry::DEFAULT,
};

/// Neither end spins: both are on one processor, and so a trace is the same each time. Lane sizes are not learned: each
/// session begins with a small lane.
pub(crate) fn client_config(doorbell: Doorbell) -> ClientConfig {
    ClientConfig::default()
        .doorbell(doorbell)
        .timeout(LONG_TIMEOUT)
        .connect_timeout(LONG_TIMEOUT)
        .spin(SpinPolicy::NEVER)
        .token(None)
        .backoff(Backoff::default().initial(Duration::from_nanos(1)).max(Duration::from_nanos(1)))
        .lane(LaneConfig::default().size(LANE).max_learned(LANE).attach_from(Some(ATTACH_FROM)))
}

pub(crate) fn server_config() -> ServerConfig {
    ServerConfig::default()
        .spin(SpinPolicy::NEVER)
        .token(None)
        .handshake_timeout(LONG_TIMEOUT)
        .lane(LaneConfig::default().size(LANE).max_learned(LANE).attach_from(Some(ATTACH_FROM)))
}

#[cfg(test)]
mod tests {
    use bellwire::Snapshot;

    use super::{
        ATTACHED, CallSpec, EVENT_SPACE, FULL, LONG, RING, RingSnapshot, SHORT, events_before,
    };

    #[test]
    fn a_request_is_read_as_it_was_written_and_no_byte_of_it_may_change() {
        for len in [SHORT, LONG, ATTACHED] {
            let spec = CallSpec { number: 7, answer: LONG, hold: true };
            let request = spec.request(len);
            assert_eq!((request.len(), CallSpec::read(&request)), (len, Some(spec)));
            for at in (0..len).step_by(len / 20) {
                let mut other = request.clone();
                other[at] ^= 0x40;
                assert_ne!(CallSpec::read(&other), Some(spec), "byte {at}");
            }
        }
    }

    #[test]
    fn an_answer_is_that_of_its_request() {
        let spec = CallSpec { number: 7, answer: SHORT, hold: false };
        assert!(spec.is_answer(&spec.respond()));
        assert!(!CallSpec { number: 8, ..spec }.is_answer(&spec.respond()));
        assert!(!spec.is_answer(&[0; SHORT]));
    }

    #[test]
    fn a_torn_or_empty_snapshot_is_invalid() {
        let mut bytes = RingSnapshot::bytes(9);
        assert_eq!(RingSnapshot::validate(&bytes), Ok(9));
        bytes[80] = 1;
        assert!(RingSnapshot::validate(&bytes).is_err());
        assert!(RingSnapshot::validate(&vec![0; bytes.len()]).is_err());
        assert!(RingSnapshot::validate(&[]).is_err());
    }

    #[test]
    fn the_events_of_a_ring_are_counted_by_its_tail() {
        let end = FULL * EVENT_SPACE;
        assert!(RING - end >= 16, "no pad");
        assert_eq!([0, EVENT_SPACE - 16, EVENT_SPACE, end].map(events_before), [0, 0, 1, FULL]);
        assert_eq!(events_before(RING), FULL, "a pad is no event");
        assert_eq!(events_before(RING + EVENT_SPACE), FULL + 1);
    }
}
