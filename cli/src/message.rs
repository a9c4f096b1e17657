//! Messages of the demo and of the soak: four numbers, bytes that no other message has, and a checksum that shows a damaged
//! byte.

const WORD: usize = size_of::<u64>();
const HEAD: usize = 4 * WORD;
/// The shortest message in bytes.
pub const SHORTEST: usize = HEAD + WORD;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills `bytes`, of which there are at least [`SHORTEST`], with a message.
pub fn write(numbers: [u64; 4], bytes: &mut [u8]) {
    let Some((body, sum)) = bytes.split_last_chunk_mut::<WORD>() else { return };
    let Some((head, rest)) = body.split_at_mut_checked(HEAD) else { return };
    for (to, number) in head.chunks_exact_mut(WORD).zip(numbers) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    let mut word = checksum(head) | 1;
    for to in rest.chunks_mut(WORD) {
        word = word.wrapping_add(GOLDEN);
        let pattern = (word ^ word >> 31).to_le_bytes();
        to.iter_mut().zip(pattern).for_each(|(to, byte)| *to = byte);
    }
    *sum = checksum(body).to_le_bytes();
}

/// Returns the numbers of a message; `None` if it is damaged.
pub fn read(bytes: &[u8]) -> Option<[u64; 4]> {
    let (body, sum) = bytes.split_last_chunk::<WORD>()?;
    let (words, _) = body.as_chunks::<WORD>();
    let numbers = words.first_chunk::<4>()?.map(u64::from_le_bytes);
    (u64::from_le_bytes(*sum) == checksum(body)).then_some(numbers)
}

/// Covers the bytes and their number.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<WORD>();
    let add = |sum: u64, word: u64| (sum ^ word).wrapping_mul(GOLDEN).rotate_left(29);
    let sum = words.iter().map(|word| u64::from_le_bytes(*word)).fold(bytes.len() as u64, add);
    rest.iter().map(|byte| u64::from(*byte)).fold(sum, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(numbers: [u64; 4], len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        write(numbers, &mut bytes);
        bytes
    }

    #[test]
    fn a_message_of_any_length_is_read_as_it_was_written() {
        for len in [SHORTEST, SHORTEST + 1, 100, 4096] {
            assert_eq!(read(&message([7, 1, 99, 3], len)), Some([7, 1, 99, 3]));
        }
        assert_ne!(message([7, 1, 99, 3], 100)[40..], message([8, 1, 99, 3], 100)[40..]);
    }

    #[test]
    fn any_byte_that_changed_shows_and_so_does_a_length() {
        let built = message([7, 1, 99, 3], 101);
        for at in 0..built.len() {
            let mut bytes = built.clone();
            bytes[at] ^= 0x40;
            assert_eq!(read(&bytes), None, "byte {at}");
        }
        assert_eq!((read(&built[..100]), read(&built[..30]), read(&[])), (None, None, None));
    }
}
