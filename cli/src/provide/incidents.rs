//! Reports protocol violations and shortages of the server on stderr as they happen.

use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use bellwire::ServerBuilder;

use super::log;
use crate::out::WARN;

/// How many incidents wait to be printed if nobody reads stderr; further ones are only counted in `stat`.
const MAX_WAITING: usize = 256;

/// Prints incidents with their time, on a thread of its own: a slow reader of stderr does not hold up the server.
pub(super) struct Incidents(Option<JoinHandle<()>>);

impl Incidents {
    pub(super) fn print(builder: &mut ServerBuilder) -> Self {
        let (sender, incidents) = sync_channel(MAX_WAITING);
        builder.on_incident(move |incident| drop(sender.try_send(incident.clone())));
        let print = move || {
            for incident in incidents {
                let at = humantime::format_rfc3339_millis(incident.at);
                log(format_args!("{at} {WARN}{incident}{WARN:#}"));
            }
        };
        let thread = thread::Builder::new().name("bellwire-incidents".into());
        Self(thread.spawn(print).ok())
    }

    /// Prints the remaining incidents after the server has stopped.
    pub(super) fn finish(self) {
        // The thread ends when the server, which feeds it, does.
        let _ = self.0.map(JoinHandle::join);
    }
}
