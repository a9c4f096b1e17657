use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bellwire_core::Instant;
use tokio::time::{Sleep, sleep_until};

use super::client::at;
use crate::client::arrival::unwatched;
use crate::transport::ready::Ready;
use crate::{CallError, Client, Service};

/// Wakes a task that waits for a provider to answer, to publish or to come up: by the descriptor of its session, or of an absent provider, or at a
/// time.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    /// Of a session, kept for as long as that is there; or of an absent provider.
    ready: Option<(Option<u64>, Ready)>,
    due: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Wakeup {
    /// Becomes ready when the client's descriptor is readable, or at `due`.
    pub(super) fn poll<S: Service>(
        &mut self,
        client: &mut Client<S>,
        due: Option<Instant>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), CallError>> {
        let polled = self.poll_io(client, due, context);
        polled.map_err(unwatched(client.service()))
    }

    fn poll_io<S: Service>(
        &mut self,
        client: &mut Client<S>,
        due: Option<Instant>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let session = client.watched_session();
        let ready = match self.ready.take() {
            Some((of, ready)) if of.is_some() && of == session => ready,
            _ => Ready::watch(client.pollable()?)?,
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
