use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bellwire::{HandlerError, Publisher, RunDir, Server};

use super::Survivor;
use crate::channel::{Command, Response};
use crate::error::{Error, Result};
use crate::service::{
    CallSpec, EVENTS, NumberedCall, NumberedEvent, PassedSnapshot, RING, event, server_config,
};

/// The server of all client victims, one after the other.
pub(super) struct Provider {
    server: Server,
    publisher: Publisher<PassedSnapshot>,
    log: Arc<HandlerLog>,
}

/// What the handler has received, and whether it holds a request.
#[derive(Default)]
struct HandlerLog {
    state: Mutex<LogState>,
    release: Condvar,
}

#[derive(Default)]
struct LogState {
    ran: Vec<u64>,
    /// How many requests were corrupt.
    corrupt: u64,
    /// A handler that holds a request may continue.
    released: bool,
}

impl Provider {
    pub(super) fn new(run_dir: &RunDir) -> Result<Self> {
        let log = Arc::<HandlerLog>::default();
        let mut builder = Server::builder_with_config(run_dir, server_config());
        let handler_log = Arc::clone(&log);
        builder
            .serve::<NumberedCall>(move |_, request| handler_log.handle(&request))
            .map_err(no_server)?;
        let publisher = builder.publish::<PassedSnapshot>().map_err(no_server)?;
        publisher.publish(&PassedSnapshot::bytes(1)).map_err(no_server)?;
        let events: Vec<_> = (1..=EVENTS).map(event).collect();
        let event_publisher = builder.events::<NumberedEvent>(RING).map_err(no_server)?;
        event_publisher.send_all(&events).map_err(no_server)?;
        let server = builder.start().map_err(no_server)?;
        Ok(Self { server, publisher, log })
    }
}

fn no_server(error: impl std::fmt::Display) -> Error {
    Error::Usage(format!("no server: {error}"))
}

impl HandlerLog {
    fn handle(&self, request: &[u8]) -> std::result::Result<Vec<u8>, HandlerError> {
        let mut state = self.lock();
        let Some(spec) = CallSpec::read(request) else {
            state.corrupt += 1;
            return Err(HandlerError::new("the request is corrupt"));
        };
        state.ran.push(spec.number);
        if spec.hold {
            let released = self.release.wait_while(state, |state| !state.released);
            released.unwrap_or_else(PoisonError::into_inner).released = false;
        }
        Ok(spec.respond())
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Survivor for Provider {
    fn execute(&mut self, command: &Command) -> Response {
        match *command {
            Command::Publish { number } => {
                match self.publisher.publish(&PassedSnapshot::bytes(number)) {
                    Ok(_) => Response::Done,
                    Err(error) => Response::Failed(error.to_string()),
                }
            }
            Command::Release => {
                self.log.lock().released = true;
                self.log.release.notify_all();
                Response::Done
            }
            _ => Response::Failed(format!("the server survivor does not support {command:?}")),
        }
    }

    /// Without a client: no session, and counters that reconcile.
    fn problem(&mut self) -> String {
        let stats = self.server.stats();
        let corrupt = self.log.lock().corrupt;
        if stats.sessions != 0 {
            return format!("its server has {} sessions and no client", stats.sessions);
        }
        if stats.poisoned != 0 {
            return format!("{} sessions of well-behaved clients were poisoned", stats.poisoned);
        }
        if corrupt != 0 {
            return format!("{corrupt} requests arrived that no client sent in this form");
        }
        let ended = stats.answered + stats.refused + stats.lost;
        if stats.accepted != ended {
            return format!("the counters do not reconcile: {stats:?}");
        }
        String::new()
    }

    fn take_ran(&mut self) -> Vec<u64> {
        let mut state = self.log.lock();
        // The request that was to be held may never have arrived.
        state.released = false;
        std::mem::take(&mut state.ran)
    }
}
