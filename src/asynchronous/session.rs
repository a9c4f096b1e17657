use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bellwire_core::call::Ticket;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::driver::Driver;
use super::state::{Kind, Polled, Shared, State};
use crate::session::Packed;
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
///
/// ```
/// use bellwire::AsyncClient;
/// # use bellwire::{RunDir, Server, Service};
/// # struct Increment;
/// # impl Service for Increment {
/// #     const NAME: &'static str = "increment";
/// #     type Request = u64;
/// #     type Response = u64;
/// # }
/// # #[cfg(windows)]
/// # fn main() {}
/// # #[cfg(not(windows))]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let run_dir = RunDir::new(dir.path());
/// # let mut builder = Server::builder(&run_dir);
/// # builder.serve::<Increment>(|_, number| Ok(number + 1))?;
/// # let server = builder.start()?;
/// let session = AsyncClient::<Increment>::new(&run_dir).connect().await?;
/// let (one, two) = tokio::join!(session.call(&1), session.call(&2));
/// assert_eq!((one?, two?), (2, 3));
/// # Ok(())
/// # }
/// ```
pub struct AsyncSession<S: Service> {
    shared: Arc<Shared<S>>,
    backpressure: Backpressure,
    timeout: Duration,
}

/// An [`AsyncSession`] with the bytes of its messages, for callers that already have them: see [`AsyncSession::raw`].
#[derive(Debug)]
pub struct RawAsyncSession<'a, S: Service>(&'a AsyncSession<S>);

impl<S: Service> RawAsyncSession<'_, S>
where
    S::Response: Send,
{
    /// Posts the bytes of a request like [`AsyncSession::post`]. They are not checked here: see
    /// [`RawSession::post`](crate::RawSession::post).
    ///
    /// # Errors
    /// Like [`AsyncSession::post`].
    pub async fn post(self, request: &[u8]) -> Result<(), CallError> {
        self.0.post_by(|session| session.post_bytes_now(request)).await
    }
}

/// A call or a batch that was sent.
struct Answer<'a, S: Service, R> {
    shared: &'a Shared<S>,
    kind: &'a Kind<S, R>,
    ticket: Ticket,
    limit: Limit,
    /// Whether sending it was the first poll.
    was_polled: bool,
    /// Set when the wait is no longer a short one.
    timer: Option<Pin<Box<Sleep>>>,
    is_answered: bool,
}

/// How long to wait, counted from when the clock is first read: most calls end without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    span: Duration,
    until: Option<Instant>,
}

impl Limit {
    pub(super) fn within(span: Duration) -> Self {
        Self { span, until: None }
    }

    pub(super) fn until(until: Instant) -> Self {
        Self { span: Duration::ZERO, until: Some(until) }
    }

    pub(super) fn resolve(&mut self) -> Instant {
        // As tokio does for a span that no clock reaches.
        let far = Duration::from_secs(86400 * 365 * 30);
        let span = self.span;
        *self.until.get_or_insert_with(|| {
            let now = Instant::now();
            now.checked_add(span).unwrap_or(now + far)
        })
    }
}

/// Runs when it is dropped: where a future has ended, or is dropped before.
struct OnDrop<F: FnMut()>(F);

