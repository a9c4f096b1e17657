//! Bytes that identify themselves: which message, and which part of it.

use std::sync::OnceLock;

/// How long the stream is before it repeats: a prime, so that no lane's size is a multiple of it.
const PERIOD: usize = 1_048_573;

/// Fills a message with what belongs there: its number, as far as there is room, and then a part of a pseudo-random
/// stream that begins elsewhere for each number.
pub(crate) fn fill(number: u64, into: &mut [u8]) {
    let (head, mut rest) = into.split_at_mut(into.len().min(8));
    head.copy_from_slice(&number.to_le_bytes()[..head.len()]);
    let mut at = start(number);
    while !rest.is_empty() {
        let part = &stream()[at..];
        let len = part.len().min(rest.len());
        rest[..len].copy_from_slice(&part[..len]);
        (rest, at) = (&mut rest[len..], 0);
    }
}

/// The message of this number and length.
pub(crate) fn message(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(number, &mut bytes);
    bytes
}

/// What is wrong with a message that should have this number and length; every byte is checked.
pub(crate) fn check(number: u64, len: usize, bytes: &[u8]) -> Result<(), String> {
    let (head, mut rest) = bytes.split_at(bytes.len().min(8));
    if bytes.len() != len || *head != number.to_le_bytes()[..head.len()] {
        let mut found = [0; 8];
        found[..head.len()].copy_from_slice(head);
        let (found, has) = (u64::from_le_bytes(found), bytes.len());
        return Err(format!("not message {number} of {len} bytes, but {found} of {has}"));
    }
    let mut at = start(number);
    while !rest.is_empty() {
        let part = &stream()[at..];
        let len = part.len().min(rest.len());
        if rest[..len] != part[..len] {
            let wrong = rest.iter().zip(part).position(|(found, right)| found != right).unwrap();
            let place = bytes.len() - rest.len() + wrong;
            return Err(format!("message {number} of {} bytes is wrong from {place}", bytes.len()));
        }
        (rest, at) = (&rest[len..], 0);
    }
    Ok(())
}

fn start(number: u64) -> usize {
    (scatter(number) % PERIOD as u64) as usize
}

fn stream() -> &'static [u8] {
    static STREAM: OnceLock<Vec<u8>> = OnceLock::new();
    STREAM.get_or_init(|| {
        let words = (0..PERIOD as u64 / 8 + 1).flat_map(|at| scatter(at).to_le_bytes());
        words.take(PERIOD).collect()
    })
}

/// A number that looks random: splitmix64.
pub(crate) fn scatter(number: u64) -> u64 {
    let mut word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Numbers that look random, and are the same for the same seed.
#[derive(Clone)]
pub(crate) struct Rng {
    seed: u64,
    drawn: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: scatter(seed), drawn: 0 }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        scatter(self.seed.wrapping_add(self.drawn))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    /// True once in so many.
    pub(crate) fn once_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Below `end`; every power of two is as likely as any other.
    pub(crate) fn below_by_magnitude(&mut self, end: usize) -> usize {
        let bits = self.below(end.ilog2() as usize + 1);
        (self.below(2 << bits) + (1 << bits) - 1).min(end - 1)
    }
}
