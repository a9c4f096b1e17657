use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bellwire_core::call::Ticket;

use super::driver::Driver;
use super::state::{Of, Shared, State};
use crate::session::{ArrivedBatch, Packed};
use crate::transport::ready::Ready;
use crate::{Backpressure, CallError, Executed, Service, Session, SessionStats};

/// One session with a provider of `S`, for any number of concurrent tasks: each clone is the same session. Answers
/// arrive in the order in which the provider sends them. The session ends with its last clone.
///
/// The future of a call may be dropped at any time, which cancels it: see [the module](crate::asynchronous).
///
/// [`Backpressure`] decides what happens to a call when the lane is full. Calls that wait for room queue up. No
/// request is sent in parts here: even with [`Backpressure::Wait`], a request that is too large for the lane makes it
/// grow, or is attached.
///
/// It costs one task, and one descriptor more than a [`Session`] with an eventfd. An idle one wakes no thread.
pub struct AsyncSession<S: Service> {
    shared: Arc<Shared<S>>,
    backpressure: Backpressure,
    timeout: Duration,
}

/// A call or a batch that was sent.
struct Answer<'a, S: Service, R> {
    shared: &'a Shared<S>,
    of: Of<S, R>,
    ticket: Ticket,
    is_answered: bool,
}

/// A place in the queue of tasks that wait for room.
struct Place<'a, S: Service>(&'a Shared<S>);

/// Counts a call that is dropped before it is sent.
struct Unsent<'a, S: Service>(&'a Shared<S>);

