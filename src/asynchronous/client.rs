use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, Notify};
use tokio::time::{Instant, timeout, timeout_at};

use super::AsyncSession;
use super::session::Limit;
use super::wakeup::Wakeup;
use super::with_descriptor;
use crate::client::arrival::{is_absent, unwatched};
use crate::transport::ready::Ready;
use crate::transport::{Os, prelude::*};
use crate::{
    CallError, Client, ClientConfig, Contract, Dynamic, Executed, ProviderState, RunDir, Service,
};

/// A client of service `S` for any number of concurrent tasks, whose provider may be absent, late or restarted.
///
/// It opens a session at the first call, and another one when that is over. Every future may be dropped at any time:
/// see [the module](crate::asynchronous).
///
/// ```no_run
/// # use bellwire::AsyncClient;
#[doc = include_str!("../doc/increment_served.txt")]
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// runtime.block_on(async {
///     let client = AsyncClient::<Increment>::new(&run_dir);
///     let (one, other) = tokio::join!(client.call(&1), client.call(&41));
///     assert_eq!((one?, other?), (2, 42));
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncClient<S: Service> {
    contract: Contract,
    /// Opens sessions, one at a time.
    opening: Turn<Client<S>>,
    /// Whose turn it is to wait for an arrival: there is one watch, and it reports each arrival once.
    arriving: Turn<()>,
    /// Wakes the task whose turn it is when another one opened a session.
    opened: Notify,
    session: Mutex<Option<AsyncSession<S>>>,
    timeout: Duration,
    connect_timeout: Duration,
}

impl AsyncClient<Dynamic> {
    /// Creates a client of a service that is known only at run time.
    pub fn with_contract(run_dir: &RunDir, contract: Contract, config: ClientConfig) -> Self {
        Self::of_contract(run_dir, contract, config)
    }
}

