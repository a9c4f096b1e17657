//! Events: a topic of which every subscriber gets each sample.

use std::time::Duration;

use ::iceoryx2::port::subscriber::Subscriber;
use ::iceoryx2::prelude::Node;

use super::form::{Form, Topic};
use super::serving::Serving;
use super::wait::{Polling, Wait};
use super::{Ipc, QUEUE, name, node, problem};
use crate::Outcome;
use crate::contender::{Client, put};
use crate::load::{Load, Place};
use crate::measure::Measure;

/// How soon the publisher finds a new reader.
const SOON: Duration = Duration::from_millis(1);
/// The most readers, and one node for each.
const READERS: usize = 64;

pub(super) fn serve<F: Form + ?Sized>(place: &Place, load: &Load) -> Outcome<Serving> {
    let place = place.clone();
    Serving::publishing(SOON, load.longest(), move |node| open::<F>(node, &place))
}

pub(super) fn measure<F: Form + ?Sized>(
    place: &Place,
    load: &Load,
    measure: Measure<'_>,
) -> Outcome<()> {
    let node = node()?;
    measure.run(|| Reader::<F>::connect(&node, place, load))
}

fn open<F: Form + ?Sized>(node: &Node<Ipc>, place: &Place) -> Outcome<Topic<F>> {
    let builder = node.service_builder(&name(place, "events")?).publish_subscribe::<F>();
    let builder = builder
        .max_publishers(1)
        .max_subscribers(READERS)
        .max_nodes(READERS + 2)
        .history_size(0)
        .subscriber_max_buffer_size(QUEUE)
        .enable_safe_overflow(false);
    F::topic(builder)
}

/// A subscriber, which polls.
struct Reader<F: Form + ?Sized> {
    subscriber: Subscriber<Ipc, F, ()>,
    wait: Polling,
}

impl<F: Form + ?Sized> Reader<F> {
    fn connect(node: &Node<Ipc>, place: &Place, load: &Load) -> Outcome<Self> {
        let topic = open::<F>(node, place)?;
        let subscriber =
            topic.subscriber_builder().create().map_err(problem("create a subscriber"))?;
        Ok(Self { subscriber, wait: Polling::client(load) })
    }
}

impl<F: Form + ?Sized> Client for Reader<F> {
    #[inline]
    fn event(&mut self, event: &mut [u8]) -> Outcome<usize> {
        let (mut looks, mut since) = (0, 0);
        loop {
            if let Some(sample) = F::sample(&self.subscriber)? {
                return put(F::bytes(&sample), event);
            }
            self.wait.pause(&mut looks, &mut since)?;
        }
    }
}
