//! Messages of fixed layout: the C struct of their fields, and behind it what has no fixed length.
//!
//! A type's *fixed part* is laid out as the C struct with the same fields, little-endian: each at the next multiple of its alignment.
//! A string or a list has its length there, a `u32`, and its bytes or items in the *tail* behind the fixed part of the
//! message, in the order of the fields. Padding is written as 0 and never read. `docs/codecs.md` has examples and the same in C.
//!
//! `#[derive(bellwire::Message)]`, with the feature `derive` of `bellwire`, implements [`Layout`] and `bellwire::Message`.

#![forbid(unsafe_code)]

mod fingerprint;
mod malformed;
mod types;
mod values;

pub use fingerprint::{schema, schema_of};
pub use malformed::Malformed;
pub use types::{Field, Scalar, Type};

use std::{array, slice};

/// A type with a [fixed layout](crate): a field of a message.
///
/// A type that contains itself has none, which the compiler reports as a cycle: so how deep a peer's message goes is known
/// when a program is compiled.
///
/// ```
/// use bellwire_layout::Layout;
///
/// let pair = <(u8, Option<u32>)>::TYPE;
/// assert_eq!((pair.to_string().as_str(), pair.size()), ("{0:u8,1:?u32}", 12));
/// ```
pub trait Layout: Sized {
    /// What both ends must agree on: see [`Type::schema`].
    const TYPE: &'static Type;

    /// Writes the fixed part at `at`, where there is room for it, and appends the tail.
    fn store<S: Sink + ?Sized>(&self, sink: &mut S, at: usize);

    /// Parses a value from the fixed part at `at` and from the tail.
    ///
    /// # Errors
    /// [`Malformed`], with the position in the message.
    fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed>;

    /// Writes consecutive values.
    fn store_all<S: Sink + ?Sized>(values: &[Self], sink: &mut S, at: usize) {
        for (index, value) in values.iter().enumerate() {
            value.store(sink, at + index * Self::TYPE.size());
        }
    }

    /// Parses an array.
    ///
    /// # Errors
    /// As [`Layout::load`].
    #[inline]
    fn load_array<const N: usize>(
        reader: &mut Reader<'_>,
        at: usize,
    ) -> Result<[Self; N], Malformed> {
        let mut malformed = None;
        let items: [Option<Self>; N] = array::from_fn(|index| {
            let loaded = Self::load(reader, at + index * Self::TYPE.size());
            loaded.map_err(|why| *malformed.get_or_insert(why)).ok()
        });
        match malformed {
            Some(malformed) => Err(malformed),
            // Each item that is missing has left an error.
            None => Ok(items.map(|item| item.unwrap_or_else(|| unreachable!()))),
        }
    }

    /// Parses consecutive values, for which the fixed parts are there, and appends them.
    ///
    /// # Errors
    /// As [`Layout::load`].
    fn load_all(
        reader: &mut Reader<'_>,
        at: usize,
        count: usize,
        values: &mut Vec<Self>,
    ) -> Result<(), Malformed> {
        values.reserve(count);
        for index in 0..count {
            values.push(Self::load(reader, at + index * Self::TYPE.size())?);
        }
        Ok(())
    }

    /// Returns consecutive values in place, if they are stored as they are encoded.
    fn as_encoded(_: &[Self]) -> Option<&[u8]> {
        None
    }
}

/// Where a message is written: a buffer that grows, or memory that has the length of a message without a tail.
///
/// ```
/// use bellwire_layout::Layout;
///
/// let mut message = vec![0; String::TYPE.size()];
/// "sda".to_owned().store(&mut message, 0);
/// assert_eq!(message, b"\x03\0\0\0sda");
/// ```
pub trait Sink {
    /// Writes bytes of the fixed part.
    fn put(&mut self, at: usize, bytes: &[u8]);

    /// Appends bytes to the tail.
    fn append(&mut self, bytes: &[u8]);

    /// Appends `len` bytes of 0 to the tail and returns their position.
    fn append_zeros(&mut self, len: usize) -> usize;
}

impl Sink for [u8] {
    #[inline]
    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(to) = self.get_mut(at..at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }

    fn append(&mut self, _: &[u8]) {}

    fn append_zeros(&mut self, _: usize) -> usize {
        self.len()
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.as_mut_slice().put(at, bytes);
    }

    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn append_zeros(&mut self, len: usize) -> usize {
        let at = self.len();
        self.resize(at + len, 0);
        at
    }
}

