//! The task that waits for a session's provider.

use std::pin::{Pin, pin};
use std::sync::Weak;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bellwire_core::drive::SpinPoll;
use tokio::task::yield_now;
use tokio::time::Sleep;

use super::state::{Shared, Step};
use crate::Service;
use crate::transport::ready::Ready;

/// Turns before the driver yields to other tasks.
const TURNS: usize = 16;
/// How soon the driver retries when this system lacks a resource to continue reading.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits for the provider until the last handle of the session is dropped, or the session is over.
pub(super) struct Driver<S: Service> {
    shared: Weak<Shared<S>>,
    ready: Ready,
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether the provider has rung or gone since the last turn.
    rung: bool,
    /// The tasks to wake once the lock is released.
    woken: Vec<Waker>,
}

impl<S: Service> Driver<S> {
    pub(super) fn new(shared: Weak<Shared<S>>, ready: Ready) -> Self {
        // The provider may have gone before it was watched.
        Self { shared, ready, pause: None, rung: true, woken: Vec::new() }
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(context).is_pending() {
                // Requests go on.
                if let Some(shared) = self.shared.upgrade() {
                    shared.lock().publish();
                }
                return Poll::Pending;
            }
            self.pause = None;
        }
        let Some(shared) = self.shared.upgrade() else { return Poll::Ready(Step::Over) };
        let rung = std::mem::take(&mut self.rung);
        let step = shared.lock().step(context.waker(), rung, &mut self.woken);
        self.woken.drain(..).for_each(Waker::wake);
        Poll::Ready(match step {
            Step::Poll => poll(&shared),
            step => step,
        })
    }
}

/// Polls for answers for a moment. Tasks may send in between.
fn poll<S: Service>(shared: &Shared<S>) -> Step {
    loop {
        let found = shared.lock().poll_once();
        match found {
            SpinPoll::Again => std::hint::spin_loop(),
            SpinPoll::Moved | SpinPoll::RanOut => return Step::Again,
            SpinPoll::Later => return Step::Yield,
        }
    }
}

impl<S: Service> Future for Driver<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        for _ in 0..TURNS {
            match ready!(driver.turn(context)) {
                Step::Again | Step::Poll => {}
                Step::Yield => {
                    // Its waker is woken when this thread has nothing else to run and has polled for events.
                    let _ = pin!(yield_now()).poll(context);
                    return Poll::Pending;
                }
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
            shared.lock().abort_all(&mut self.woken);
        }
        self.woken.drain(..).for_each(Waker::wake);
    }
}
