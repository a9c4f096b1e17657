//! Publish-subscribe: a topic each way.

use ::iceoryx2::port::publisher::Publisher;
use ::iceoryx2::port::subscriber::Subscriber;
use ::iceoryx2::prelude::Node;

use super::form::{Form, Topic};
use super::serving::{End, Ready, Serving};
use super::wait::{Polling, Wait};
use super::{Ipc, greet, name, node, problem, queue};
use crate::Outcome;
use crate::contender::{Client, Counters, put};
use crate::handler::Handler;
use crate::load::{Load, Place};
use crate::measure::Measure;

const REQUESTS: &str = "requests";
const ANSWERS: &str = "answers";

pub(super) fn serve<F: Form + ?Sized>(
    place: &Place,
    load: &Load,
    handler: Handler,
) -> Outcome<Serving> {
    let (place, load) = (place.clone(), *load);
    Serving::start(move |end, ready| answer::<F>(&place, &load, handler, &end, &ready))
}

fn answer<F: Form + ?Sized>(
    place: &Place,
    load: &Load,
    handler: Handler,
    end: &End,
    ready: &Ready,
) -> Outcome<()> {
    let node = node()?;
    let requests = subscriber(&open::<F>(&node, place, load, REQUESTS)?)?;
    let answers = F::publisher(&open::<F>(&node, place, load, ANSWERS)?, load.longest())?;
    let mut wait = Polling::server(load);
    ready.send(())?;
    let is_one_way = load.is_one_way();
    let mut greeted = None;
    while !end.has_come() {
        while let Some(sample) = F::sample(&requests)? {
            let (request, from) = (F::bytes(&sample), sample.origin());
            if is_one_way && greeted == Some(from) {
                handler.take(request);
            } else {
                F::publish(&answers, request, |answer| handler.answer(answer))?;
                greeted = Some(from);
            }
        }
        wait.pause(&mut 0, &mut 0)?;
    }
    Ok(())
}

pub(super) fn measure<F: Form + ?Sized>(
    place: &Place,
    load: &Load,
    measure: Measure<'_>,
) -> Outcome<()> {
    let node = node()?;
    measure.run(|| Pair::<F>::connect(&node, place, load))
}

fn open<F: Form + ?Sized>(
    node: &Node<Ipc>,
    place: &Place,
    load: &Load,
    what: &str,
) -> Outcome<Topic<F>> {
    let builder = node.service_builder(&name(place, what)?).publish_subscribe::<F>();
    let builder = builder
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .subscriber_max_buffer_size(queue(load))
        .enable_safe_overflow(false);
    F::topic(builder)
}

fn subscriber<F: Form + ?Sized>(topic: &Topic<F>) -> Outcome<Subscriber<Ipc, F, ()>> {
    topic.subscriber_builder().create().map_err(problem("create a subscriber"))
}

/// A publisher and a subscriber.
struct Pair<F: Form + ?Sized> {
    requests: Publisher<Ipc, F, ()>,
    answers: Subscriber<Ipc, F, ()>,
    wait: Polling,
}

impl<F: Form + ?Sized> Pair<F> {
    fn connect(node: &Node<Ipc>, place: &Place, load: &Load) -> Outcome<Self> {
        let answers = subscriber(&open::<F>(node, place, load, ANSWERS)?)?;
        let requests = F::publisher(&open::<F>(node, place, load, REQUESTS)?, load.longest())?;
        let mut pair = Self { requests, answers, wait: Polling::client(load) };
        if load.is_one_way() {
            greet(&mut pair, load)?;
        }
        Ok(pair)
    }
}

impl<F: Form + ?Sized> Client for Pair<F> {
    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        F::publish(&self.requests, request, |_| ())
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        let (mut looks, mut since) = (0, 0);
        loop {
            if let Some(sample) = F::sample(&self.answers)? {
                return put(F::bytes(&sample), answer);
            }
            self.wait.pause(&mut looks, &mut since)?;
        }
    }

    fn counters(&mut self) -> Counters {
        self.wait.counters()
    }
}
