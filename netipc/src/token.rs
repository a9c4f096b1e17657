use std::fmt;

/// The token of a deployment: the 64-bit XXH3 of the 16 bytes of an invocation's UUID.
///
/// ```
/// use bellwire_netipc::Token;
///
/// let token = Token::of_uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
/// assert_eq!(token.number(), 0x8355_e3a6_f617_70db);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(u64);

/// The variables that have the UUID: Netdata's, then systemd's.
const VARIABLES: [&str; 2] = ["NETDATA_INVOCATION_ID", "INVOCATION_ID"];

impl Token {
    /// Returns the token of this number, as a HELLO carries it.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the token of an invocation.
    pub const fn of_uuid(uuid: [u8; 16]) -> Self {
        Self(xxh3_of_16(uuid))
    }

    /// Returns the token of `NETDATA_INVOCATION_ID`, or of `INVOCATION_ID` without it; `None` where neither is a UUID.
    pub fn from_environment() -> Option<Self> {
        VARIABLES.into_iter().find_map(|name| Self::of_text(&std::env::var(name).ok()?))
    }

    /// Reads 32 hexadecimal digits, hyphens between them or not.
    fn of_text(text: &str) -> Option<Self> {
        let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
        let is_uuid = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_uuid)?;
        Some(Self::of_uuid(number.to_be_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// XXH3 with 64 bits and without a seed, for inputs of 16 bytes: the four words are those of its default secret from byte 24 on.
const fn xxh3_of_16(input: [u8; 16]) -> u64 {
    const SECRET: [u64; 4] = [
        0x1f67_b3b7_a4a4_4072,
        0x78e5_c0cc_4ee6_79cb,
        0x2172_ffcc_7dd0_5a82,
        0x8e24_43f7_7446_08b8,
    ];
    let (low, high) = halves(u128::from_le_bytes(input));
    let (low, high) = (low ^ SECRET[0] ^ SECRET[1], high ^ SECRET[2] ^ SECRET[3]);
    let (folded, carried) = halves(low as u128 * high as u128);
    let folded = folded ^ carried;
    let mixed = 16_u64.wrapping_add(low.swap_bytes()).wrapping_add(high).wrapping_add(folded);
    let mixed = (mixed ^ mixed >> 37).wrapping_mul(0x1656_6791_9e37_79f9);
    mixed ^ mixed >> 32
}

/// Returns the low half and the high half.
#[allow(clippy::cast_possible_truncation, reason = "the low bits are what is meant")]
const fn halves(both: u128) -> (u64, u64) {
    (both as u64, (both >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn a_token_is_the_xxh3_of_a_uuid_with_or_without_hyphens() {
        let token = Token::new(0xc56c_de21_e711_bf96);
        assert_eq!(Token::of_text("00112233445566778899aabbccddeeff"), Some(token));
        assert_eq!(Token::of_text("00112233-4455-6677-8899-AABBCCDDEEFF\n"), Some(token));
        for text in
            ["", "0", "g0112233445566778899aabbccddeeff", "+0112233445566778899aabbccddeeff"]
        {
            assert_eq!(Token::of_text(text), None, "{text:?}");
        }
    }
}
