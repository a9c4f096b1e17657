use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bellwire_core::Instant;
use tokio::time::{Sleep, sleep_until};

use super::client::at;
use crate::transport::object::Borrowed;
use crate::transport::ready::Ready;
use crate::{CallError, ErrorKind, ServiceName};

/// Wakes a task that waits for what a provider publishes: by the descriptor of its session, or of an absent provider, or at a
/// time.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    /// Of a session, kept for as long as that is there; or of an absent provider.
    ready: Option<(Option<u64>, Ready)>,
    due: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Wakeup {
    /// Becomes ready when `object`, of this session or of none, is readable, or at `due`.
    pub(super) fn poll<'a>(
        &mut self,
        session: Option<u64>,
        object: impl FnOnce() -> io::Result<Borrowed<'a>>,
        due: Option<Instant>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let ready = match self.ready.take() {
            Some((of, ready)) if of.is_some() && of == session => ready,
            _ => Ready::watch(object()?)?,
        };
        let (_, ready) = self.ready.insert((session, ready));
        if let Poll::Ready(rung) = ready.poll_rung(context) {
            return Poll::Ready(rung);
        }
        let Some(due) = due else {
            self.due = None;
            return Poll::Pending;
        };
        if self.due.as_ref().is_none_or(|(of, _)| *of != due) {
            self.due = Some((due, Box::pin(sleep_until(at(due)))));
        }
        match &mut self.due {
            Some((_, sleep)) => sleep.as_mut().poll(context).map(Ok),
            None => Poll::Pending,
        }
    }
}

/// Describes why a task cannot wait.
pub(super) fn unwatched(service: ServiceName, error: &io::Error) -> CallError {
    let reason = format!("cannot wait for the provider in this runtime: {error}").into();
    CallError::Connect { service, kind: ErrorKind::System, reason }
}
