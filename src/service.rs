use std::fmt;
use std::net::IpAddr;

use crate::Payload;
use crate::layout::{self, Layout, Scalar, Sink, Type};

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
    /// [counters](crate::StatsClient).
    const METHOD: u32 = 1;

    /// A fingerprint of the two types; 0 is none. Two ends with different ones do not open a session: the error, of the
    /// kind [`ErrorKind::Incompatible`](crate::ErrorKind::Incompatible), names both. An end without one opens a session
    /// with any.
    ///
    /// The default is that of the [types](Message::LAYOUT), if both have one. For others, [`schema`] makes one of any text.
    ///
    /// ```
    /// # use bellwire::Service;
    /// # struct Increment;
    /// impl Service for Increment {
    ///     const NAME: &'static str = "increment";
    ///     type Request = u64;
    ///     type Response = u64;
    /// }
    /// assert_eq!(Increment::SCHEMA, bellwire::schema("u64 -> u64"));
    /// ```
    const SCHEMA: u64 = match (Self::Request::LAYOUT, Self::Response::LAYOUT) {
        (Some(request), Some(response)) => Type::schema(request, response),
        _ => 0,
    };

    /// Whether running a request twice is harmless. Only then is a request that *may* have run sent again after the
    /// provider died.
    const IDEMPOTENT: bool = false;

    /// What a client sends.
    type Request: Message;

    /// What a client receives.
    type Response: Message;

    /// How clients of netipc are served: see [`ServerConfig::netipc`](crate::ServerConfig::netipc). Default: not served.
    #[cfg(feature = "netipc")]
    fn netipc() -> Option<crate::netipc::CallMethod> {
        None
    }
}

/// Returns the fingerprint of a description of a service's types, in any words that change when the types do: the 64-bit
/// FNV-1a hash of its bytes, or 1 instead of 0.
#[must_use]
pub const fn schema(description: &str) -> u64 {
    schema_of(&[description])
}

/// Returns the fingerprint of a description in pieces, like [`schema`] of all of them together.
#[must_use]
pub const fn schema_of(description: &[&str]) -> u64 {
    let (mut hash, mut at) = (fnv::START, 0);
    while at < description.len() {
        #[allow(clippy::indexing_slicing, reason = "a const function has no iterators")]
        let piece = description[at];
        hash = fnv::text(hash, piece);
        at += 1;
    }
    fnv::finish(hash)
}

/// The hash of [`schema`], piece by piece.
pub(crate) mod fnv {
    pub(crate) const START: u64 = 0xcbf2_9ce4_8422_2325;

    pub(crate) const fn text(mut hash: u64, text: &str) -> u64 {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            #[allow(clippy::indexing_slicing, reason = "a const function has no iterators")]
            let byte = bytes[at];
            hash = add(hash, byte);
            at += 1;
        }
        hash
    }

    /// Adds the digits.
    pub(crate) const fn number(hash: u64, number: i128) -> u64 {
        let hash = if number < 0 { add(hash, b'-') } else { hash };
        digits(hash, number.unsigned_abs())
    }

    #[allow(clippy::cast_possible_truncation, reason = "a digit")]
    const fn digits(hash: u64, number: u128) -> u64 {
        let hash = if number < 10 { hash } else { digits(hash, number / 10) };
        add(hash, b'0' + (number % 10) as u8)
    }

    const fn add(hash: u64, byte: u8) -> u64 {
        (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3)
    }

    pub(crate) const fn finish(hash: u64) -> u64 {
        if hash == 0 { 1 } else { hash }
    }
}

/// A value that is sent between processes as bytes.
///
/// `decode` reads private memory: the bytes were copied out of the peer's lane and cannot change. But another process
/// wrote them, so decode must check all of them. If one of these functions panics, a server fails only the call, as
/// with a panic in a handler; in a client, the panic propagates to the caller.
///
/// ```
/// use bellwire::{Malformed, Message};
///
/// /// Degrees, in a byte.
/// #[derive(Debug, PartialEq)]
/// struct Celsius(i8);
///
/// impl Message for Celsius {
///     fn encode(&self, into: &mut Vec<u8>) {
///         into.push(self.0 as u8);
///     }
///
///     fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
///         match bytes {
///             [degrees] => Ok(Self(*degrees as i8)),
///             _ => Err(Malformed::new(0, bytes.len(), "not one byte")),
///         }
///     }
/// }
/// assert_eq!(Celsius::decode(&[0xff]), Ok(Celsius(-1)));
/// ```
pub trait Message: Sized {
    /// The length in bytes, if all values of this type have the same: items of a batch are then written and read
    /// together, without individual checks. `None`, the default, is correct for every type. With a number, implement
    /// [`Message::write`] as well.
    const LEN: Option<usize> = None;

    /// What the bytes mean, from which the [fingerprint](Service::SCHEMA) of a service is made. `None`, the default: nothing
    /// that another end could be compared with.
    const LAYOUT: Option<&'static Type> = None;

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

