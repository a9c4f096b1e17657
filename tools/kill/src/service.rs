//! What is served and checked: calls that carry their own number, and snapshots in which a tear is visible.

use std::sync::LazyLock;
use std::time::Duration;

use bellwire::{ClientConfig, Doorbell, Geometry, ServerConfig, Service, Snapshot, SpinPolicy};

/// Answers a request by its number, at the length that it asks for.
#[derive(Debug)]
pub(crate) struct Ledger;

impl Service for Ledger {
    const NAME: &'static str = "ledger";
    type Request = Vec<u8>;
    type Response = Vec<u8>;
}

/// What fits a lane at its initial size.
pub(crate) const SHORT: usize = 40;
/// What does not, and makes it grow.
pub(crate) const LONG: usize = 2_100;
/// What travels in a memfd of its own.
pub(crate) const ATTACHED: usize = 2_400;

const ATTACH_FROM: usize = 2_300;
const HEAD: usize = 24;

/// A request that was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    /// How long the answer is to be, in bytes.
    pub(crate) answer: usize,
    /// Whether the handler waits until it is released.
    pub(crate) hold: bool,
}

/// What follows the numbers of a message: no byte is like its neighbours.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |at: usize| (at.wrapping_mul(167) ^ (at >> 8)).to_le_bytes().first().copied();
    (0..ATTACHED).filter_map(byte).collect()
});

/// Makes the pattern, which the first message would do otherwise.
pub(crate) fn prepare() {
    LazyLock::force(&PATTERN);
}

impl Entry {
    pub(crate) fn request(self, len: usize) -> Vec<u8> {
        let hold = u64::from(self.hold);
        message([self.number, self.answer as u64, hold], len)
    }

    /// The entry of a request, if every byte of it is right.
    pub(crate) fn read(request: &[u8]) -> Option<Self> {
        let [number, answer, hold] = read(request)?;
        let answer = usize::try_from(answer).ok().filter(|len| *len <= ATTACHED)?;
        (hold <= 1).then_some(Self { number, answer, hold: hold == 1 })
    }

    pub(crate) fn respond(self) -> Vec<u8> {
        message([!self.number, 0, 0], self.answer)
    }

    /// Whether this is the answer, to the last byte.
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

/// The same number many times: a part of it is no valid sheet.
#[derive(Debug)]
pub(crate) struct Sheet;

const WORDS: usize = 512;

/// The number is missing somewhere, or is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {word} of the sheet is {found}, the first is {first}")]
pub(crate) struct Torn {
    word: usize,
    found: u64,
    first: u64,
}

impl Sheet {
    pub(crate) fn bytes(number: u64) -> Vec<u8> {
        number.to_le_bytes().repeat(WORDS)
    }
}

impl Snapshot for Sheet {
    const NAME: &'static str = "sheet";
    const MAX_LEN: usize = 64 << 10;
    /// The number.
    type Index = u64;
    type Error = Torn;

    fn validate(bytes: &[u8]) -> Result<u64, Torn> {
        let (words, _) = bytes.as_chunks::<8>();
        let first = words.first().map_or(0, |word| u64::from_le_bytes(*word));
        let torn = |(word, found)| Torn { word, found, first };
        let mut numbers = words.iter().map(|word| u64::from_le_bytes(*word)).enumerate();
        if first == 0 || words.len() != WORDS {
            return Err(torn((0, first)));
        }
        numbers.find(|(_, number)| *number != first).map_or(Ok(first), |found| Err(torn(found)))
    }
}

/// Longer than any step of a victim takes: what ends a wait is an event.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

/// The smallest lane: the less there is to copy, the more of a victim's instructions are others.
const LANE: Geometry = match Geometry::new(4096) {
    Ok(size) => size,
    Err(_) => Geometry::DEFAULT,
};

/// Neither end spins: both are on one processor, and a trace is the same each time. No lane is learned: each session
/// begins with a small one.
pub(crate) fn client_config(doorbell: Doorbell) -> ClientConfig {
    ClientConfig {
        doorbell,
        timeout: LONG_ENOUGH,
        connect_timeout: LONG_ENOUGH,
        lane: LANE,
        max_learned_lane: LANE,
        attach_from: Some(ATTACH_FROM),
        spin: SpinPolicy::NEVER,
        token: None,
        backoff: (Duration::from_nanos(1), Duration::from_nanos(1)),
        ..ClientConfig::default()
    }
}

pub(crate) fn server_config() -> ServerConfig {
    ServerConfig {
        lane: LANE,
        max_learned_lane: LANE,
        attach_from: Some(ATTACH_FROM),
        spin: SpinPolicy::NEVER,
        token: None,
        handshake_timeout: LONG_ENOUGH,
        ..ServerConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use bellwire::Snapshot;

    use super::{ATTACHED, Entry, LONG, SHORT, Sheet};

    #[test]
    fn a_request_is_read_as_it_was_written_and_no_byte_of_it_may_change() {
        for len in [SHORT, LONG, ATTACHED] {
            let entry = Entry { number: 7, answer: LONG, hold: true };
            let request = entry.request(len);
            assert_eq!((request.len(), Entry::read(&request)), (len, Some(entry)));
            for at in (0..len).step_by(len / 20) {
                let mut other = request.clone();
                other[at] ^= 0x40;
                assert_ne!(Entry::read(&other), Some(entry), "byte {at}");
            }
        }
    }

    #[test]
    fn an_answer_is_that_of_its_request() {
        let entry = Entry { number: 7, answer: SHORT, hold: false };
        assert!(entry.is_answer(&entry.respond()));
        assert!(!Entry { number: 8, ..entry }.is_answer(&entry.respond()));
        assert!(!entry.is_answer(&[0; SHORT]));
    }

    #[test]
    fn a_sheet_that_is_torn_or_empty_is_none() {
        let mut bytes = Sheet::bytes(9);
        assert_eq!(Sheet::validate(&bytes), Ok(9));
        bytes[800] = 1;
        assert!(Sheet::validate(&bytes).is_err());
        assert!(Sheet::validate(&vec![0; bytes.len()]).is_err());
        assert!(Sheet::validate(&[]).is_err());
    }
}
