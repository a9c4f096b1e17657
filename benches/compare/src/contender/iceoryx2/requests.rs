//! Request-response.

use std::collections::VecDeque;

use ::iceoryx2::prelude::Node;

use super::form::{ClientOf, Form, Pending, Requests};
use super::serving::Serving;
use super::wait::Wait;
use super::{Ipc, greet, name, node, queue};
use crate::Outcome;
use crate::contender::{Client, Counters};
use crate::handler::Handler;
use crate::load::Case;
use crate::measure::Measure;

pub(super) fn serve<F: Form + ?Sized, W: Wait>(case: &Case, handler: Handler) -> Outcome<Serving> {
    let (at, case) = (case.clone(), case.clone());
    let serving = Serving::start(move || {
        let node = node()?;
        let server = F::server(&open::<F>(&node, &at)?, at.load.longest())?;
        let mut wait = W::of_server(&node, &at)?;
        let is_one_way = at.load.is_one_way();
        let mut greeted = None;
        Ok(move || {
            while let Some(active) = F::next(&server)? {
                let from = active.origin();
                if is_one_way && greeted == Some(from) {
                    handler.take(F::request(&active));
                } else {
                    F::answer(&active, handler)?;
                    wait.ring_client(&node, &at, from.value())?;
                    greeted = Some(from);
                }
            }
            wait.pause(&mut 0, &mut 0)
        })
    })?;
    Ok(serving.woken_by(move || W::wake_to_end(&case)))
}

pub(super) fn measure<F: Form + ?Sized, W: Wait>(case: &Case, measure: Measure<'_>) -> Outcome<()> {
    let node = node()?;
    measure.run(|| Caller::<F, W>::connect(&node, case))
}

fn open<F: Form + ?Sized>(node: &Node<Ipc>, case: &Case) -> Outcome<Requests<F>> {
    let builder = node.service_builder(&name(case, "requests")?).request_response::<F, F>();
    let builder = builder
        .max_servers(1)
        .max_clients(case.load.clients)
        // Each process has one.
        .max_nodes(case.load.clients + 1)
        .max_active_requests_per_client(queue(&case.load))
        .max_response_buffer_size(1)
        .enable_safe_overflow_for_requests(false)
        .enable_safe_overflow_for_responses(false)
        .enable_fire_and_forget_requests(true);
    F::requests(builder)
}

/// One client port.
struct Caller<F: Form + ?Sized, W> {
    client: ClientOf<F>,
    pending: VecDeque<Pending<F>>,
    wait: W,
}

impl<F: Form + ?Sized, W: Wait> Caller<F, W> {
    fn connect(node: &Node<Ipc>, case: &Case) -> Outcome<Self> {
        let client = F::client(&open::<F>(node, case)?, case.load.longest())?;
        let wait = W::of_client(node, case, client.id().value())?;
        let mut caller = Self { client, pending: VecDeque::with_capacity(case.load.depth()), wait };
        if case.load.is_one_way() {
            greet(&mut caller, &case.load)?;
        }
        Ok(caller)
    }
}

impl<F: Form + ?Sized, W: Wait> Client for Caller<F, W> {
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        let pending = F::send(&self.client, request)?;
        self.wait.ring_server()?;
        self.wait.until(|| F::take(&pending, answer))
    }

    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        self.pending.push_back(F::send(&self.client, request)?);
        self.wait.ring_server()
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        let pending = self.pending.pop_front().ok_or("a reply to no request")?;
        self.wait.until(|| F::take(&pending, answer))
    }

    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        drop(F::send(&self.client, message)?);
        self.wait.ring_server()
    }

    fn counters(&mut self) -> Counters {
        self.wait.counters()
    }
}
