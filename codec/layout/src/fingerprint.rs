//! Fingerprints of the types of a service.

/// Returns the fingerprint of a description of a service's types, in any words that change when the types do: the 64-bit
/// FNV-1a hash of its bytes, or 1 instead of 0.
#[must_use]
pub const fn schema(description: &str) -> u64 {
    schema_of(&[description])
}

/// Returns the fingerprint of a description in pieces, like [`schema`] of all of them together.
#[must_use]
pub const fn schema_of(description: &[&str]) -> u64 {
    let (mut hash, mut at) = (fnv::START, 0);
    while at < description.len() {
        #[allow(clippy::indexing_slicing, reason = "a const function has no iterators")]
        let piece = description[at];
        hash = fnv::text(hash, piece);
        at += 1;
    }
    fnv::finish(hash)
}

/// The hash of [`schema`], piece by piece.
pub(crate) mod fnv {
    pub(crate) const START: u64 = 0xcbf2_9ce4_8422_2325;

    pub(crate) const fn text(mut hash: u64, text: &str) -> u64 {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            #[allow(clippy::indexing_slicing, reason = "a const function has no iterators")]
            let byte = bytes[at];
            hash = add(hash, byte);
            at += 1;
        }
        hash
    }

    /// Adds the digits.
    pub(crate) const fn number(hash: u64, number: i128) -> u64 {
        let hash = if number < 0 { add(hash, b'-') } else { hash };
        digits(hash, number.unsigned_abs())
    }

    #[allow(clippy::cast_possible_truncation, reason = "a digit")]
    const fn digits(hash: u64, number: u128) -> u64 {
        let hash = if number < 10 { hash } else { digits(hash, number / 10) };
        add(hash, b'0' + (number % 10) as u8)
    }

    const fn add(hash: u64, byte: u8) -> u64 {
        (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3)
    }

    pub(crate) const fn finish(hash: u64) -> u64 {
        if hash == 0 { 1 } else { hash }
    }
}
