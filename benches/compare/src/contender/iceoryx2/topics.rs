//! Publish-subscribe: a topic each way; for events one that every subscriber gets; for snapshots one whose newest sample is
//! read in place.

use std::time::Duration;

use ::iceoryx2::prelude::Node;
use bellwire_cgroups::View;

use super::form::{Form, PublisherOf, SampleOf, SubscriberOf, Topic};
use super::serving::Serving;
use super::wait::{Polling, Wait};
use super::{Ipc, QUEUE, greet, name, node, problem, queue};
use crate::Outcome;
use crate::contender::{Client, Counters, Indexed, put};
use crate::handler::Handler;
use crate::load::{Case, Load};
use crate::measure::Measure;

/// The longest snapshot, of 10 000 cgroups.
const LONGEST: usize = 8 << 20;

/// How a topic is set up.
#[derive(Clone, Copy)]
struct Setup {
    name: &'static str,
    subscribers: usize,
    /// Samples that wait for a subscriber. Of a snapshot it is the newest, also of those published before.
    buffer: usize,
    newest: bool,
}

const EVENTS: Setup = Setup { name: "events", subscribers: 64, buffer: QUEUE, newest: false };
const SNAPSHOTS: Setup = Setup { name: "snapshots", subscribers: 8, buffer: 1, newest: true };

/// From the client to the server, and back.
fn both_ways(load: &Load) -> [Setup; 2] {
    ["requests", "answers"].map(|name| Setup {
        name,
        subscribers: 1,
        buffer: queue(load),
        newest: false,
    })
}

impl Setup {
    fn open<F: Form + ?Sized>(self, node: &Node<Ipc>, case: &Case) -> Outcome<Topic<F>> {
        let builder = node.service_builder(&name(case, self.name)?).publish_subscribe::<F>();
        let builder = builder
            .max_publishers(1)
            .max_subscribers(self.subscribers)
            // One for each process.
            .max_nodes(self.subscribers + 2)
            .history_size(usize::from(self.newest))
            .subscriber_max_buffer_size(self.buffer)
            .enable_safe_overflow(self.newest);
        F::topic(builder)
    }

    fn subscriber<F>(self, node: &Node<Ipc>, case: &Case) -> Outcome<SubscriberOf<F>>
    where
        F: Form + ?Sized,
    {
        let topic = self.open::<F>(node, case)?;
        let builder = topic.subscriber_builder().history_request(usize::from(self.newest));
        builder.create().map_err(problem("create a subscriber"))
    }
}

pub(super) fn serve<F: Form + ?Sized>(case: &Case, handler: Handler) -> Outcome<Serving> {
    let case = case.clone();
    Serving::start(move || {
        let (node, [requests, answers]) = (node()?, both_ways(&case.load));
        let requests = requests.subscriber::<F>(&node, &case)?;
        let answers = F::publisher(&answers.open::<F>(&node, &case)?, case.load.longest())?;
        let mut wait = Polling::server(&case.load);
        let is_one_way = case.load.is_one_way();
        let mut greeted = None;
        Ok(move || {
            let _kept = &node;
            while let Some(sample) = F::sample(&requests)? {
                let (request, from) = (F::bytes(&sample), sample.origin());
                if is_one_way && greeted == Some(from) {
                    handler.take(request);
                } else {
                    F::publish(&answers, request, |answer| handler.answer(answer))?;
                    greeted = Some(from);
                }
            }
            wait.pause(&mut 0, &mut 0)
        })
    })
}

/// Publishes events. A new reader is found within a millisecond.
pub(super) fn serve_events<F: Form + ?Sized>(case: &Case) -> Outcome<Serving> {
    publishing::<F>(EVENTS, Duration::from_millis(1), case.load.longest(), case)
}

/// Publishes snapshots. A new reader gets what was published before it came within some milliseconds.
pub(super) fn serve_snapshots(case: &Case) -> Outcome<Serving> {
    publishing::<[u8]>(SNAPSHOTS, Duration::from_millis(5), LONGEST, case)
}

fn publishing<F: Form + ?Sized>(
    setup: Setup,
    soon: Duration,
    longest: usize,
    case: &Case,
) -> Outcome<Serving> {
    let case = case.clone();
    Serving::publishing::<F>(soon, longest, move |node| setup.open(node, &case))
}

pub(super) fn measure<F: Form + ?Sized>(case: &Case, measure: Measure<'_>) -> Outcome<()> {
    let (node, [requests, answers]) = (node()?, both_ways(&case.load));
    measure.run(|| {
        let answers = answers.subscriber(&node, case)?;
        let requests = F::publisher(&requests.open::<F>(&node, case)?, case.load.longest())?;
        let mut pair =
            Pair { requests: Some(requests), answers, wait: Polling::client(&case.load) };
        if case.load.is_one_way() {
            greet(&mut pair, &case.load)?;
        }
        Ok(pair)
    })
}

pub(super) fn measure_events<F: Form + ?Sized>(case: &Case, measure: Measure<'_>) -> Outcome<()> {
    let node = node()?;
    measure.run(|| {
        let answers = EVENTS.subscriber::<F>(&node, case)?;
        Ok(Pair { requests: None, answers, wait: Polling::client(&case.load) })
    })
}

pub(super) fn measure_snapshots(case: &Case, measure: Measure<'_>) -> Outcome<()> {
    let node = node()?;
    measure.run(|| {
        let subscriber = SNAPSHOTS.subscriber(&node, case)?;
        Ok(Reader { subscriber, _held: None, index: Indexed::default() })
    })
}

/// A publisher and a subscriber, which polls; a reader of events publishes nothing.
struct Pair<F: Form + ?Sized> {
    requests: Option<PublisherOf<F>>,
    answers: SubscriberOf<F>,
    wait: Polling,
}

impl<F: Form + ?Sized> Client for Pair<F> {
    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        let requests = self.requests.as_ref().ok_or("a reader of events publishes nothing")?;
        F::publish(requests, request, |_| ())
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        put(F::bytes(&self.wait.until(|| F::sample(&self.answers))?), answer)
    }

    #[inline]
    fn event(&mut self, event: &mut [u8]) -> Outcome<usize> {
        self.reply(event)
    }

    fn counters(&mut self) -> Counters {
        self.wait.counters()
    }
}

/// A subscriber, the newest sample, which it holds, and the index of its cgroups.
struct Reader {
    subscriber: SubscriberOf<[u8]>,
    _held: Option<SampleOf<[u8]>>,
    index: Indexed,
}

impl Client for Reader {
    #[inline]
    fn refresh(&mut self) -> Outcome<bool> {
        let Some(sample) = <[u8]>::sample(&self.subscriber)? else {
            return Ok(false);
        };
        self.index.update(<[u8]>::bytes(&sample))?;
        self._held = Some(sample);
        Ok(true)
    }

    fn snapshot(&self) -> Outcome<View<'_>> {
        self.index.view()
    }
}
