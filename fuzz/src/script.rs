use std::cell::Cell;

/// A cursor over an input. Past the end it returns zeroes.
pub(crate) struct Script<'a> {
    rest: Cell<&'a [u8]>,
}

impl<'a> Script<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { rest: Cell::new(input) }
    }

    /// Whether the end is reached.
    pub(crate) fn is_over(&self) -> bool {
        self.rest.get().is_empty()
    }

    pub(crate) fn byte(&self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn array<const N: usize>(&self) -> [u8; N] {
        let mut array = [0; N];
        let some = self.bytes(N);
        array[..some.len()].copy_from_slice(some);
        array
    }

    pub(crate) fn u16(&self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Reads the next `len` bytes, or all that are left.
    pub(crate) fn bytes(&self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.get().split_at(len.min(self.rest.get().len()));
        self.rest.set(rest);
        taken
    }

    /// Reads a length of two bytes, and that many bytes.
    pub(crate) fn sized(&self) -> &'a [u8] {
        self.bytes(self.u16().into())
    }

    /// Reads all bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest.replace(&[])
    }
}
