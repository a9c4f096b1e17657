use core::fmt;
use core::str::FromStr;

/// The name of a service: 1 to 63 bytes of `a-z`, `0-9` and `-`, starting with a letter or digit.
///
/// It is a file name (`{run_dir}/{name}.sock`) and is stored in pages and boards, so nothing else is allowed.
///
/// ```
/// use bellwire_core::ServiceName;
///
/// const DISKS: ServiceName = ServiceName::constant("disk-stats");
/// assert_eq!("disk-stats".parse(), Ok(DISKS));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    // Zeroes after the name, before its length: names sort like text.
    bytes: [u8; Self::MAX],
    len: u8,
}

/// Why a text is not a [`ServiceName`].
///
/// ```
/// use bellwire_core::{NameError, ServiceName};
///
/// assert_eq!(ServiceName::parse(b"disk_stats"), Err(NameError::BadByte { at: 4 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It is empty.
    #[error("a service name cannot be empty")]
    Empty,
    /// It is longer than [`ServiceName::MAX`] bytes.
    #[error("a service name has at most 63 bytes, not {len}")]
    TooLong {
        /// The length found, in bytes.
        len: usize,
    },
    /// A byte other than `a-z`, `0-9` or `-`, or a leading `-`.
    #[error("byte {at} of a service name must be a-z, 0-9 or (not first) '-'")]
    BadByte {
        /// The offset of the byte.
        at: usize,
    },
}

impl ServiceName {
    /// The longest name, in bytes.
    pub const MAX: usize = 63;

    /// Parses a name.
    ///
    /// # Errors
    /// [`NameError`] with the rule that the text breaks.
    pub fn parse(text: &[u8]) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        let mut bytes = [0; Self::MAX];
        let too_long = NameError::TooLong { len: text.len() };
        let len = u8::try_from(text.len()).map_err(|_| too_long)?;
        bytes.get_mut(..text.len()).ok_or(too_long)?.copy_from_slice(text);
        for (at, byte) in text.iter().enumerate() {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' => {}
                b'-' if at > 0 => {}
                _ => return Err(NameError::BadByte { at }),
            }
        }
        Ok(Self { len, bytes })
    }

    /// Parses a name in the source code: in a constant, an invalid one does not compile.
    pub const fn constant(text: &'static str) -> Self {
        let text = text.as_bytes();
        assert!(!text.is_empty() && text.len() <= Self::MAX, "a service name has 1 to 63 bytes");
        let mut bytes = [0; Self::MAX];
        let (mut rest, mut into, mut len) = (text, &mut bytes as &mut [u8], 0);
        while let ([byte, after @ ..], [slot, slots @ ..]) = (rest, into) {
            let valid = matches!(*byte, b'a'..=b'z' | b'0'..=b'9') || (*byte == b'-' && len > 0);
            assert!(valid, "a service name has only a-z, 0-9 and (not first) '-'");
            *slot = *byte;
            (rest, into) = (after, slots);
            len += 1;
        }
        Self { len, bytes }
    }

    /// Parses the zero-padded field of pages, boards and HELLO.
    pub fn from_field(field: &[u8; 64]) -> Result<Self, NameError> {
        let len = field.iter().position(|b| *b == 0).unwrap_or(field.len());
        if let Some(at) = field.iter().skip(len).position(|b| *b != 0) {
            return Err(NameError::BadByte { at: len + at });
        }
        Self::parse(field.get(..len).unwrap_or(field))
    }

    /// Returns the zero-padded field of pages, boards and HELLO.
    pub fn to_field(self) -> [u8; 64] {
        core::array::from_fn(|at| self.bytes.get(at).copied().unwrap_or(0))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or(&[]);
        // Every byte was checked to be ASCII.
        core::str::from_utf8(bytes).unwrap_or("")
    }
}

impl FromStr for ServiceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::ServiceName;

    #[test]
    fn names_are_ordered_as_texts_are() {
        let names =
            ["a", "a-b", "ab", "b", "cgroups-snapshot", "foreign"].map(ServiceName::constant);
        assert!(
            names.is_sorted_by_key(|name| *name) && names.is_sorted_by_key(ServiceName::as_str)
        );
    }
}