impl<S: Service> AsyncClient<S>
where
    S::Response: Send,
{
    /// Creates a client that looks for its provider in `run_dir`.
    pub fn new(run_dir: &RunDir) -> Self {
        Self::with_config(run_dir, ClientConfig::default())
    }

    /// Creates a client with a configuration other than the default. It replaces a futex doorbell with an eventfd;
    /// `stream_from` applies only to blocking calls. For `spin` see [the module](crate::asynchronous#spinning).
    pub fn with_config(run_dir: &RunDir, config: ClientConfig) -> Self {
        Self::of_contract(run_dir, Contract::of::<S>(), config)
    }

    fn of_contract(run_dir: &RunDir, contract: Contract, config: ClientConfig) -> Self {
        let (timeout, connect_timeout) = (config.timeout, config.connect_timeout);
        let client = Client::of_contract(run_dir, contract, with_descriptor(config));
        let session = Mutex::new(None);
        let (opening, arriving, opened) = (Turn::new(client), Turn::new(()), Notify::new());
        Self { contract, opening, arriving, opened, session, timeout, connect_timeout }
    }

    /// Calls and waits for the answer, at most for the configured time. First opens a session if there is none and a
    /// retry is due.
    ///
    /// When the provider goes away, the request is sent once more, to its successor, if the handler cannot have run
    /// or the service is [idempotent](Service::IDEMPOTENT).
    ///
    /// # Errors
    /// [`CallError`] reports who is at fault and whether the handler may have run. The client stays usable.
    ///
    /// # Panics
    /// Outside of a runtime with I/O and time.
    pub async fn call(&self, request: &S::Request) -> Result<S::Response, CallError> {
        self.call_within(request, self.timeout).await
    }

    /// Calls and waits for the answer, at most for `timeout`, which includes connecting.
    ///
    /// # Errors
    /// Like [`AsyncClient::call`].
    ///
    /// # Panics
    /// Like [`AsyncClient::call`].
    pub async fn call_within(
        &self,
        request: &S::Request,
        limit: Duration,
    ) -> Result<S::Response, CallError> {
        let until = Limit::within(limit).resolve();
        let session = self.connect_until(until).await?;
        let answer = session.exchange(request, Limit::until(until)).await;
        let Err(error) = answer else { return answer };
        let successor = self.successor(&session, error, until).await?;
        let answer = successor.exchange(request, Limit::until(until)).await;
        answer.map_err(|error| self.close_if_stalled(error))
    }

    /// Calls with many requests in one message, like [`AsyncSession::call_batch`], at most for the configured time,
    /// which includes connecting. First opens a session if there is none and a retry is due. When the provider goes
    /// away, the batch is sent once more, like the request of [`AsyncClient::call`].
    ///
    /// # Errors
    /// Like [`AsyncClient::call`], for the whole batch.
    ///
    /// # Panics
    /// Like [`AsyncClient::call`].
    pub async fn call_batch<'r>(
        &self,
        requests: impl IntoIterator<Item = &'r S::Request> + Clone,
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError> {
        self.call_batch_within(requests, self.timeout).await
    }

    /// Calls like [`AsyncClient::call_batch`], but waits at most for `timeout`.
    ///
    /// # Errors
    /// Like [`AsyncClient::call_batch`].
    ///
    /// # Panics
    /// Like [`AsyncClient::call`].
    pub async fn call_batch_within<'r>(
        &self,
        requests: impl IntoIterator<Item = &'r S::Request> + Clone,
        limit: Duration,
    ) -> Result<Vec<Result<S::Response, Box<CallError>>>, CallError> {
        let until = Limit::within(limit).resolve();
        let session = self.connect_until(until).await?;
        let answers = session.exchange_batch(requests.clone(), Limit::until(until)).await;
        let Err(error) = answers else { return answers };
        let successor = self.successor(&session, error, until).await?;
        let answers = successor.exchange_batch(requests, Limit::until(until)).await;
        answers.map_err(|error| self.close_if_stalled(error))
    }

    /// Returns the open session. Opens one if there is none, waiting for the provider's answers but not for an absent
    /// provider.
    ///
    /// # Errors
    /// [`CallError`] with the reason why there is none.
    ///
    /// # Panics
    /// Like [`AsyncClient::call`].
    pub async fn connect(&self) -> Result<AsyncSession<S>, CallError> {
        if let Some(session) = self.open_session() {
            return Ok(session);
        }
        let mut client = self.opening.lock().await;
        // Another task may have opened it.
        if let Some(session) = self.open_session() {
            return Ok(session);
        }
        let session = timeout(self.connect_timeout, open(&mut client)).await;
        let session = session.unwrap_or(Err(CallError::Deadline { executed: Executed::No }))?;
        let started = AsyncSession::start(session, self.timeout);
        let session = started.map_err(unwatched(self.contract.service))?;
        *self.lock() = Some(session.clone());
        self.opened.notify_waiters();
        Ok(session)
    }

    /// Waits until there is a provider, and opens a session: at once if there is one, else as soon as one listens, at most
    /// for `limit`. See [`Client::wait_available`].
    ///
    /// # Errors
    /// Like [`Client::wait_available`].
    ///
    /// # Panics
    /// Like [`AsyncClient::call`].
    pub async fn wait_available(&self, limit: Duration) -> Result<AsyncSession<S>, CallError> {
        let waited = timeout(limit, async {
            let _turn = self.arriving.lock().await;
            loop {
                let mut opened = pin!(self.opened.notified());
                opened.as_mut().enable();
                let watched = {
                    let mut client = self.opening.lock().await;
                    client.watch_arrivals().and_then(|()| {
                        let ready = client.pollable_arrival().ok().map(Ready::watch).transpose();
                        ready.map_err(unwatched(self.contract.service))
                    })
                };
                match self.connect().await {
                    Err(error) if is_absent(&error) => {}
                    settled => return settled,
                }
                let due = self.opening.lock().await.retry_due();
                if let Some(ready) = watched? {
                    let came = poll_fn(|context| match opened.as_mut().poll(context) {
                        Poll::Ready(()) => Poll::Ready(()),
                        Poll::Pending => ready.poll_rung(context).map(drop),
                    });
                    match due {
                        Some(due) => drop(timeout_at(at(due), came).await),
                        None => came.await,
                    }
                }
            }
        });
        waited.await.unwrap_or(Err(CallError::Deadline { executed: Executed::No }))
    }

    /// Returns the provider's state without waiting: [`ProviderState::Connecting`] while a session is being opened.
    pub fn state(&self) -> ProviderState {
        if self.open_session().is_some() {
            return ProviderState::Ready;
        }
        self.opening.try_lock().map_or(ProviderState::Connecting, |client| client.state())
    }

    /// Returns the session in which a request that failed so in `lost` is sent again; the error if it is not.
    async fn successor(
        &self,
        lost: &AsyncSession<S>,
        error: CallError,
        until: Instant,
    ) -> Result<AsyncSession<S>, CallError> {
        if !error.is_session_fatal() {
            return Err(self.close_if_stalled(error));
        }
        self.lock().take_if(|session| session.is(lost));
        if !self.contract.may_repeat(&error) {
            return Err(error);
        }
        self.connect_until(until).await.map_err(|_| error)
    }

    /// After a call that ended at its deadline, closes the session if its provider has taken nothing for longer than
    /// configured.
    fn close_if_stalled(&self, error: CallError) -> CallError {
        if let CallError::Deadline { .. } = error {
            self.lock().take_if(|session| session.is_peer_stalled());
        }
        error
    }

    async fn connect_until(&self, until: Instant) -> Result<AsyncSession<S>, CallError> {
        if let Some(session) = self.open_session() {
            return Ok(session);
        }
        let connected = timeout_at(until, self.connect()).await;
        connected.unwrap_or(Err(CallError::Deadline { executed: Executed::No }))
    }

    fn open_session(&self) -> Option<AsyncSession<S>> {
        let mut session = self.lock();
        if !session.as_ref()?.is_open() {
            *session = None;
        }
        session.clone()
    }

    /// No code that holds this lock can panic during a change.
    fn lock(&self) -> MutexGuard<'_, Option<AsyncSession<S>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Steps until a session is open.
async fn open<S: Service>(client: &mut Client<S>) -> Result<crate::Session<S>, CallError> {
    let mut wakeup = Wakeup::default();
    poll_fn(|context| {
        loop {
            if let Some(session) = client.step()? {
                return Poll::Ready(Ok(session));
            }
            // The client itself notices the handshake's deadline.
            let due = client.due();
            ready!(wakeup.poll(client, due, context))?;
        }
    })
    .await
}

/// Converts to the time of the runtime.
pub(super) fn at(time: bellwire_core::Instant) -> Instant {
    Instant::now() + time.since(Os::now())
}
