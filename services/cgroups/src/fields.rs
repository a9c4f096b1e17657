use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

    /// Reads `count` labels.
    pub fn labels(&mut self, count: u16) -> Result<Vec<(String, String)>, Malformed> {
        // No allocation for a length that is only announced.
        let mut labels = Vec::new();
        for _ in 0..count {
            let label: Label = self.head()?;
            let name = self.text(label.name_len.get().into())?;
            labels.push((name, self.text(label.value_len.get().into())?));
        }
        Ok(labels)
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("bytes behind the end")) }
    }

    /// Returns an error at the current position.
    pub fn malformed(&self, why: &'static str) -> Malformed {
        Malformed::new(self.len - self.rest.len(), self.len, why)
    }
}

/// A label's lengths; its name follows, then its value.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Label {
    name_len: U16,
    value_len: U16,
}

/// Returns how many of these labels are encoded: the first 65 535.
pub fn count(labels: &[(String, String)]) -> u16 {
    u16::try_from(labels.len()).unwrap_or(u16::MAX)
}

/// Appends as many labels as [`count`] says.
pub fn put_labels(labels: &[(String, String)], into: &mut Vec<u8>) {
    for (name, value) in labels.iter().take(count(labels).into()) {
        let ((name, name_len), (value, value_len)) = (cut(name), cut(value));
        let label = Label { name_len: name_len.into(), value_len: value_len.into() };
        into.extend_from_slice(label.as_bytes());
        into.extend_from_slice(name.as_bytes());
        into.extend_from_slice(value.as_bytes());
    }
}

/// Returns a text, cut at a character to fit a two-byte length, and its length.
pub fn cut(text: &str) -> (&str, u16) {
    let text = text.get(..text.floor_char_boundary(u16::MAX.into())).unwrap_or_default();
    (text, u16::try_from(text.len()).unwrap_or(0))
}