impl<S: Service> AsyncSession<S>
where
    S::Response: Send,
{
    /// Starts the driver of a session that has a descriptor to poll.
    pub(super) fn start(session: Session<S>, timeout: Duration) -> io::Result<Self> {
        let ready = Ready::watch(session.pollable()?)?;
        let backpressure = session.backpressure;
        let shared = Arc::new(Shared::new(session, &Handle::current()));
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
        self.exchange(request, Limit::within(timeout)).await
    }

    /// Calls with many requests in one message and waits for the answers, at most for the configured time: one per
    /// request, in order. The batch is assembled before the first wait, without delaying other tasks.
    ///
    /// A request for which the message has no room is left out and fails alone with [`CallError::TooLarge`]; a
    /// request that the handler fails does so with its own reason. The handler runs for every request that was sent, also
    /// where its answer no longer fits the message: that one fails alone, as [`Status::TooLarge`](crate::Status::TooLarge). A batch is sent as one record, never in parts: it
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
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError> {
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
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError> {
        self.exchange_batch(requests, Limit::within(timeout)).await
    }

    /// Sends a one-way request like [`Session::post`]: the provider's handler runs, and no answer is sent. Waits for nothing
    /// but room in the lane, as a call does, at most for the configured time.
    ///
    /// Dropping the future while it waits for room posts nothing.
    ///
    /// ```no_run
    /// # use bellwire::{AsyncClient, CallError, RunDir, Service};
    /// # use std::time::Duration;
    /// # struct Record;
    /// # impl Service for Record {
    /// #     const NAME: &'static str = "record";
    /// #     type Request = u64;
    /// #     type Response = ();
    /// # }
    /// # async fn record(client: AsyncClient<Record>) -> Result<(), CallError> {
    /// let session = client.connect().await?;
    /// for reading in 0..1000 {
    ///     session.post(&reading).await?;
    /// }
    /// session.flush(Duration::from_secs(1)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Like [`Session::post`]; [`CallError::Cancelled`] when the runtime in which the session was opened has ended. No
    /// handler runs for the request.
    pub async fn post(&self, request: &S::Request) -> Result<(), CallError> {
        self.post_by(|session| session.send_now::<true>(request)).await
    }

    /// Returns a view of the session with the bytes of its messages.
    pub fn raw(&self) -> RawAsyncSession<'_, S> {
        RawAsyncSession(self)
    }

    /// Posts many requests as one message, at most [`AsyncSession::max_batch`], like [`Session::post_batch`]. It has as much
    /// room as that of [`AsyncSession::call_batch`].
    ///
    /// # Errors
    /// Like [`AsyncSession::post`]. [`CallError::TooLarge`] for the first request for which the message had no room; the
    /// others are sent. [`CallError::TooManyItems`] before anything is sent.
    pub async fn post_batch<'r>(
        &self,
        requests: impl IntoIterator<Item = &'r S::Request>,
    ) -> Result<(), CallError> {
        let (builder, room) = self.shared.lock().session.packing_one_record();
        let mut packed = Packed::new::<S>(builder, room, requests);
        let sent = self.post_by(|session| session.post_packed(&mut packed)).await;
        let left_out = packed.left_out();
        self.shared.lock().session.unpack(packed);
        sent.and(left_out.map_or(Ok(()), Err))
    }

    /// Waits until the provider has taken everything that was posted before this call, by any task, at most for `timeout`:
    /// like [`Session::flush`]. What other tasks post meanwhile does not extend it. Dropping the future has no effect.
    ///
    /// # Errors
    /// [`CallError::Deadline`] when it has not; the session stays usable. [`CallError::PeerGone`] and others when the
    /// session is over: [`SessionStats::posts_lost`] is the number of requests that the provider has not taken.
    pub async fn flush(&self, timeout: Duration) -> Result<(), CallError> {
        let Some((number, position)) = self.shared.lock().begin_flush() else { return Ok(()) };
        let _flush = OnDrop(|| self.shared.lock().end_flush(number));
        let place = (number, position);
        let flushed = poll_fn(|context| self.shared.lock().poll_flush(place, context.waker()));
        let flushed = tokio::time::timeout(timeout, flushed).await;
        flushed.unwrap_or(Err(CallError::Deadline { executed: Executed::Maybe }))
    }

    async fn post_by(
        &self,
        mut post: impl FnMut(&mut Session<S>) -> Result<Ticket, CallError>,
    ) -> Result<(), CallError> {
        let mut limit = Limit::within(self.timeout);
        self.send(|state| state.post(self.backpressure, &mut post), &mut limit).await.map(|_| ())
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
    pub(super) fn is_peer_stalled(&self) -> bool {
        self.shared.lock().session.is_peer_stalled()
    }

    pub(super) async fn exchange(
        &self,
        request: &S::Request,
        mut limit: Limit,
    ) -> Result<S::Response, CallError> {
        let begun = poll_fn(|context| {
            let waker = context.waker();
            Poll::Ready(self.shared.try_begin(request, self.backpressure, waker))
        });
        let (ticket, was_polled) = match begun.await {
            Some(ticket) => (ticket, true),
            None => {
                let send = |session: &mut Session<S>| session.send_now::<false>(request);
                let send = |state: &mut State<S>| state.send(Kind::CALL, self.backpressure, send);
                (self.send(send, &mut limit).await?, false)
            }
        };
        self.answer(Kind::CALL, ticket, limit, was_polled).await
    }

    fn answer<R>(
        &self,
        kind: &'static Kind<S, R>,
        ticket: Ticket,
        limit: Limit,
        was_polled: bool,
    ) -> Answer<'_, S, R> {
        let shared = &self.shared;
        Answer { shared, kind, ticket, limit, was_polled, timer: None, is_answered: false }
    }

    pub(super) async fn exchange_batch<'r>(
        &self,
        requests: impl IntoIterator<Item = &'r S::Request>,
        mut limit: Limit,
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError> {
        let (builder, room) = self.shared.lock().session.packing_one_record();
        let mut packed = Packed::new::<S>(builder, room, requests);
        let mut send = |session: &mut Session<S>| session.submit_packed(&mut packed);
        let send = |state: &mut State<S>| state.send(Kind::BATCH, self.backpressure, &mut send);
        let sent = self.send(send, &mut limit).await;
        self.shared.lock().session.unpack(packed);
        let ticket = sent?;
        self.answer(Kind::BATCH, ticket, limit, false).await?.open::<S>()
    }

    /// Sends something, waiting for room if [`Backpressure`] says so, and counts what was not sent.
    async fn send(
        &self,
        mut send: impl FnMut(&mut State<S>) -> Result<Ticket, CallError>,
        limit: &mut Limit,
    ) -> Result<Ticket, CallError> {
        let mut sent = self.send_now(&mut send);
        if matches!(sent, Err(CallError::WouldBlock)) && self.backpressure != Backpressure::Fail {
            let dropped = CallError::Cancelled { executed: Executed::No };
            let unsent = OnDrop(|| self.shared.lock().session.not_sent(&dropped));
            let in_line = timeout_at(limit.resolve(), self.send_in_line(send)).await;
            // The call has ended, and its outcome is known.
            std::mem::forget(unsent);
            sent = in_line.unwrap_or(Err(CallError::Deadline { executed: Executed::No }));
        }
        sent.inspect_err(|error| self.shared.lock().session.not_sent(error))
    }

    /// Sends something if there is room and nobody waits for it, unless growing makes room.
    fn send_now(
        &self,
        send: &mut impl FnMut(&mut State<S>) -> Result<Ticket, CallError>,
    ) -> Result<Ticket, CallError> {
        let mut state = self.shared.lock();
        match state.may_pass_line(self.backpressure) {
            true => send(&mut state),
            false => Err(CallError::WouldBlock),
        }
    }

    async fn send_in_line(
        &self,
        mut send: impl FnMut(&mut State<S>) -> Result<Ticket, CallError>,
    ) -> Result<Ticket, CallError> {
        self.shared.lock().in_line += 1;
        let place = OnDrop(|| self.shared.lock().in_line -= 1);
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

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
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

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.get_mut();
        let (is_timed, waker) = (call.timer.is_some(), context.waker());
        if std::mem::take(&mut call.was_polled) {
            return Poll::Pending;
        }
        match call.shared.poll_answer(call.kind, call.ticket, waker, is_timed) {
            Polled::Answered(answer) => {
                call.is_answered = true;
                return Poll::Ready(answer);
            }
            Polled::Waits => return Poll::Pending,
            Polled::NeedsTimer => {}
        }
        let limit = &mut call.limit;
        let timer = call.timer.get_or_insert_with(|| Box::pin(sleep_until(limit.resolve())));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(CallError::Deadline { executed: Executed::Maybe }))
    }
}

impl<S: Service, R> Drop for Answer<'_, S, R> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shared.lock().forget(self.kind, self.ticket);
        }
    }
}
