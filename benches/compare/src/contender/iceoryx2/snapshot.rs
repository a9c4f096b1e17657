//! A snapshot: the newest sample of a topic, read in place.

use std::time::Duration;

use ::iceoryx2::port::subscriber::Subscriber;
use ::iceoryx2::prelude::Node;
use ::iceoryx2::sample::Sample;
use bellwire::Snapshot;
use bellwire_cgroups::{CgroupsSnapshot, Index, View};

use super::form::{Form, Topic};
use super::serving::Serving;
use super::{Ipc, name, node, problem};
use crate::Outcome;
use crate::contender::Client;
use crate::load::Place;
use crate::measure::Measure;

/// How soon a new reader gets what was published before it came.
const SOON: Duration = Duration::from_millis(5);
/// The longest snapshot, of 10 000 cgroups.
const LONGEST: usize = 8 << 20;

pub(super) fn serve(place: &Place) -> Outcome<Serving> {
    let place = place.clone();
    Serving::publishing(SOON, LONGEST, move |node| open(node, &place))
}

pub(super) fn measure(place: &Place, measure: Measure<'_>) -> Outcome<()> {
    let node = node()?;
    measure.run(|| Reader::connect(&node, place))
}

fn open(node: &Node<Ipc>, place: &Place) -> Outcome<Topic<[u8]>> {
    let builder = node.service_builder(&name(place, "snapshots")?).publish_subscribe::<[u8]>();
    let builder = builder
        .max_publishers(1)
        .max_subscribers(8)
        .history_size(1)
        .subscriber_max_buffer_size(1)
        .enable_safe_overflow(true);
    <[u8]>::topic(builder)
}

/// A sample, and the index of its cgroups.
struct Held {
    sample: Sample<Ipc, [u8], ()>,
    index: Index,
}

/// A subscriber, and the sample that it holds.
struct Reader {
    subscriber: Subscriber<Ipc, [u8], ()>,
    held: Option<Held>,
}

impl Reader {
    fn connect(node: &Node<Ipc>, place: &Place) -> Outcome<Self> {
        let builder = open(node, place)?;
        let builder = builder.subscriber_builder().buffer_size(1).history_request(1);
        let subscriber = builder.create().map_err(problem("create a subscriber"))?;
        Ok(Self { subscriber, held: None })
    }
}

impl Client for Reader {
    #[inline]
    fn refresh(&mut self) -> Outcome<bool> {
        let Some(sample) = <[u8]>::sample(&self.subscriber)? else {
            return Ok(false);
        };
        if let Some(held) = &mut self.held {
            CgroupsSnapshot::update(&mut held.index, <[u8]>::bytes(&sample))?;
            held.sample = sample;
        } else {
            let index = CgroupsSnapshot::validate(<[u8]>::bytes(&sample))?;
            self.held = Some(Held { sample, index });
        }
        Ok(true)
    }

    fn snapshot(&self) -> Outcome<View<'_>> {
        Ok(self.held.as_ref().ok_or("nothing was published")?.index.view())
    }
}
