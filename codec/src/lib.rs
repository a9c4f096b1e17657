//! Messages of [Bellwire](bellwire) without hand-written bytes, in three ways.
//!
//! | for | use | in C and Go |
//! | --- | --- | --- |
//! | a struct of numbers, at the speed of a copy | [`#[derive(Message)]`](derive@Message) | the same struct: [`c_header`] |
//! | types that get fields later, and any language | `Proto<T>`, with the feature `prost` | what their compiler makes of the same `.proto` |
//! | any type of serde, between programs in Rust | `Postcard<T>`, with the feature `postcard` | |
//!
//! `docs/codecs.md` compares them. Each decodes what any process may send: it never panics, takes memory and time in
//! proportion to the bytes that came, and says where they are wrong.
//!
//! ```
//! use bellwire::{Client, RunDir, Server};
//! use bellwire_codec::Message;
//!
//! #[derive(Message)]
//! struct Disk {
//!     reads: u64,
//!     is_rotational: bool,
//!     name: String,
//! }
//!
//! #[derive(bellwire::Service)]
//! #[service(name = "disk", request = String, response = Disk, idempotent)]
//! struct DiskByName;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let run_dir = RunDir::new(dir.path());
//! let mut builder = Server::builder(&run_dir);
//! builder.serve::<DiskByName>(|_, name| Ok(Disk { reads: 7, is_rotational: false, name }))?;
//! let server = builder.start()?;
//! let disk = Client::<DiskByName>::new(&run_dir).call(&"sda".into())?;
//! assert_eq!((disk.reads, disk.is_rotational, disk.name.as_str()), (7, false, "sda"));
//! # server.stop();
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "postcard")]
mod bounded;
mod c;
#[cfg(feature = "postcard")]
mod postcard;
#[cfg(feature = "prost")]
mod proto;

#[cfg(feature = "postcard")]
pub use crate::postcard::Postcard;
pub use bellwire::{Layout, Malformed, Message};
pub use c::c_header;
#[cfg(feature = "prost")]
pub use proto::{Proto, proto_schema};

// The examples of this page run as doctests.
#[cfg(all(doctest, feature = "prost", feature = "postcard"))]
#[doc = include_str!("../../docs/codecs.md")]
struct Codecs;
