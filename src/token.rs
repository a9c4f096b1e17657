use std::fmt;
use std::str::FromStr;

/// The environment variable that gives a token to all processes started with it.
const VARIABLE: &str = "BELLWIRE_TOKEN";

/// Separates the processes of one deployment from others that use the same run dir: 16 bytes, not all zero, chosen by
/// the program that starts them. As text, it is 32 hexadecimal digits, the first byte first.
///
/// A server with a token refuses clients with another one or none; a server without one admits any. It is no secret
/// from the same user: it keeps a plugin of an old run from joining a new one.
///
/// ```
/// use bellwire::Token;
///
/// // What `od -An -tx1 -N16 /dev/urandom | tr -d ' \n'` may print.
/// let token: Token = "8f14e45fceea167a5a36dedd4bea2543".parse()?;
/// # Ok::<(), bellwire::TokenError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

/// Why a text is not a [`Token`].
///
/// ```
/// use bellwire::{Token, TokenError};
///
/// assert_eq!("8f14".parse::<Token>(), Err(TokenError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is 32 hexadecimal digits, not all of them 0")]
pub struct TokenError;

impl Token {
    /// Creates a token from these bytes; `None` if all are zero, which means no token in a HELLO.
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Reads `BELLWIRE_TOKEN`; `None` where it is not set, or empty.
    ///
    /// # Errors
    /// [`TokenError`] if the value is not a token.
    pub fn from_environment() -> Result<Option<Self>, TokenError> {
        match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => text.parse().map(Some),
            Err(std::env::VarError::NotUnicode(_)) => Err(TokenError),
            _ => Ok(None),
        }
    }

    /// Returns the default of a config. It maps an invalid value to a token that others do not have by accident,
    /// because a typing error must not make a server admit everybody. The result is the same in each process with
    /// that value.
    pub(crate) fn by_default() -> Option<Self> {
        Self::from_environment().unwrap_or(Some(Self([0xff; 16])))
    }

    /// Returns the bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits);
        number.and_then(|number| Self::new(number.to_be_bytes())).ok_or(TokenError)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_32_hexadecimal_digits_the_first_byte_first() {
        let token: Token = "000102030405060708090a0b0c0d0eFf".parse().unwrap();
        assert_eq!(token.to_bytes(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        let long = "0".repeat(31) + "11";
        let signed = format!("+{:031x}", 1);
        let zero = "0".repeat(32);
        for text in ["", "1", "one", &long, &signed, &zero, "g00102030405060708090a0b0c0d0eff"] {
            assert_eq!(text.parse::<Token>(), Err(TokenError), "{text:?}");
        }
    }
}
