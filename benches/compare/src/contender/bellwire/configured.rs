//! How the server is configured: by default, or otherwise. Clients are the same.

use bellwire::{Backend, ClientConfig, RunDir, Server, ServerConfig};

use crate::Outcome;
use crate::load::{Load, Work};

/// Such a configuration.
pub(in crate::contender) trait Setup: 'static {
    const NAME: &'static str;

    fn settings() -> String;

    fn refuses(load: &Load) -> Option<&'static str>;

    fn config() -> ServerConfig {
        ServerConfig::default()
    }
}

/// The library's.
pub(in crate::contender) struct Defaults;

impl Setup for Defaults {
    const NAME: &'static str = "bellwire";

    fn settings() -> String {
        let spin = ClientConfig::default().spin.max;
        format!(
            "the library's defaults: handlers on the reactor's thread, lanes of 16 KiB that grow, futex for the client \
             and eventfd for the server, spin of at most {} µs; a pipeline's lane grows at once (Backpressure::Grow)",
            spin.as_micros()
        )
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Events { size } if size != 64 && size != 1024 => {
                Some("has events of 64 and 1024 bytes here")
            }
            _ => None,
        }
    }
}

/// With workers, as handlers that may block need it: each call goes from the reactor to another thread and back.
pub(in crate::contender) struct Workers;

impl Setup for Workers {
    const NAME: &'static str = "bellwire-workers";

    fn settings() -> String {
        "as bellwire; handlers run on 2 workers".to_owned()
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Calls { depth: 1, .. } => None,
            Work::Calls { .. } => Some("workers answer in any order"),
            _ => Some("as bellwire: only calls differ"),
        }
    }

    fn config() -> ServerConfig {
        ServerConfig::default().workers(2)
    }
}

/// The reactor waits with io_uring instead of epoll.
pub(in crate::contender) struct Uring;

impl Setup for Uring {
    const NAME: &'static str = "bellwire-uring";

    fn settings() -> String {
        "as bellwire; the server waits with io_uring".to_owned()
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Sessions { .. } => unavailable().unwrap_or(Some("no server can be started here")),
            _ => Some("as bellwire: it matters to a server of many sessions"),
        }
    }

    fn config() -> ServerConfig {
        ServerConfig::default().backend(Backend::IoUring)
    }
}

/// Why a server would wait with epoll here.
fn unavailable() -> Outcome<Option<&'static str>> {
    let dir = tempfile::tempdir()?;
    let server = Server::builder_with_config(&RunDir::new(dir.path()), Uring::config()).start()?;
    Ok(server.backend().why_not)
}
