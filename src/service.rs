use std::fmt;
use std::net::IpAddr;

use crate::Payload;

/// A service: a name, one method, and the types of its request and its response.
///
/// ```
/// use bellwire::Service;
///
/// /// Adds one.
/// struct Increment;
///
/// impl Service for Increment {
///     const NAME: &'static str = "increment";
///     type Request = u64;
///     type Response = u64;
/// }
/// ```
pub trait Service: 'static {
    /// The service's name: 1 to 63 bytes of `a-z`, `0-9` and `-`. It names the endpoint, `{run_dir}/{NAME}.sock`.
    const NAME: &'static str;

    /// The number of this kind of request. Change it when the types change: a client with another number is then
    /// refused with a reason, instead of being misunderstood. The last one, 4 294 967 295, is reserved for
    /// [counters](crate::Observer).
    const METHOD: u32 = 1;

    /// A fingerprint of the two types, by [`schema`]; 0, the default, is none. Two ends with different ones do not open a
    /// session: the error, of the kind [`ErrorKind::Incompatible`](crate::ErrorKind::Incompatible), names both. An end
    /// without one opens a session with any.
    ///
    /// ```
    /// # use bellwire::Service;
    /// # struct Increment;
    /// impl Service for Increment {
    ///     const NAME: &'static str = "increment";
    ///     const SCHEMA: u64 = bellwire::schema("u64 -> u64");
    ///     type Request = u64;
    ///     type Response = u64;
    /// }
    /// ```
    const SCHEMA: u64 = 0;

    /// Whether running a request twice is harmless. Only then is a request that *may* have run sent again after the
    /// provider died.
    const IDEMPOTENT: bool = false;

    /// What a client sends.
    type Request: Message;

    /// What a client receives.
    type Response: Message;
}

/// Returns the fingerprint of a description of a service's types, in any words that change when the types do: the 64-bit
/// FNV-1a hash of its bytes, or 1 instead of 0.
#[must_use]
pub const fn schema(description: &str) -> u64 {
    let bytes = description.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        #[allow(clippy::indexing_slicing, reason = "a const function has no iterators")]
        let byte = bytes[at];
        hash = (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    if hash == 0 { 1 } else { hash }
}

/// A value that is sent between processes as bytes.
///
/// `decode` reads private memory: the bytes were copied out of the peer's lane and cannot change. But another process
/// wrote them, so decode must check all of them. If one of these functions panics, a server fails only the call, as
/// with a panic in a handler; in a client, the panic propagates to the caller.
pub trait Message: Sized {
    /// The length in bytes, if all values of this type have the same: items of a batch are then written and read
    /// together, without individual checks. `None`, the default, is correct for every type. With a number, implement
    /// [`Message::write`] as well.
    const LEN: Option<usize> = None;

    /// Appends the value's bytes.
    fn encode(&self, into: &mut Vec<u8>);

    /// Writes what [`Message::encode`] would append over `into`, which has [`LEN`](Message::LEN) bytes. Called only
    /// if that is above 0.
    fn write(&self, into: &mut [u8]) {
        let mut bytes = Vec::with_capacity(into.len());
        self.encode(&mut bytes);
        for (to, from) in into.iter_mut().zip(bytes) {
            *to = from;
        }
    }

    /// Parses consecutive values of [`LEN`](Message::LEN) bytes and appends them. Called only if that is above 0.
    ///
    /// # Errors
    /// [`Malformed`] when one of them is; the values before it were appended.
    fn decode_all(bytes: &[u8], values: &mut Vec<Self>) -> Result<(), Malformed> {
        for bytes in bytes.chunks_exact(Self::LEN.unwrap_or(1).max(1)) {
            values.push(Self::decode(bytes)?);
        }
        Ok(())
    }

    /// Parses a value from all of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] with the position and the reason.
    fn decode(bytes: &[u8]) -> Result<Self, Malformed>;

    /// Parses a value from the first `len` bytes of the buffer into which they were copied. A type that holds bytes
    /// may keep the buffer and leave another one, of any length and content; other types leave it alone.
    ///
    /// # Errors
    /// Like [`Message::decode`].
    fn take(buffer: &mut Vec<u8>, len: usize) -> Result<Self, Malformed> {
        Self::decode(buffer.get(..len).unwrap_or_default())
    }

    /// Parses a value from an attachment, which nobody can change. A type that holds bytes may keep it mapped.
    ///
    /// # Errors
    /// Like [`Message::decode`].
    fn from_payload(payload: Payload) -> Result<Self, Malformed> {
        Self::decode(&payload)
    }

    /// Returns the value's bytes in place, if they are already a payload: it is sent without being encoded.
    fn as_payload(&self) -> Option<&Payload> {
        None
    }
}

/// Why bytes are not a [`Message`] of the type expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message at byte {at} of {len}: {why}")]
pub struct Malformed {
    /// The position in bytes.
    pub at: usize,
    /// The length in bytes.
    pub len: usize,
    /// What is wrong.
    pub why: &'static str,
}

impl Message for () {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        exactly::<0>(bytes).map(|_| ())
    }
}

impl Message for Vec<u8> {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(bytes.to_vec())
    }
}

impl Message for String {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|error| Malformed {
            at: error.valid_up_to(),
            len: bytes.len(),
            why: "not UTF-8",
        });
        text.map(str::to_owned)
    }
}

impl<const N: usize> Message for [u8; N] {
    const LEN: Option<usize> = Some(N);

    fn write(&self, into: &mut [u8]) {
        if let Some(into) = into.first_chunk_mut() {
            *into = *self;
        }
    }

    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        exactly::<N>(bytes)
    }
}

/// 4 or 16 bytes in network byte order.
impl Message for IpAddr {
    fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::V4(address) => into.extend_from_slice(&address.octets()),
            Self::V6(address) => into.extend_from_slice(&address.octets()),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes.len() {
            4 => exactly::<4>(bytes).map(Self::from),
            _ => exactly::<16>(bytes).map(Self::from),
        }
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Message for $int {
            const LEN: Option<usize> = Some(size_of::<$int>());

            #[inline]
            fn write(&self, into: &mut [u8]) {
                if let Some(into) = into.first_chunk_mut() {
                    *into = self.to_le_bytes();
                }
            }

            fn decode_all(bytes: &[u8], values: &mut Vec<Self>) -> Result<(), Malformed> {
                let (items, _) = bytes.as_chunks();
                values.extend(items.iter().map(|item| Self::from_le_bytes(*item)));
                Ok(())
            }

            fn encode(&self, into: &mut Vec<u8>) {
                into.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
                exactly(bytes).map(Self::from_le_bytes)
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Malformed> {
    let at = bytes.len().min(N);
    bytes.try_into().map_err(|_| Malformed { at, len: bytes.len(), why: "wrong length" })
}

/// The error of a handler that cannot answer: a sentence for the caller.
///
/// Any type that implements `Display` converts into it, so `?` works in a handler.
#[derive(Clone, PartialEq, Eq)]
pub struct HandlerError(String);

impl HandlerError {
    /// Creates an error with this sentence.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// Returns the sentence.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<E: fmt::Display> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
