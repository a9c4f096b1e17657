use sha2::{Digest, Sha256};

/// Tells the processes of one invocation from those of another that share a run dir: the first 16 bytes of
/// SHA-256 of the invocation id.
///
/// A server that has one refuses clients that have another; a server without admits any. It is no secret
/// against the same user: it keeps a plugin of an old run from joining a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// The token of an invocation id.
    pub fn of(invocation_id: &[u8]) -> Self {
        let hash: [u8; 32] = Sha256::digest(invocation_id).into();
        let mut token = [0; 16];
        for (to, from) in token.iter_mut().zip(hash) {
            *to = from;
        }
        Self(token)
    }

    /// From `NETDATA_INVOCATION_ID`, else `INVOCATION_ID` (which systemd sets,
    /// [`systemd.exec(5)`](https://man7.org/linux/man-pages/man5/systemd.exec.5.html)); `None` without either.
    pub fn from_environment() -> Option<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let id = set("NETDATA_INVOCATION_ID").or_else(|| set("INVOCATION_ID"))?;
        Some(Self::of(id.as_encoded_bytes()))
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
    fn a_token_is_the_start_of_the_sha_256_of_the_id() {
        // `printf abc | sha256sum`
        assert_eq!(Token::of(b"abc").bytes()[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
