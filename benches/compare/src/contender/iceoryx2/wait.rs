//! How an end learns that there is something for it.

use std::time::Duration;

use ::iceoryx2::port::listener::{Listener, ListenerWaitError};
use ::iceoryx2::port::notifier::Notifier;
use ::iceoryx2::prelude::Node;
use ::iceoryx2::service::port_factory::event::PortFactory;
use rustix::thread::sched_yield;

use super::{Ipc, name, problem};
use crate::Outcome;
use crate::clock;
use crate::contender::Counters;
use crate::load::{Case, Load, Placing};

/// How long an answer is waited for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How often a polling end polls before it reads the clock.
const POLLS_PER_CLOCK_READ: u32 = 1 << 20;
/// The clients that one server wakes.
const CLIENTS: usize = 64;

/// The event of a server: something was sent to it.
const REQUESTS: &str = "requested";

/// How one connection, or a server, waits and wakes.
pub(super) trait Wait: Sized + 'static {
    /// For the client with this id.
    fn of_client(node: &Node<Ipc>, case: &Case, id: u128) -> Outcome<Self>;
    fn of_server(node: &Node<Ipc>, case: &Case) -> Outcome<Self>;

    /// Tells the server that there is something for it.
    fn ring_server(&mut self) -> Outcome<()>;
    /// Tells the client with this id.
    fn ring_client(&mut self, node: &Node<Ipc>, case: &Case, id: u128) -> Outcome<()>;

    /// Passes the time until the next look. `since` is when the answer began to be waited for: 0 at first.
    fn pause(&mut self, polls: &mut u32, since: &mut u64) -> Outcome<()>;

    /// Waits for an answer, which is there once `poll` finds one.
    #[inline]
    fn until<T>(&mut self, mut poll: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
        let (mut polls, mut since) = (0, 0);
        loop {
            if let Some(found) = poll()? {
                return Ok(found);
            }
            self.pause(&mut polls, &mut since)?;
        }
    }

    /// Wakes a server.
    fn wake_to_end(case: &Case) -> Outcome<()>;

    fn counters(&self) -> Counters;
}

/// Polls again, at once, or as soon as others on its processor have run.
pub(super) struct Polling {
    yields: bool,
}

impl Wait for Polling {
    fn of_client(_: &Node<Ipc>, case: &Case, _: u128) -> Outcome<Self> {
        Ok(Self::client(&case.load))
    }

    fn of_server(_: &Node<Ipc>, case: &Case) -> Outcome<Self> {
        Ok(Self::server(&case.load))
    }

    #[inline]
    fn ring_server(&mut self) -> Outcome<()> {
        Ok(())
    }

    #[inline]
    fn ring_client(&mut self, _: &Node<Ipc>, _: &Case, _: u128) -> Outcome<()> {
        Ok(())
    }

    #[inline]
    fn pause(&mut self, polls: &mut u32, since: &mut u64) -> Outcome<()> {
        *polls += 1;
        if self.yields {
            sched_yield();
        }
        if *polls < POLLS_PER_CLOCK_READ { Ok(()) } else { late(polls, since) }
    }

    fn wake_to_end(_: &Case) -> Outcome<()> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        let none = if self.yields { None } else { Some(0) };
        Counters { wakes: Some(0), parks: Some(0), system_calls: none }
    }
}

impl Polling {
    /// Clients share a processor with each other.
    pub(super) fn client(load: &Load) -> Self {
        Self { yields: load.clients > 1 || load.placing != Placing::Pinned }
    }

    pub(super) fn server(load: &Load) -> Self {
        Self { yields: load.placing != Placing::Pinned }
    }
}

#[cold]
fn late(polls: &mut u32, since: &mut u64) -> Outcome<()> {
    *polls = 0;
    let now = clock::now();
    if *since == 0 {
        *since = now;
    }
    let waited = Duration::from_nanos(now - *since);
    if waited < ANSWERS_WITHIN { Ok(()) } else { Err("no answer within 10 s".into()) }
}

/// Sleeps in its listener.
pub(super) struct Listening {
    listener: Listener<Ipc>,
    server: Option<Notifier<Ipc>>,
    clients: Vec<(u128, Notifier<Ipc>)>,
    rings: u64,
    parks: u64,
}

impl Wait for Listening {
    fn of_client(node: &Node<Ipc>, case: &Case, id: u128) -> Outcome<Self> {
        let listener = listener(node, case, &id.to_string())?;
        let server = Some(notifier(node, case, REQUESTS)?);
        Ok(Self { listener, server, clients: Vec::new(), rings: 0, parks: 0 })
    }

    fn of_server(node: &Node<Ipc>, case: &Case) -> Outcome<Self> {
        let listener = listener(node, case, REQUESTS)?;
        Ok(Self { listener, server: None, clients: Vec::new(), rings: 0, parks: 0 })
    }

    #[inline]
    fn ring_server(&mut self) -> Outcome<()> {
        if let Some(server) = &self.server {
            self.rings += 1;
            server.notify().map_err(problem("notify the server"))?;
        }
        Ok(())
    }

    #[inline]
    fn ring_client(&mut self, node: &Node<Ipc>, case: &Case, id: u128) -> Outcome<()> {
        let known = self.clients.iter().position(|(known, _)| *known == id);
        if known.is_none() {
            // The oldest may be gone.
            if self.clients.len() == CLIENTS {
                self.clients.remove(0);
            }
            self.clients.push((id, notifier(node, case, &id.to_string())?));
        }
        let at = known.unwrap_or(self.clients.len() - 1);
        if let Some((_, client)) = self.clients.get(at) {
            self.rings += 1;
            client.notify().map_err(problem("notify a client"))?;
        }
        Ok(())
    }

    #[inline]
    fn pause(&mut self, _: &mut u32, _: &mut u64) -> Outcome<()> {
        self.parks += 1;
        match self.listener.blocking_wait(|_| ()) {
            // The caller polls, and calls this again.
            Ok(_) | Err(ListenerWaitError::InterruptSignal) => Ok(()),
            Err(error) => Err(problem("wait for an event")(error)),
        }
    }

    fn wake_to_end(case: &Case) -> Outcome<()> {
        let node = super::node()?;
        notifier(&node, case, REQUESTS)?.notify().map_err(problem("notify the server"))?;
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::of_waits(self.rings, self.parks)
    }
}

fn listener(node: &Node<Ipc>, case: &Case, what: &str) -> Outcome<Listener<Ipc>> {
    let event = event(node, case, what)?;
    event.listener_builder().create().map_err(problem("create a listener"))
}

fn notifier(node: &Node<Ipc>, case: &Case, what: &str) -> Outcome<Notifier<Ipc>> {
    let event = event(node, case, what)?;
    event.notifier_builder().create().map_err(problem("create a notifier"))
}

fn event(node: &Node<Ipc>, case: &Case, what: &str) -> Outcome<PortFactory<Ipc>> {
    // The clients, the server, and who wakes it at the end.
    let builder = node.service_builder(&name(case, what)?).event();
    let builder = builder.max_notifiers(CLIENTS + 1).max_nodes(CLIENTS + 2);
    builder.open_or_create().map_err(problem("open an event service"))
}
