use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use bellwire::Malformed;

/// Reads a message's bytes from front to back.
pub struct Fields<'a> {
    len: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { len: bytes.len(), rest: bytes }
    }

    /// Reads the fixed part that comes next.
    pub fn head<T>(&mut self) -> Result<T, Malformed>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (head, rest) =
            T::read_from_prefix(self.rest).map_err(|_| self.malformed("ends too early"))?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads a text of `len` bytes, without control characters.
    pub fn text(&mut self, len: usize) -> Result<String, Malformed> {
        let (bytes, rest) =
            self.rest.split_at_checked(len).ok_or(self.malformed("a text ends too early"))?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.malformed("not UTF-8"))?;
        if text.contains(char::is_control) {
            return Err(self.malformed("a control character"));
        }
        self.rest = rest;
        Ok(text.to_owned())
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("bytes behind the end")) }
    }

    /// Returns an error at the current position.
    pub fn malformed(&self, why: &'static str) -> Malformed {
        Malformed { at: self.len - self.rest.len(), len: self.len, why }
    }
}

/// Returns a text, cut at a character to fit a two-byte length, and its length.
pub fn cut(text: &str) -> (&str, u16) {
    let text = text.get(..text.floor_char_boundary(u16::MAX.into())).unwrap_or_default();
    (text, u16::try_from(text.len()).unwrap_or(0))
}
