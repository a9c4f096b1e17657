use std::net::IpAddr;

use crate::layout::{self, Layout, Scalar, Sink, Type};
use crate::{Malformed, Payload};

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

    /// What the bytes mean, from which the [fingerprint](crate::Service::SCHEMA) of a service is made. `None`, the default: nothing
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

/// Implements [`Message`](crate::Message) by [`Layout`].
#[doc(hidden)]
#[macro_export]
macro_rules! __message_by_layout {
    ($({$($parameter:tt)*})? $type:ty) => {
        impl $(<$($parameter)*>)? $crate::Message for $type {
            const LEN: Option<usize> = $crate::layout::len::<Self>();
            const LAYOUT: Option<&'static $crate::layout::Type> =
                Some(<Self as $crate::layout::Layout>::TYPE);

            fn encode(&self, into: &mut Vec<u8>) {
                $crate::layout::encode(self, into);
            }

            #[inline]
            fn write(&self, into: &mut [u8]) {
                $crate::layout::write(self, into);
            }

            fn as_encoded(&self) -> Option<&[u8]> {
                <Self as $crate::layout::Layout>::as_encoded(::core::slice::from_ref(self))
            }

            fn decode_all(
                bytes: &[u8],
                values: &mut Vec<Self>,
            ) -> Result<(), $crate::Malformed> {
                $crate::layout::decode_all(bytes, values)
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<Self, $crate::Malformed> {
                $crate::layout::decode(bytes)
            }
        }
    };
}

macro_rules! messages_by_layout {
    ($($type:ty),*) => { $(__message_by_layout!($type);)* };
}

messages_by_layout!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, bool, ());
__message_by_layout!({T: Layout, const N: usize} [T; N]);
__message_by_layout!({T: Layout} Option<T>);

macro_rules! tuples_by_layout {
    ($($($part:ident)*;)*) => { $(__message_by_layout!({$($part: Layout),*} ($($part,)*));)* };
}

tuples_by_layout!(A; A B; A B C; A B C D; A B C D E; A B C D E F;);

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
