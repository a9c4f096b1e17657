use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use tokio::task::coop::poll_proceed;

use super::wakeup::Wakeup;
use super::with_descriptor;
use crate::{
    ClientConfig, Contract, Delivery, Dynamic, Event, ProviderState, RunDir, StartAt,
    SubscribeError, Subscriber,
};

/// A [`Subscriber`] for a task of a tokio runtime.
///
/// [`AsyncSubscriber::poll_next`] has the form of a stream's: `futures::stream::poll_fn(move |context|
/// subscriber.poll_next(context))` is one. While it waits, the provider sends it a message for the next event, and the kernel
/// wakes its runtime; a blocking [`Subscriber`] costs the provider nothing.
///
/// ```
/// use bellwire::{AsyncSubscriber, Delivery, StartAt};
/// # use bellwire::{Event, RunDir, Server};
/// # struct Temperature;
/// # impl Event for Temperature {
/// #     const NAME: &'static str = "temperature";
/// #     type Message = i64;
/// # }
/// # #[cfg(windows)]
/// # fn main() {}
/// # #[cfg(not(windows))]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let run_dir = RunDir::new(dir.path());
/// # let mut builder = Server::builder(&run_dir);
/// # let publisher = builder.events::<Temperature>(1 << 20)?;
/// # let server = builder.start()?;
/// let mut subscriber = AsyncSubscriber::<Temperature>::new(&run_dir, StartAt::Oldest);
/// publisher.send(&21)?;
/// assert_eq!(subscriber.next().await?, Delivery::Event { sequence: 1, event: 21 });
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncSubscriber<E: Event> {
    subscriber: Subscriber<E>,
    wakeup: Wakeup,
}

impl AsyncSubscriber<Dynamic> {
    /// Creates a subscriber of events that are known only at run time.
    pub fn with_contract(
        run_dir: &RunDir,
        contract: Contract,
        start: StartAt,
        config: ClientConfig,
    ) -> Self {
        let subscriber =
            Subscriber::with_contract(run_dir, contract, start, with_descriptor(config));
        Self { subscriber, wakeup: Wakeup::default() }
    }
}

impl<E: Event> AsyncSubscriber<E> {
    /// Creates a subscriber that looks for its provider in `run_dir`.
    pub fn new(run_dir: &RunDir, start: StartAt) -> Self {
        Self::with_config(run_dir, start, ClientConfig::default())
    }

    /// Creates a subscriber with a configuration other than the default. It replaces a futex doorbell with an eventfd.
    pub fn with_config(run_dir: &RunDir, start: StartAt, config: ClientConfig) -> Self {
        let subscriber = Subscriber::with_config(run_dir, start, with_descriptor(config));
        Self { subscriber, wakeup: Wakeup::default() }
    }

    /// Waits for the next delivery. May be dropped at any time: nothing is lost.
    ///
    /// # Errors
    /// Like [`Subscriber::next`]. The next call goes on.
    pub async fn next(&mut self) -> Result<Delivery<E::Message>, SubscribeError> {
        poll_fn(|context| self.poll_delivery(context)).await
    }

    /// Polls for the next delivery, as a stream that never ends.
    ///
    /// # Errors
    /// Like [`AsyncSubscriber::next`].
    #[allow(clippy::type_complexity, reason = "the item of a stream")]
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Delivery<E::Message>, SubscribeError>>> {
        self.poll_delivery(context).map(Some)
    }

    /// Returns the provider's state as last observed.
    pub fn state(&self) -> ProviderState {
        self.subscriber.state()
    }

    fn poll_delivery(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Delivery<E::Message>, SubscribeError>> {
        loop {
            // However fast the provider is, other tasks have their turn.
            ready!(poll_proceed(context)).made_progress();
            if let Some(delivery) = self.subscriber.try_next()? {
                return Poll::Ready(Ok(delivery));
            }
            if self.subscriber.arm()? {
                continue;
            }
            let due = self.subscriber.client.due();
            ready!(self.wakeup.poll(&mut self.subscriber.client, due, context))?;
        }
    }
}
