/// Random numbers for jitter and for sampling, which need not be secret: xorshift64*, by George Marsaglia.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Random {
    /// Creates a sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Mixes more randomness in.
    pub const fn mix(&mut self, seed: u64) {
        self.0 ^= seed << 1 | 1;
    }

    /// Returns the next number. Its high half is the more random one.
    pub const fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
