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

    /// The number of this kind of request. Give a new number when the types change: a client with another
    /// number is refused with a reason, instead of being misunderstood. The last one, 4 294 967 295, is taken: it asks
    /// for [counters](crate::Observer).
    const METHOD: u32 = 1;

    /// Whether running a request twice does no harm. Only then is a request that *may* have run sent again
    /// after the provider died.
    const IDEMPOTENT: bool = false;

    /// What a client sends.
    type Request: Message;

    /// What it gets back.
    type Response: Message;
}

/// A value that crosses between processes as bytes.
///
/// `decode` reads private memory: the bytes were copied out of the peer's lane and cannot change. They are
/// still another process's words: decode must check all of them. A server bears it when one of these functions panics, and
/// fails the call, as it does when a handler panics; at the client's end the panic is its caller's.
pub trait Message: Sized {
    /// How many bytes each value of this type has, where all have as many: items of a batch are then written and read
    /// together, without a look at each. `None`, the default, is right for every type. Together with a number comes
    /// [`Message::write`].
    const LEN: Option<usize> = None;

    /// Appends the value's bytes.
    fn encode(&self, into: &mut Vec<u8>);

    /// Writes what [`Message::encode`] would append over `into`, which has [`LEN`](Message::LEN) bytes. Asked only where
    /// that is a number above 0.
    fn write(&self, into: &mut [u8]) {
        let mut bytes = Vec::with_capacity(into.len());
        self.encode(&mut bytes);
        for (to, from) in into.iter_mut().zip(bytes) {
            *to = from;
        }
    }

    /// Parses values of [`LEN`](Message::LEN) bytes, one behind the other, and appends them. Asked only where that is a
    /// number above 0.
    ///
    /// # Errors
    /// [`Malformed`] when one of them is; the values before it are there.
    fn decode_all(bytes: &[u8], values: &mut Vec<Self>) -> Result<(), Malformed> {
        for bytes in bytes.chunks_exact(Self::LEN.unwrap_or(1).max(1)) {
            values.push(Self::decode(bytes)?);
        }
        Ok(())
    }

    /// Parses a value from all of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] says where and what.
    fn decode(bytes: &[u8]) -> Result<Self, Malformed>;

    /// Parses a value from the first `len` bytes of the buffer that they were copied into. A type that holds bytes may
    /// keep the buffer and leave another one, of any length and content; the others leave it alone.
    ///
    /// # Errors
    /// As [`Message::decode`].
    fn take(buffer: &mut Vec<u8>, len: usize) -> Result<Self, Malformed> {
        Self::decode(buffer.get(..len).unwrap_or_default())
    }

    /// Parses a value that came in a memfd of its own, which nobody can change. A type that holds bytes may keep it
    /// mapped.
    ///
    /// # Errors
    /// As [`Message::decode`].
    fn from_payload(payload: Payload) -> Result<Self, Malformed> {
        Self::decode(&payload)
    }

    /// The value's bytes where they lie, if they are a payload already: it travels without being encoded.
    fn as_payload(&self) -> Option<&Payload> {
        None
    }
}

/// Why bytes are not a [`Message`] of the type expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message at byte {at} of {len}: {why}")]
pub struct Malformed {
    /// Where, in bytes from the start.
    pub at: usize,
    /// How many bytes there are.
    pub len: usize,
    /// What was wrong.
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

/// 4 or 16 bytes, in the order of the network.
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

/// What a handler says when it cannot answer: a sentence for the caller.
///
/// Any error that displays converts into it, so `?` works in a handler.
#[derive(Clone, PartialEq, Eq)]
pub struct HandlerError(String);

impl HandlerError {
    /// An error with this sentence.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// The sentence.
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
