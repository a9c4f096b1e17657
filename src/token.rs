use sha2::{Digest, Sha256};

/// Tells the processes that were started together from others that share a run dir: the first 16 bytes of
/// SHA-256 of a text that whoever starts them gives to all of them.
///
/// A server that has one refuses clients that have another; a server without admits any. It is no secret
/// against the same user: it keeps a plugin of an old run from joining a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// The token of a text: all of its bytes count, a line feed at its end, too.
    pub fn of(text: &[u8]) -> Self {
        let hash: [u8; 32] = Sha256::digest(text).into();
        let mut token = [0; 16];
        for (to, from) in token.iter_mut().zip(hash) {
            *to = from;
        }
        Self(token)
    }

    /// That of `BELLWIRE_TOKEN`; `None` when it is not set, or empty. No other variable counts: `INVOCATION_ID`, for
    /// one, differs between units that shall talk to each other.
    pub fn from_environment() -> Option<Self> {
        let text = std::env::var_os("BELLWIRE_TOKEN").filter(|text| !text.is_empty())?;
        Some(Self::of(text.as_encoded_bytes()))
    }

    pub(crate) fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_start_of_the_sha_256_of_the_text() {
        // `printf abc | sha256sum`
        assert_eq!(Token::of(b"abc").bytes()[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
