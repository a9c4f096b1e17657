//! Lookups: answers that distinguish what exists, what does not, and what may exist later.

use crate::{Malformed, Message};

/// What a provider knows about the thing that a client asked for.
///
/// On the wire: one byte, then the value's own bytes if it is known.
///
/// ```
/// use bellwire::Lookup;
///
/// let found = Lookup::Known("web.service").map(str::len);
/// assert_eq!((found.known(), Lookup::<u8>::RetryLater.known()), (Some(11), None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// The value.
    Known(T),
    /// Nothing yet: ask again later. It may just have been created, or was unreadable.
    RetryLater,
    /// Nothing, and asking again is useless: it does not exist, or no longer does.
    Unknown,
    /// The value does not fit in one answer.
    TooLarge,
}

const KNOWN: u8 = 1;
const RETRY_LATER: u8 = 2;
const UNKNOWN: u8 = 3;
const TOO_LARGE: u8 = 4;

impl<T> Lookup<T> {
    /// Returns the value, if it is known.
    pub fn known(self) -> Option<T> {
        match self {
            Self::Known(value) => Some(value),
            Self::RetryLater | Self::Unknown | Self::TooLarge => None,
        }
    }

    /// Maps a known value to another one.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Self::Known(value) => Lookup::Known(to(value)),
            Self::RetryLater => Lookup::RetryLater,
            Self::Unknown => Lookup::Unknown,
            Self::TooLarge => Lookup::TooLarge,
        }
    }

    /// Returns `known`, `retry-later`, `unknown` or `too-large`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Known(_) => "known",
            Self::RetryLater => "retry-later",
            Self::Unknown => "unknown",
            Self::TooLarge => "too-large",
        }
    }
}

impl<T: Message> Message for Lookup<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Known(value) => {
                into.push(KNOWN);
                value.encode(into);
            }
            Self::RetryLater => into.push(RETRY_LATER),
            Self::Unknown => into.push(UNKNOWN),
            Self::TooLarge => into.push(TOO_LARGE),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = |at, why| Malformed::new(at, bytes.len(), why);
        let Some((tag, rest)) = bytes.split_first() else { return Err(malformed(0, "empty")) };
        let lookup = match *tag {
            KNOWN => {
                let inside = |error: Malformed| malformed(error.at + 1, error.why);
                return T::decode(rest).map(Self::Known).map_err(inside);
            }
            RETRY_LATER => Self::RetryLater,
            UNKNOWN => Self::Unknown,
            TOO_LARGE => Self::TooLarge,
            _ => return Err(malformed(0, "no state of a look-up")),
        };
        if rest.is_empty() { Ok(lookup) } else { Err(malformed(1, "bytes of what is not known")) }
    }
}

#[cfg(test)]
mod tests {
    use super::Lookup;
    use crate::Message;

    fn bytes(lookup: &Lookup<u32>) -> Vec<u8> {
        let mut bytes = Vec::new();
        lookup.encode(&mut bytes);
        bytes
    }

    #[test]
    fn every_state_round_trips() {
        for lookup in [Lookup::Known(7), Lookup::RetryLater, Lookup::Unknown, Lookup::TooLarge] {
            assert_eq!(Lookup::decode(&bytes(&lookup)), Ok(lookup));
        }
    }

    #[test]
    fn an_invalid_lookup_is_malformed_with_its_position() {
        for (bad, at) in [(&[][..], 0), (&[0], 0), (&[5], 0), (&[2, 0], 1), (&[1, 0, 0, 0], 4)] {
            let error = Lookup::<u32>::decode(bad).unwrap_err();
            assert_eq!((error.at, error.len), (at, bad.len()), "{bad:?}: {error}");
        }
    }
}