/// The bytes of a message, and how much of its tail was read. A [`Layout`] that is written by hand, such as this one of a
/// percentage, reads and checks its part of them:
///
/// ```
/// use bellwire::Message;
/// use bellwire_layout::{Layout, Malformed, Reader, Sink, Type};
///
/// struct Percent(u8);
///
/// impl Layout for Percent {
///     const TYPE: &'static Type = u8::TYPE;
///
///     fn store<S: Sink + ?Sized>(&self, sink: &mut S, at: usize) {
///         sink.put(at, &[self.0]);
///     }
///
///     fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed> {
///         match reader.fixed(at)? {
///             [percent @ ..=100] => Ok(Self(percent)),
///             _ => Err(reader.malformed(at, "more than 100 percent")),
///         }
///     }
/// }
///
/// assert!(Vec::<Percent>::decode(&[0, 100]).is_ok());
/// let malformed = Vec::<Percent>::decode(&[0, 101]).err().unwrap();
/// assert!(malformed.to_string().contains("more than 100 percent"));
/// ```
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    tail: usize,
}

impl<'a> Reader<'a> {
    /// Returns `N` bytes of the fixed part.
    ///
    /// # Errors
    /// [`Malformed`] when the message ends before.
    #[inline]
    pub fn fixed<const N: usize>(&self, at: usize) -> Result<[u8; N], Malformed> {
        match self.bytes.get(at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => Ok(*bytes),
            None => Err(self.malformed(at, "the message ends before")),
        }
    }

    /// Takes what is next in the tail: so many items of `size` bytes as the `u32` at `at` says.
    ///
    /// # Errors
    /// [`Malformed`], at the length, when the message ends before.
    pub fn list(&mut self, at: usize, size: usize) -> Result<(usize, &'a [u8]), Malformed> {
        let count = u32::from_le_bytes(self.fixed(at)?);
        let bytes =
            usize::try_from(count).ok().and_then(|count| Some((count, count.checked_mul(size)?)));
        let rest = self.bytes.get(self.tail..).unwrap_or_default();
        let taken = bytes.and_then(|(count, len)| Some((count, rest.get(..len)?)));
        let Some((count, bytes)) = taken else {
            return Err(self.malformed(at, "a length past the end of the message"));
        };
        self.tail += bytes.len();
        Ok((count, bytes))
    }

    /// Returns the position in the tail of what is taken next.
    pub fn tail(&self) -> usize {
        self.tail
    }

    /// Returns why this message is malformed.
    #[cold]
    pub fn malformed(&self, at: usize, why: &'static str) -> Malformed {
        Malformed::new(at.min(self.bytes.len()), self.bytes.len(), why)
    }
}

/// `bellwire::Message::LEN` of a type.
pub const fn len<T: Layout>() -> Option<usize> {
    if T::TYPE.is_fixed() { Some(T::TYPE.size()) } else { None }
}

/// `bellwire::Message::encode`.
#[inline]
pub fn encode<T: Layout>(value: &T, into: &mut Vec<u8>) {
    if let Some(bytes) = T::as_encoded(slice::from_ref(value)) {
        return into.extend_from_slice(bytes);
    }
    let size = const { T::TYPE.size() };
    if const { matches!(T::TYPE, Type::Scalar(_)) } {
        // Most calls send a number: appending it takes less than appending zeros and storing it there.
        let mut number = [0; size_of::<u128>()];
        let number = number.get_mut(..size).unwrap_or_default();
        value.store(number, 0);
        return into.extend_from_slice(number);
    }
    let at = into.append_zeros(size);
    value.store(into, at);
}

/// `bellwire::Message::write`.
#[inline]
pub fn write<T: Layout>(value: &T, into: &mut [u8]) {
    if const { !T::TYPE.is_dense() } {
        into.fill(0);
    }
    value.store(into, 0);
}

/// `bellwire::Message::decode`.
///
/// # Errors
/// [`Malformed`], with the field and its position.
#[inline]
pub fn decode<T: Layout>(bytes: &[u8]) -> Result<T, Malformed> {
    let (size, is_fixed) = const { (T::TYPE.size(), T::TYPE.is_fixed()) };
    let is_right = if is_fixed { bytes.len() == size } else { bytes.len() >= size };
    if !is_right {
        return Err(Malformed::new(bytes.len().min(size), bytes.len(), "wrong length"));
    }
    let mut reader = Reader { bytes, tail: size };
    let value = T::load(&mut reader, 0)?;
    if !is_fixed {
        reader.finish()?;
    }
    Ok(value)
}

/// `bellwire::Message::decode_all`.
///
/// # Errors
/// [`Malformed`], with the field and its position.
pub fn decode_all<T: Layout>(bytes: &[u8], values: &mut Vec<T>) -> Result<(), Malformed> {
    let size = const { T::TYPE.size() };
    let count = bytes.len() / size.max(1);
    T::load_all(&mut Reader { bytes, tail: bytes.len() }, 0, count, values)
}

impl Reader<'_> {
    fn finish(&self) -> Result<(), Malformed> {
        match self.tail == self.bytes.len() {
            true => Ok(()),
            false => Err(self.malformed(self.tail, "bytes behind the end of the value")),
        }
    }
}
