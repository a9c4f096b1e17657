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

/// Returns a shorter hash of a name: FNV-1a, 32 bits, over the name's UTF-8 bytes. No snapshot carries it; it is for consumers whose
/// own tables are keyed by 32 bits.
///
/// Netdata's `simple_hash` multiplies before it XORs, as FNV-1 does, and so has other values.
pub const fn name_hash32(name: &str) -> u32 {
    let mut hash: u32 = 0x811c_9dc5;
    let mut rest = name.as_bytes();
    while let [byte, tail @ ..] = rest {
        hash = (hash ^ *byte as u32).wrapping_mul(0x0100_0193);
        rest = tail;
    }
    hash
}

/// Returns a name as an identifier for charts and metrics: every character but `A` to `Z`, `a` to `z`, `0` to `9`, `_` and `-`
/// becomes `_`, and a dot `-`. Two names may have one identifier.
pub fn chart_id(name: &str) -> String {
    let fit = |c: char| match c {
        '.' => '-',
        c if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') => c,
        _ => '_',
    };
    name.chars().map(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::{chart_id, name_hash, name_hash32};

    #[test]
    fn a_chart_id_has_no_dots_and_nothing_odd() {
        assert_eq!(chart_id("web_1.ns/é x@tty-1"), "web_1-ns___x_tty-1");
    }

    #[test]
    fn the_published_32_bit_fnv_1a_vectors_hold() {
        assert_eq!(name_hash32(""), 0x811c_9dc5);
        assert_eq!(name_hash32("a"), 0xe40c_292c);
        assert_eq!(name_hash32("foobar"), 0xbf9c_f968);
    }

    #[test]
    fn the_published_fnv_1a_vectors_hold() {
        assert_eq!(name_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(name_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(name_hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
