//! Clients that speak netipc, the protocol of Netdata's plugin-ipc, at the endpoints of this server: feature `netipc`, on Linux.
//!
//! A service says once how its snapshots or calls are translated: [`Snapshot::netipc`](crate::Snapshot::netipc),
//! [`Service::netipc`](crate::Service::netipc). [`ServerConfig::netipc`](crate::ServerConfig::netipc) turns it on.
//!
//! ```
//! use bellwire::netipc::{self, CallMethod};
//! use bellwire::{RunDir, Server, ServerConfig, Service};
//!
//! struct Increment;
//! impl Service for Increment {
//!     const NAME: &'static str = "increment";
//!     type Request = u64;
//!     type Response = u64;
//!
//!     fn netipc() -> Option<CallMethod> {
//!         Some(netipc::INCREMENT)
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let config = ServerConfig::default().netipc(true);
//! let mut builder = Server::builder_with(&RunDir::new(dir.path()), config);
//! builder.serve::<Increment>(|_, number| Ok(number + 1))?;
//! builder.start()?.stop();
//! # Ok(())
//! # }
//! ```

pub use bellwire_netipc::method::{
    APPS_LOOKUP, Answer, CGROUPS_LOOKUP, CGROUPS_SNAPSHOT, CallMethod, Each, Exchange, INCREMENT,
    SnapshotMethod,
};
pub use bellwire_netipc::{Malformed, Status, Token, Violation, lookup, snapshot};
