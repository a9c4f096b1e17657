//! Protocol Buffers.

use bellwire::{Malformed, Message};
use prost::Name;

/// A message of Protocol Buffers, of which the `.proto` is the schema in every language.
///
/// A field may be added without a new `VERSION`: an end that does not know it skips it, and an end that misses it reads its
/// default. `prost` drops the fields that it does not know, so pass on the bytes, not a decoded message, where they must
/// survive.
///
/// [`proto_schema`] makes the [fingerprint](bellwire::Service::SCHEMA), which is none without it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proto<T>(pub T);

impl<T: prost::Message + Default> Message for Proto<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        // A `Vec` grows as needed: this cannot fail.
        let _ = self.0.encode(into);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        // `prost` refuses messages in more than 100 messages.
        let mut rest = bytes;
        let decoded = T::decode(&mut rest);
        let at = bytes.len() - rest.len();
        decoded
            .map(Self)
            .map_err(|_| Malformed::new(at, bytes.len(), "not this message of Protocol Buffers"))
    }
}

/// Returns the fingerprint of a service with these messages, by their full names in the descriptor:
/// `schema("proto:package.Request -> proto:package.Response")`. It stays when a message gets another field.
///
/// ```
/// use bellwire_codec::{Proto, proto_schema};
///
/// // As `prost-build` makes them, with `enable_type_names`.
/// # #[derive(Clone, PartialEq, prost::Message)]
/// # pub struct Disk {}
/// # impl prost::Name for Disk {
/// #     const NAME: &'static str = "Disk";
/// #     const PACKAGE: &'static str = "disks.v1";
/// # }
/// #[derive(bellwire::Service)]
/// #[service(name = "disk", request = Proto<Disk>, response = Proto<Disk>, schema = proto_schema::<Disk, Disk>())]
/// struct DiskByName;
///
/// # use bellwire::Service;
/// assert_eq!(DiskByName::SCHEMA, bellwire::schema("proto:disks.v1.Disk -> proto:disks.v1.Disk"));
/// ```
#[must_use]
pub const fn proto_schema<Request: Name, Response: Name>() -> u64 {
    bellwire::schema_of(&[
        "proto:",
        Request::PACKAGE,
        if Request::PACKAGE.is_empty() { "" } else { "." },
        Request::NAME,
        " -> proto:",
        Response::PACKAGE,
        if Response::PACKAGE.is_empty() { "" } else { "." },
        Response::NAME,
    ])
}
