//! Memory of one process: where a payload comes from and goes to.

/// A private buffer that starts on a cache line pair of its own.
#[derive(Debug)]
pub struct Private {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Private {
    /// `len` bytes, touched.
    pub fn new(len: usize) -> Private {
        let bytes = vec![1; len.saturating_add(128)];
        let start = bytes.as_ptr().align_offset(128).min(128);
        Private { bytes, start, len }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..self.start + self.len).unwrap_or(&[])
    }

    /// The bytes, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.start + self.len).unwrap_or(&mut [])
    }

    /// Fills it with bytes that depend on the seed.
    pub fn fill(&mut self, seed: u64) {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for chunk in self.bytes_mut().chunks_mut(8) {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(seed);
            for (to, from) in chunk.iter_mut().zip(state.to_le_bytes()) {
                *to = from;
            }
        }
    }

    /// A checksum of the content.
    pub fn checksum(&self) -> u64 {
        self.bytes().chunks(8).fold(0xcbf2_9ce4_8422_2325, |sum, chunk| {
            let word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23)
        })
    }
}

/// What a [`Private`] buffer of `len` bytes filled from `seed` sums to.
pub fn expected(len: usize, seed: u64) -> u64 {
    let mut buffer = Private::new(len);
    buffer.fill(seed);
    buffer.checksum()
}
