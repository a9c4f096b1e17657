//! The task that waits for a session's provider.

use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Sleep;

use super::state::{Shared, Step};
use crate::Service;
use crate::transport::ready::Ready;

/// Turns before other tasks have theirs.
const TURNS: usize = 16;
/// How soon it looks again when this system lacks what it takes to read on.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits for the provider, until nobody holds the session any more, or it is over.
pub(super) struct Driver<S: Service> {
    shared: Weak<Shared<S>>,
    ready: Ready,
    pause: Option<Pin<Box<Sleep>>>,
    /// The provider has rung, or gone, since the last turn.
    rung: bool,
    /// Who is to be woken, when the lock is given back.
    woken: Vec<Waker>,
}

impl<S: Service> Driver<S> {
    pub(super) fn new(shared: Weak<Shared<S>>, ready: Ready) -> Self {
        // It may have gone before anybody watched.
        Self { shared, ready, pause: None, rung: true, woken: Vec::new() }
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        let Some(shared) = self.shared.upgrade() else { return Poll::Ready(Step::Over) };
        let rung = std::mem::take(&mut self.rung);
        let step = shared.lock().step(context.waker(), rung, &mut self.woken);
        self.woken.drain(..).for_each(Waker::wake);
        Poll::Ready(step)
    }
}

impl<S: Service> Future for Driver<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        for _ in 0..TURNS {
            match ready!(driver.turn(context)) {
                Step::Again => {}
                Step::Over => return Poll::Ready(()),
                Step::Pause => driver.pause = Some(Box::pin(tokio::time::sleep(PAUSE))),
                Step::Sleep => match driver.ready.poll_rung(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) => driver.rung = true,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                },
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: Service> Drop for Driver<S> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().desert(&mut self.woken);
        }
        self.woken.drain(..).for_each(Waker::wake);
    }
}
