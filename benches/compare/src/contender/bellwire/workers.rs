//! With workers: each call goes from the reactor to another thread and back.

use bellwire::ServerConfig;

use super::{Bellwire, Running, serve_with};
use crate::Outcome;
use crate::contender::{About, Contender};
use crate::handler::Handler;
use crate::load::{Load, Place, Work};
use crate::measure::Measure;

const WORKERS: usize = 2;

/// This project, as handlers that may block need it.
pub(in crate::contender) struct Workers;

impl Contender for Workers {
    const NAME: &'static str = "bellwire-workers";
    type Server = Running;

    fn about() -> About {
        let About { version, .. } = Bellwire::about();
        About { version, settings: format!("as bellwire; handlers run on {WORKERS} workers") }
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Calls { depth: 1, .. } => None,
            Work::Calls { .. } => Some("workers answer in any order"),
            _ => Some("as bellwire: only calls differ"),
        }
    }

    fn serve(place: &Place, _: &Load, handler: Handler) -> Outcome<Running> {
        serve_with(ServerConfig::default().workers(WORKERS), place, handler)
    }

    fn measure(place: &Place, load: &Load, measure: Measure<'_>) -> Outcome<()> {
        Bellwire::measure(place, load, measure)
    }
}
