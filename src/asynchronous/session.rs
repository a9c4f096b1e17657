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
use crate::{CallError, Executed, Service, Session, SessionStats, WhenFull};

/// One session with a provider of `S`, for any number of tasks at once: each clone is the same session. Answers come in
/// whatever order the provider gives them. The session ends with its last clone.
///
/// The future of a call may be dropped at any time, which cancels it: see [the module](crate::asynchronous).
///
/// When the lane is full, [`WhenFull`] says what becomes of a call. Those that wait for room stand in one line. No request
/// goes in parts here: with [`WhenFull::Wait`], too, one that the lane is too small for makes it grow, or travels in a
/// memfd of its own.
///
/// It costs one task, and one descriptor more than a [`Session`] that is rung by an eventfd. An idle one wakes nobody.
pub struct AsyncSession<S: Service> {
    shared: Arc<Shared<S>>,
    when_full: WhenFull,
    timeout: Duration,
}

/// A call or a batch that was sent.
struct Answer<'a, S: Service, R> {
    shared: &'a Shared<S>,
    of: Of<S, R>,
    ticket: Ticket,
    is_answered: bool,
}

/// A place in the line of those that wait for room.
struct Place<'a, S: Service>(&'a Shared<S>);

/// Something that may end before it is sent, by being dropped.
struct Unsent<'a, S: Service>(&'a Shared<S>);

impl<S: Service> AsyncSession<S>
where
    S::Response: Send,
{
    /// Starts the driver of a session that has a descriptor to poll.
    pub(super) fn start(session: Session<S>, timeout: Duration) -> io::Result<Self> {
        let rung = session.as_fd().ok_or_else(|| io::Error::other("there is nothing to poll"))?;
        let ready = Ready::watch(rung)?;
        let when_full = session.chosen_when_full();
        let shared = Arc::new(Shared::new(session));
        let driver = tokio::spawn(Driver::new(Arc::downgrade(&shared), ready));
        let _ = shared.driver.set(driver.abort_handle());
        Ok(Self { shared, when_full, timeout })
    }

    /// Calls and waits for the answer, at most for the configured time.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Cancelled`] when the runtime that the session was opened in has ended. The session
    /// stays usable unless it is over: see [`AsyncSession::is_open`].
    pub async fn call(&self, request: &S::Request) -> Result<S::Response, CallError> {
        self.call_within(request, self.timeout).await
    }

    /// Calls and waits for the answer, at most for `timeout`.
    ///
    /// # Errors
    /// As [`AsyncSession::call`].
    pub async fn call_within(
        &self,
        request: &S::Request,
        timeout: Duration,
    ) -> Result<S::Response, CallError> {
        let mut executed = Executed::No;
        let answer = tokio::time::timeout(timeout, self.exchange(request, &mut executed)).await;
        answer.unwrap_or(Err(CallError::Deadline { executed }))
    }

    /// Calls with many requests in one message and waits for the answers, at most for the configured time: one for each
    /// request, in their order. They are put together before the first wait, and where no other task is held up.
    ///
    /// A request that the message has no room for is left out and fails alone, as [`CallError::TooLarge`]; so does,
    /// with its own reason, one that the handler fails. A batch goes as one record, never in parts: it has room for what
    /// the largest lane holds that both ends allow, by default some 32 MiB.
    ///
    /// A batch is never split: a longer list than [`AsyncSession::max_batch`] goes in chunks of so many.
    ///
    /// Dropping the future cancels the whole batch, as it does with a call.
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
    /// [`CallError`] of the whole batch, as [`AsyncSession::call`]; [`CallError::TooManyItems`] before anything is sent.
    pub async fn call_batch<'r>(
        &self,
        requests: impl IntoIterator<Item = &'r S::Request>,
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError>
    where
        S::Request: 'r,
    {
        self.call_batch_within(requests, self.timeout).await
    }

    /// The same, with another time to wait at most.
    ///
    /// # Errors
    /// As [`AsyncSession::call_batch`].
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

    /// The same session, with another choice of what to do when the lane is full.
    #[must_use]
    pub fn when_full(&self, when_full: WhenFull) -> Self {
        Self { when_full, ..self.clone() }
    }

    /// Whether another call can succeed: `false` once the provider is gone or has lied, or the runtime has ended.
    pub fn is_open(&self) -> bool {
        !self.shared.lock().is_over()
    }

    /// Counters of this end.
    pub fn stats(&self) -> SessionStats {
        self.shared.lock().session.stats()
    }

    /// The most items that the provider takes in one batch, as [`Session::max_batch`] has it.
    pub fn max_batch(&self) -> usize {
        self.shared.lock().session.max_batch()
    }

    /// The provider's process, as the kernel tells.
    pub fn provider_pid(&self) -> Option<u32> {
        self.shared.lock().session.provider_pid()
    }

    /// Whether both are the same session.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether the provider has taken nothing for longer than configured.
    pub(super) fn is_left_unread(&self) -> bool {
        self.shared.lock().session.is_left_unread()
    }

    /// Calls, without end. `executed` becomes `Maybe` when the request is sent.
    pub(super) async fn exchange(
        &self,
        request: &S::Request,
        executed: &mut Executed,
    ) -> Result<S::Response, CallError> {
        let ticket = self.send(|state| state.send(request, self.when_full)).await?;
        *executed = Executed::Maybe;
        let of: Of<S, S::Response> = |state| &mut state.calls;
        Answer { shared: &self.shared, of, ticket, is_answered: false }.await
    }

    /// Calls with a batch, without end. `executed` becomes `Maybe` when it is sent.
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
        let sent = self.send(|state| state.send_batch(&mut packed, self.when_full)).await;
        self.shared.lock().session.unpack(packed);
        let ticket = sent?;
        *executed = Executed::Maybe;
        let of: Of<S, ArrivedBatch> = |state| &mut state.batches;
        let arrived = Answer { shared: &self.shared, of, ticket, is_answered: false }.await?;
        arrived.open::<S>()
    }

    /// Sends something, waiting for room if that is wished, and counts what was not sent.
    async fn send(
        &self,
        send: impl FnMut(&mut State<S>) -> Result<Ticket, CallError>,
    ) -> Result<Ticket, CallError> {
        let unsent = Unsent(&self.shared);
        let sent = self.send_in_line(send).await;
        // It has come to an end, and what became of it is known.
        std::mem::forget(unsent);
        sent.inspect_err(|error| self.shared.lock().session.not_sent(error))
    }

    async fn send_in_line(
        &self,
        mut send: impl FnMut(&mut State<S>) -> Result<Ticket, CallError>,
    ) -> Result<Ticket, CallError> {
        let place = {
            let mut state = self.shared.lock();
            let waits = self.when_full != WhenFull::Fail;
            // Nobody overtakes who waits, unless he makes room by himself.
            if state.in_line == 0 || self.when_full == WhenFull::Grow {
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
        f.debug_struct("AsyncSession").field("when_full", &self.when_full).finish_non_exhaustive()
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
