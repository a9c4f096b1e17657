use std::marker::PhantomData;
use std::sync::Arc;

use bellwire_core::wire::BROADCAST_RECORDS;

use crate::layout::{Layout, Type};
use crate::publication::Publication;
use crate::{Message, PublishError};

/// A service that publishes events: its name and their type. Every subscriber gets each event, in order, or the exact count
/// of those that it was too slow for.
///
/// ```
/// use bellwire::{Delivery, Event, RunDir, Server, StartAt, Subscriber};
///
/// struct Temperature;
/// impl Event for Temperature {
///     const NAME: &'static str = "temperature";
///     type Message = u64;
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let run_dir = RunDir::new(dir.path());
/// let mut builder = Server::builder(&run_dir);
/// let publisher = builder.events::<Temperature>(1 << 20)?;
/// let server = builder.start()?;
///
/// let mut subscriber = Subscriber::<Temperature>::new(&run_dir, StartAt::Oldest);
/// publisher.send(&21)?;
/// assert_eq!(subscriber.next(None)?, Some(Delivery::Event { sequence: 1, event: 21 }));
/// # server.stop();
/// # Ok(())
/// # }
/// ```
pub trait Event: 'static {
    /// The service's name, as for [`Service`](crate::Service).
    const NAME: &'static str;

    /// The version of the type, as for [`Service`](crate::Service).
    const VERSION: u32 = 1;

    /// A fingerprint of the type: that of a service whose request is `()`. See [`Service::SCHEMA`](crate::Service::SCHEMA).
    const SCHEMA: u64 = match Self::Message::LAYOUT {
        Some(message) => Type::schema(<() as Layout>::TYPE, message),
        None => 0,
    };

    /// An event's contents.
    type Message: Message;
}

/// The memory of the largest ring of events.
pub(crate) const LONGEST: u64 = (1 << 30) + BROADCAST_RECORDS as u64;

/// Publishes events of `E`. It never waits for a subscriber: the oldest events are overwritten.
///
/// Can be used from any thread. Dropping it stops nothing.
///
/// ```
/// use bellwire::EventPublisher;
#[doc = include_str!("doc/temperature.txt")]
/// let publisher: EventPublisher<Temperature> = publisher;
/// assert_eq!(publisher.send(&21)?, 1);
/// assert_eq!((publisher.send_all(&[22, 23])?, publisher.sent()), (3, 3));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EventPublisher<E: Event> {
    publication: Arc<Publication>,
    event: PhantomData<fn(&E)>,
}

impl<E: Event> EventPublisher<E> {
    pub(crate) fn new(publication: Arc<Publication>) -> Self {
        Self { publication, event: PhantomData }
    }

    /// Publishes an event and returns its number, counted from 1.
    ///
    /// Costs a copy, and one system call that wakes all subscribers that sleep (on Windows one each), however many there are.
    /// A subscriber that waits in an event loop also costs the server's thread a message.
    ///
    /// # Errors
    /// [`PublishError`]: the event was not published.
    #[inline]
    pub fn send(&self, event: &E::Message) -> Result<u64, PublishError> {
        self.publication.send([event])
    }

    /// Publishes events and wakes subscribers once for all of them. Returns the number of the last one. No other thread publishes
    /// meanwhile, and the server waits: `events` must neither block nor use this publisher.
    ///
    /// # Errors
    /// [`PublishError`] of the first event that was not published; the events before it were, those after it were not.
    pub fn send_all<'a>(
        &self,
        events: impl IntoIterator<Item = &'a E::Message>,
    ) -> Result<u64, PublishError> {
        self.publication.send(events)
    }

    /// Makes room for at least this many bytes of events, up to 1 GiB. Each takes 16 and its length rounded up to 16.
    /// Subscribers follow to the new memory and miss nothing that they would not have missed before.
    ///
    /// An event above a quarter of the room makes room by itself.
    ///
    /// # Errors
    /// [`PublishError`]: the room is what it was.
    pub fn set_depth(&self, bytes: u64) -> Result<(), PublishError> {
        self.publication.set_depth(bytes)
    }

    /// Returns the number of the last event; 0 before the first.
    pub fn sent(&self) -> u64 {
        self.publication.generation()
    }
}
