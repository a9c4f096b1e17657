//! Memory of one process: where a payload comes from and goes to.

use std::hash::{DefaultHasher, Hasher};

use fastrand::Rng;

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
        Rng::with_seed(seed).fill(self.bytes_mut());
    }

    /// A checksum of the content, the same in both processes.
    pub fn checksum(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.bytes());
        hasher.finish()
    }
}

/// What a [`Private`] buffer of `len` bytes filled from `seed` sums to.
pub fn expected(len: usize, seed: u64) -> u64 {
    let mut buffer = Private::new(len);
    buffer.fill(seed);
    buffer.checksum()
}