    /// Parses a value from an attachment, which no process can change. A type that holds bytes may keep it mapped.
    ///
    /// # Errors
    /// Like [`Message::decode`].
    fn from_payload(payload: Payload) -> Result<Self, Malformed> {
        Self::decode(&payload)
    }

    /// Returns the message in place, if the value is stored as it is encoded: it is sent without being encoded. Default:
    /// `None`.
    ///
    /// Encoding copies many bytes at a time, and a processor loads bytes that were stored just before in smaller pieces
    /// only after all earlier stores have reached the cache.
    fn as_encoded(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the value's bytes in place, if they are already a payload: it is sent without being encoded.
    fn as_payload(&self) -> Option<&Payload> {
        None
    }
}

/// Why bytes are not a [`Message`] of the type expected.
///
/// ```
/// use bellwire::Message;
///
/// let malformed = u64::decode(b"short").unwrap_err();
/// assert_eq!(malformed.len, 5);
/// println!("{malformed}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message at byte {at} of {len}{}: {why}", field.map(|field| format!(", {field}")).unwrap_or_default())]
#[non_exhaustive]
pub struct Malformed {
    /// The position in bytes.
    pub at: usize,
    /// The length in bytes.
    pub len: usize,
    /// What is wrong.
    pub why: &'static str,
    /// The type and the field in it, if the type has a [layout].
    pub field: Option<&'static str>,
}

impl Malformed {
    /// Creates an error about the byte `at` of `len`.
    pub const fn new(at: usize, len: usize, why: &'static str) -> Self {
        Self { at, len, why, field: None }
    }

    /// Adds the field, unless a field in it is known already.
    #[must_use]
    pub fn in_field(self, field: &'static str) -> Self {
        Self { field: self.field.or(Some(field)), ..self }
    }
}

/// All of the message: items of one length, one after another; others as in a field. Of bytes, which may mean anything, there
/// is no fingerprint.
impl<T: Layout> Message for Vec<T> {
    const LAYOUT: Option<&'static Type> = match T::TYPE {
        Type::Scalar(Scalar::U8) => None,
        _ => Some(<Self as Layout>::TYPE),
    };

    fn encode(&self, into: &mut Vec<u8>) {
        if !T::TYPE.is_fixed() {
            return layout::encode(self, into);
        }
        match T::as_encoded(self) {
            Some(bytes) => into.extend_from_slice(bytes),
            None => {
                let at = into.append_zeros(self.len() * T::TYPE.size());
                T::store_all(self, into, at);
            }
        }
    }

    fn as_encoded(&self) -> Option<&[u8]> {
        T::as_encoded(self)
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if !T::TYPE.is_fixed() {
            return layout::decode(bytes);
        }
        let size = const {
            assert!(T::TYPE.size() > 0, "a list of values without bytes");
            T::TYPE.size()
        };
        if bytes.len() % size != 0 {
            return Err(Malformed::new(bytes.len() / size * size, bytes.len(), "wrong length"));
        }
        let mut values = Self::new();
        layout::decode_all(bytes, &mut values)?;
        Ok(values)
    }
}

impl Message for String {
    const LAYOUT: Option<&'static Type> = Some(<Self as Layout>::TYPE);

    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.as_bytes());
    }

    fn as_encoded(&self) -> Option<&[u8]> {
        Some(self.as_bytes())
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(bytes);
        let not_utf8 = |at| Malformed::new(at, bytes.len(), "not UTF-8");
        text.map(str::to_owned).map_err(|error| not_utf8(error.valid_up_to()))
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
            4 => <[u8; 4]>::decode(bytes).map(Self::from),
            _ => <[u8; 16]>::decode(bytes).map(Self::from),
        }
    }
}

/// The error of a handler that cannot answer: a sentence for the caller, and, if the caller's program shall tell errors
/// apart, a code.
///
/// Any type that implements `Display` converts into it, so `?` works in a handler.
///
/// ```
/// use bellwire::HandlerError;
///
/// const NO_SUCH_DISK: u32 = 1;
/// let error = HandlerError::with_code(NO_SUCH_DISK, "there is no disk sdz");
/// assert_eq!((error.code(), error.reason()), (Some(NO_SUCH_DISK), "there is no disk sdz"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HandlerError {
    code: Option<u32>,
    reason: String,
}

impl HandlerError {
    /// Creates an error with this sentence.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { code: None, reason: reason.into() }
    }

    /// Creates an error with this sentence and a code, whose meaning is the service's: the caller finds it in
    /// [`CallError::Handler`](crate::CallError::Handler).
    pub fn with_code(code: u32, reason: impl Into<String>) -> Self {
        Self { code: Some(code), reason: reason.into() }
    }

    /// Returns the sentence.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the code, if it has one.
    pub fn code(&self) -> Option<u32> {
        self.code
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "{code}: {:?}", self.reason),
            None => fmt::Debug::fmt(&self.reason, f),
        }
    }
}

impl<E: fmt::Display> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
