//! What the server did not put up with, or lacked: on stderr when it happens.

use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use bellwire::ServerBuilder;

use super::tell;
use crate::out::WARN;

/// As many wait to be printed, should nobody read stderr; what comes then is counted by `stat` alone.
const MOST_WAITING: usize = 256;

/// Prints incidents with their time, on a thread of its own: whoever reads stderr slowly does not hold up the server.
pub(super) struct Incidents(Option<JoinHandle<()>>);

impl Incidents {
    pub(super) fn print(builder: &mut ServerBuilder) -> Self {
        let (told, incidents) = sync_channel(MOST_WAITING);
        builder.on_incident(move |incident| drop(told.try_send(incident.clone())));
        let print = move || {
            for incident in incidents {
                let at = humantime::format_rfc3339_millis(incident.at);
                tell(format_args!("{at} {WARN}{incident}{WARN:#}"));
            }
        };
        let thread = thread::Builder::new().name("bellwire-incidents".into());
        Self(thread.spawn(print).ok())
    }

    /// Prints what is left, after the server has stopped.
    pub(super) fn finish(self) {
        // It ends with the server, which tells it.
        let _ = self.0.map(JoinHandle::join);
    }
}
