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
//! # #[cfg(windows)]
//! # fn main() {}
//! # #[cfg(not(windows))]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let config = ServerConfig::default().netipc(true);
//! let mut builder = Server::builder_with_config(&RunDir::new(dir.path()), config);
//! builder.serve::<Increment>(|_, number| Ok(number + 1))?;
//! builder.start()?.stop();
//! # Ok(())
//! # }
//! ```

use bellwire_netipc::handshake::{hello_without_token, is_netipc};

use crate::control::ControlMessage;
use crate::transport::{Os, prelude::*};
use crate::{ClientConfig, ConnectError, RunDir, ServiceName, connect};

pub use bellwire_netipc::method::{
    APPS_LOOKUP, Answer, CGROUPS_LOOKUP, CGROUPS_SNAPSHOT, CallMethod, Each, Exchange, INCREMENT,
    SnapshotMethod,
};
pub use bellwire_netipc::{Malformed, Status, Token, Violation, lookup, snapshot};

/// Returns whether the provider at this endpoint answers a HELLO of netipc, be it by a refusal. It may record that a client
/// came without its token. Nothing is sent to a process of a user who is [not trusted](ClientConfig::trusted).
///
/// # Errors
/// [`ConnectError`]: nothing can be said of it.
pub fn is_netipc_provider(
    run_dir: &RunDir,
    service: ServiceName,
    config: &ClientConfig,
) -> Result<bool, ConnectError> {
    let until = Os::now().after(config.connect_timeout);
    let (channel, _) = connect::dial(run_dir, service, config, until)?;
    if channel.send(&hello_without_token(), &[]).is_err() {
        return Ok(false);
    }
    loop {
        match ControlMessage::receive(&channel) {
            Ok(Some(answer)) => return Ok(is_netipc(answer.bytes())),
            Ok(None) => {
                let arrived = Os::wait_any(&[channel.arrived()], Some(until));
                if !arrived.map_err(connect::system("wait for the provider"))? {
                    return Ok(false);
                }
            }
            Err(_) => return Ok(false),
        }
    }
}
