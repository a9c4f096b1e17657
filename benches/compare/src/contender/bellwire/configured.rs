//! Servers that are configured otherwise than by default. Their clients are those of [`Bellwire`].

use std::marker::PhantomData;

use bellwire::{Backend, RunDir, Server, ServerConfig};

use super::{Bellwire, serve_with};
use crate::Outcome;
use crate::contender::{self, About, Contender};
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::Measure;

/// This project, with another configuration of the server.
pub(in crate::contender) struct Configured<S>(PhantomData<S>);

/// Such a configuration.
pub(in crate::contender) trait Setup: 'static {
    const NAME: &'static str;
    const SETTINGS: &'static str;

    fn refuses(load: &Load) -> Option<&'static str>;

    fn config() -> ServerConfig;
}

impl<S: Setup> Contender for Configured<S> {
    const NAME: &'static str = S::NAME;

    fn about() -> About {
        About::of_this_project(format!("as bellwire; {}", S::SETTINGS))
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        S::refuses(load)
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl contender::Server> {
        serve_with(S::config(), case, handler)
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        Bellwire::measure(case, measure)
    }
}

/// With workers, as handlers that may block need it: each call goes from the reactor to another thread and back.
pub(in crate::contender) struct Workers;

impl Setup for Workers {
    const NAME: &'static str = "bellwire-workers";
    const SETTINGS: &'static str = "handlers run on 2 workers";

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
    const SETTINGS: &'static str = "the server waits with io_uring";

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
    let server = Server::builder_with(&RunDir::new(dir.path()), Uring::config()).start()?;
    Ok(server.backend().why_not)
}
