/// FNV-1a's 64-bit offset basis.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// FNV-1a's 64-bit prime.
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the hash of a cgroup's name that its item carries: FNV-1a, 64 bits, over the name's UTF-8 bytes.
///
/// It is the same in every language and on every machine, so a collector can compute it once, even at compile time, and look
/// the name up with it for as long as it runs.
///
/// ```
/// use bellwire_cgroups::name_hash;
///
/// const SSHD: u64 = name_hash("sshd");
/// assert_eq!(SSHD, 0x83c5_8d19_0521_cf2f);
/// ```
pub const fn name_hash(name: &str) -> u64 {
    let mut hash = BASIS;
    let mut rest = name.as_bytes();
    while let [byte, tail @ ..] = rest {
        hash = (hash ^ *byte as u64).wrapping_mul(PRIME);
        rest = tail;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::name_hash;

    #[test]
    fn the_published_fnv_1a_vectors_hold() {
        assert_eq!(name_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(name_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(name_hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
