use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::Malformed;

/// Reads a message's bytes from front to back.
pub(crate) struct Fields<'a> {
    len: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { len: bytes.len(), rest: bytes }
    }

    /// The fixed part that comes next.
    pub(crate) fn head<T>(&mut self) -> Result<T, Malformed>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (head, rest) =
            T::read_from_prefix(self.rest).map_err(|_| self.malformed("ends too early"))?;
        self.rest = rest;
        Ok(head)
    }

    /// A text of `len` bytes, without control characters.
    pub(crate) fn text(&mut self, len: usize) -> Result<String, Malformed> {
        let (bytes, rest) =
            self.rest.split_at_checked(len).ok_or(self.malformed("a text ends too early"))?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.malformed("not UTF-8"))?;
        if text.contains(char::is_control) {
            return Err(self.malformed("a control character"));
        }
        self.rest = rest;
        Ok(text.to_owned())
    }

    /// Nothing is left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("bytes behind the end")) }
    }

    /// What is next is not what it should be.
    pub(crate) fn malformed(&self, why: &'static str) -> Malformed {
        Malformed { at: self.len - self.rest.len(), len: self.len, why }
    }
}

/// A text and its length in two bytes; one that is longer is cut at a character.
pub(crate) fn cut(text: &str) -> (&str, u16) {
    let text = text.get(..text.floor_char_boundary(u16::MAX.into())).unwrap_or_default();
    (text, u16::try_from(text.len()).unwrap_or(0))
}
