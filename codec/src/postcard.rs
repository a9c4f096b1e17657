//! Any type of serde.

use ::postcard::ser_flavors::Flavor;
use ::postcard::{Deserializer, Error};
use bellwire::{Malformed, Message};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bounded::Limits;

/// A value of any type of serde, in the format of the crate `postcard`, which has no field names: both ends need the same type.
///
/// It is for programs in Rust that are built together. Change `VERSION` when the type changes, or declare a
/// [`SCHEMA`](bellwire::Service::SCHEMA). A value is refused that
///
/// - goes deeper than 128 sequences, maps, options, structs and enums,
/// - has more items in its sequences and maps, together, than the message has bytes, or
/// - has more memory in items, entries and boxes, together, than 1 MiB and 64 bytes for each byte of the message.
///
/// A `Serialize` that fails makes an empty message, which the other end refuses unless its type has no bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Postcard<T>(pub T);

impl<T: Serialize + DeserializeOwned> Message for Postcard<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        let start = into.len();
        if ::postcard::serialize_with_flavor(&self.0, Appended(into)).is_err() {
            into.truncate(start);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut deserializer = Deserializer::from_bytes(bytes);
        let limits = Limits::of_message(bytes.len());
        let decoded = limits.decode(&mut deserializer);
        let rest = deserializer.finalize().map_or(0, <[u8]>::len);
        let malformed = |why| Malformed::new(bytes.len() - rest, bytes.len(), why);
        match decoded {
            Ok(_) if rest > 0 => Err(malformed("bytes behind the end of the value")),
            Ok(value) => Ok(Self(value)),
            Err(error) => Err(malformed(limits.exceeded().unwrap_or(why(&error)))),
        }
    }
}

/// A buffer that postcard appends to.
struct Appended<'a>(&'a mut Vec<u8>);

impl Flavor for Appended<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> Result<(), Error> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> Result<(), Error> {
        Ok(())
    }
}

fn why(error: &Error) -> &'static str {
    match error {
        Error::DeserializeUnexpectedEnd => "the message ends before",
        Error::DeserializeBadVarint => "a number above its type",
        Error::DeserializeBadBool => "a bool that is neither 0 nor 1",
        Error::DeserializeBadOption => "an option that is neither 0 nor 1",
        Error::DeserializeBadChar => "not a character",
        Error::DeserializeBadUtf8 => "not UTF-8",
        Error::DeserializeBadEnum => "not a variant of the enum",
        Error::SerdeDeCustom => "refused by its type",
        _ => "not this type in postcard",
    }
}