impl<S: Service> AsyncSession<S>
where
    S::Response: Send,
{
    /// Starts the driver of a session that has a descriptor to poll.
    pub(super) fn start(session: Session<S>, timeout: Duration) -> io::Result<Self> {
        let rung = session.as_fd().ok_or_else(|| io::Error::other("there is nothing to poll"))?;
        let ready = Ready::watch(rung)?;
        let backpressure = session.chosen_when_full();
        let shared = Arc::new(Shared::new(session));
        let driver = tokio::spawn(Driver::new(Arc::downgrade(&shared), ready));
        let _ = shared.driver.set(driver.abort_handle());
        Ok(Self { shared, backpressure, timeout })
    }

    /// Calls and waits for the answer, at most for the configured time.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Cancelled`] when the runtime in which the session was opened has ended. The
    /// session stays usable unless it is over: see [`AsyncSession::is_open`].
    pub async fn call(&self, request: &S::Request) -> Result<S::Response, CallError> {
        self.call_within(request, self.timeout).await
    }

    /// Calls and waits for the answer, at most for `timeout`.
    ///
    /// # Errors
    /// Like [`AsyncSession::call`].
    pub async fn call_within(
        &self,
        request: &S::Request,
        timeout: Duration,
    ) -> Result<S::Response, CallError> {
        let mut executed = Executed::No;
        let answer = tokio::time::timeout(timeout, self.exchange(request, &mut executed)).await;
        answer.unwrap_or(Err(CallError::Deadline { executed }))
    }

    /// Calls with many requests in one message and waits for the answers, at most for the configured time: one per
    /// request, in order. The batch is assembled before the first wait, without delaying other tasks.
    ///
    /// A request for which the message has no room is left out and fails alone with [`CallError::TooLarge`]; a
    /// request that the handler fails does so with its own reason. A batch is sent as one record, never in parts: it
    /// has as much room as the largest lane that both ends allow, by default about 32 MiB.
    ///
    /// A batch is never split: send a list longer than [`AsyncSession::max_batch`] in chunks of that size.
    ///
    /// Dropping the future cancels the whole batch, as with a call.
    ///
    /// ```no_run
    /// # use bellwire::{AsyncClient, CallError, RunDir, Service};
    /// # struct Increment;
    /// # impl Service for Increment {
    /// #     const NAME: &'static str = "increment";
    /// #     type Request = u64;
    /// #     type Response = u64;
    /// # }
    /// # async fn increment(client: AsyncClient<Increment>) -> Result<(), CallError> {
    /// let numbers = [1, 41];
    /// for (number, answer) in numbers.iter().zip(client.connect().await?.call_batch(&numbers).await?) {
    ///     println!("{number} and 1 are {}", answer?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CallError`] of the whole batch, like [`AsyncSession::call`]; [`CallError::TooManyItems`] before anything is
    /// sent.
    pub async fn call_batch<'r>(
        &self,
        requests: impl IntoIterator<Item = &'r S::Request>,
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError>
    where
        S::Request: 'r,
    {
        self.call_batch_within(requests, self.timeout).await
    }

    /// Calls like [`AsyncSession::call_batch`], but waits at most for `timeout`.
    ///
    /// # Errors
    /// Like [`AsyncSession::call_batch`].
    pub async fn call_batch_within<'r>(
        &self,
        requests: impl IntoIterator<Item = &'r S::Request>,
        timeout: Duration,
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError>
    where
        S::Request: 'r,
    {
        let mut executed = Executed::No;
        let answers = self.exchange_batch(requests, &mut executed);
        let answers = tokio::time::timeout(timeout, answers).await;
        answers.unwrap_or(Err(CallError::Deadline { executed }))
    }

    /// Returns the same session with a different [`Backpressure`].
    #[must_use]
    pub fn backpressure(&self, backpressure: Backpressure) -> Self {
        Self { backpressure, ..self.clone() }
    }

    /// Returns whether another call can succeed: `false` once the provider is gone or violated the protocol, or the
    /// runtime has ended.
    pub fn is_open(&self) -> bool {
        !self.shared.lock().is_over()
    }

    /// Returns the counters of this end.
    pub fn stats(&self) -> SessionStats {
        self.shared.lock().session.stats()
    }

    /// Returns the most items that the provider accepts in one batch, like [`Session::max_batch`].
    pub fn max_batch(&self) -> usize {
        self.shared.lock().session.max_batch()
    }

    /// Returns the provider's process id as reported by the kernel.
    pub fn provider_pid(&self) -> Option<u32> {
        self.shared.lock().session.provider_pid()
    }

    /// Returns whether both are the same session.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns whether the provider has taken nothing for longer than configured.
    pub(super) fn is_left_unread(&self) -> bool {
        self.shared.lock().session.is_left_unread()
    }

    /// Calls without a deadline. Sets `executed` to `Maybe` when the request is sent.
    pub(super) async fn exchange(
        &self,
        request: &S::Request,
        executed: &mut Executed,
    ) -> Result<S::Response, CallError> {
        let ticket = self.send(|state| state.send(request, self.backpressure)).await?;
        *executed = Executed::Maybe;
        let of: Of<S, S::Response> = |state| &mut state.calls;
        Answer { shared: &self.shared, of, ticket, is_answered: false }.await
    }

    /// Calls with a batch without a deadline. Sets `executed` to `Maybe` when it is sent.
    pub(super) async fn exchange_batch<'r>(
        &self,
        requests: impl IntoIterator<Item = &'r S::Request>,
        executed: &mut Executed,
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError>
    where
        S::Request: 'r,
    {
        let (builder, room) = self.shared.lock().session.packing();
        let mut packed = Packed::new::<S>(builder, room, requests);
        let sent = self.send(|state| state.send_batch(&mut packed, self.backpressure)).await;
        self.shared.lock().session.unpack(packed);
        let ticket = sent?;
        *executed = Executed::Maybe;
        let of: Of<S, ArrivedBatch> = |state| &mut state.batches;
        let arrived = Answer { shared: &self.shared, of, ticket, is_answered: false }.await?;
        arrived.open::<S>()
    }

    /// Sends something, waiting for room if [`Backpressure`] says so, and counts what was not sent.
    async fn send(
        &self,
        send: impl FnMut(&mut State<S>) -> Result<Ticket, CallError>,
    ) -> Result<Ticket, CallError> {
        let unsent = Unsent(&self.shared);
        let sent = self.send_in_line(send).await;
        // The call has ended, and its outcome is known.
        std::mem::forget(unsent);
        sent.inspect_err(|error| self.shared.lock().session.not_sent(error))
    }

    async fn send_in_line(
        &self,
        mut send: impl FnMut(&mut State<S>) -> Result<Ticket, CallError>,
    ) -> Result<Ticket, CallError> {
        let place = {
            let mut state = self.shared.lock();
            let waits = self.backpressure != Backpressure::Fail;
            // Do not overtake waiting tasks, unless growing makes room.
            if state.in_line == 0 || self.backpressure == Backpressure::Grow {
                match send(&mut state) {
                    Err(CallError::WouldBlock) if waits => {}
                    sent => return sent,
                }
            } else if !waits {
                return Err(CallError::WouldBlock);
            }
            state.in_line += 1;
            Place(&self.shared)
        };
        let first = self.shared.line.lock().await;
        let sent = poll_fn(|context| {
            let mut state = self.shared.lock();
            match send(&mut state) {
                Err(CallError::WouldBlock) => {
                    state.wait_for_room(context.waker());
                    Poll::Pending
                }
                sent => Poll::Ready(sent),
            }
        })
        .await;
        drop((first, place));
        sent
    }
}

impl<S: Service> Drop for Unsent<'_, S> {
    fn drop(&mut self) {
        self.0.lock().session.not_sent(&CallError::Cancelled { executed: Executed::No });
    }
}

impl<S: Service> Clone for AsyncSession<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..*self }
    }
}

impl<S: Service> std::fmt::Debug for AsyncSession<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncSession")
            .field("backpressure", &self.backpressure)
            .finish_non_exhaustive()
    }
}

impl<S: Service, R> Future for Answer<'_, S, R> {
    type Output = Result<R, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.shared.lock().answer(self.of, self.ticket, context.waker());
        match answer {
            Some(answer) => {
                self.is_answered = true;
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        }
    }
}

impl<S: Service, R> Drop for Answer<'_, S, R> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shared.lock().forget(self.of, self.ticket);
        }
    }
}

impl<S: Service> Drop for Place<'_, S> {
    fn drop(&mut self) {
        self.0.lock().in_line -= 1;
    }
}
