//! The derives of Bellwire, which a program uses as `bellwire::Message` and `bellwire::Service`.
#![forbid(unsafe_code)]

mod message;
mod service;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct, or an enum without fields, a message of fixed layout.
///
/// A field is a number, a bool, an array, an `Option`, a tuple, a `String`, a `Vec`, or another such type. An enum has its
/// number in `#[repr(u8)]`, `u16`, `u32`, `u64` or one of the signed ones.
///
/// ```
/// #[derive(bellwire::Message)]
/// struct Disk {
///     reads: u64,
///     state: State,
///     name: String,
/// }
///
/// #[derive(bellwire::Message)]
/// #[repr(u8)]
/// enum State {
///     Idle,
///     Busy,
/// }
///
/// # use bellwire::Message;
/// let mut bytes = Vec::new();
/// Disk { reads: 7, state: State::Busy, name: "sda".into() }.encode(&mut bytes);
/// assert_eq!(bytes, [&7_u64.to_le_bytes()[..], &[1, 0, 0, 0], &[3, 0, 0, 0], b"sda"].concat());
/// ```
///
/// A type that contains itself is none, since a peer could send it as deep as it likes:
///
/// ```compile_fail
/// #[derive(bellwire::Message)]
/// struct Tree {
///     children: Vec<Tree>,
/// }
/// ```
///
/// Nor is a list of values without bytes, of which a peer could announce any number:
///
/// ```compile_fail
/// #[derive(bellwire::Message)]
/// struct Nothings {
///     nothings: Vec<()>,
/// }
/// # <Nothings as bellwire::Message>::decode(&[]);
/// ```
#[proc_macro_derive(Message)]
pub fn message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    message::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a unit struct a service. Its fingerprint is that of its types, if they have one.
///
/// ```
/// #[derive(bellwire::Service)]
/// #[service(name = "increment", request = u64, response = u64, idempotent)]
/// struct Increment;
///
/// # use bellwire::Service;
/// assert_eq!(Increment::NAME, "increment");
/// assert_eq!(Increment::METHOD, 1);
/// assert_eq!(Increment::SCHEMA, bellwire::schema("u64 -> u64"));
/// assert!(Increment::IDEMPOTENT);
/// ```
///
/// | key | is |
/// | --- | --- |
/// | `name = "…"` | `Service::NAME` |
/// | `request = T`, `response = T` | the types; without one, `()` |
/// | `method = 2` | `Service::METHOD`; without it, 1 |
/// | `schema = …` | `Service::SCHEMA`, in place of that of the types |
/// | `idempotent` | `Service::IDEMPOTENT` |
#[proc_macro_derive(Service, attributes(service))]
pub fn service(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    service::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
