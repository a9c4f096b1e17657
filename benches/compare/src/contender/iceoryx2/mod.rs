//! [iceoryx2](https://docs.rs/iceoryx2): zero-copy services in shared memory.
//!
//! Three contenders. Its patterns of data are polled, and its own benchmarks poll them without a pause; so do
//! [`Requests`] (request-response) and [`Topics`] (publish-subscribe). Programs that want to block combine them with
//! its events, as its example of event-based communication does: [`Events`]. What has a fixed length goes by its
//! typed interface, the rest by its slices, and so does all that waits for events: a form more is seconds of
//! compilation.

mod form;
mod requests;
mod serving;
mod topics;
mod wait;

use std::fmt::Debug;

use ::iceoryx2::prelude::{
    Config, LogLevel, Node, NodeBuilder, ServiceName, SignalHandlingMode, ipc, set_log_level,
};

use super::{Contender, ContenderInfo, Server, duplicate_of};
use crate::Outcome;
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::Measure;
use wait::{Listening, Polling};

/// The version in `Cargo.toml`.
const VERSION: &str = "0.10";
/// How many messages of a one-way load wait for the receiver, where their bytes allow it.
const QUEUE: usize = 256;
/// The bytes that they may have together.
const QUEUED_BYTES: usize = 4 << 20;

/// Services between processes, whose ports stay in one thread.
type Ipc = ipc::Service;

/// Request-response, both ends poll.
pub(super) struct Requests;
/// Request-response by slices, both ends wait for events.
pub(super) struct Events;
/// Publish-subscribe, a topic each way, both ends poll.
pub(super) struct Topics;

/// Runs `$run::<FORM, $kind>($arguments)` with the form of the load's messages.
macro_rules! by_form {
    ($load:expr, $($run:ident)::+ [$($kind:ty)?] ($($argument:expr),*)) => {
        match $load.work {
            Work::Calls { size: 8, .. } => $($run)::+::<[u8; 8] $(, $kind)?>($($argument),*),
            Work::Calls { size: 64, .. }
            | Work::Stream { size: 64 }
            | Work::OneWay { size: 64 }
            | Work::Connect => {
                $($run)::+::<[u8; 64] $(, $kind)?>($($argument),*)
            }
            Work::Calls { size: 1024, .. } | Work::Stream { size: 1024 } => {
                $($run)::+::<[u8; 1024] $(, $kind)?>($($argument),*)
            }
            _ => $($run)::+::<[u8] $(, $kind)?>($($argument),*),
        }
    };
}

impl Contender for Requests {
    const NAME: &'static str = "iceoryx2";

    fn about() -> ContenderInfo {
        about(&format!(
            "request-response, no overflow, a response buffer of 1, as many active requests as the load has in flight; \
             one way: requests to forget, {QUEUE} of them; both ends poll, those that share a processor yield"
        ))
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        refuses(load)
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        by_form!(case.load, requests::serve[Polling](case, handler))
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        by_form!(case.load, requests::measure[Polling](case, measure))
    }
}

impl Contender for Events {
    const NAME: &'static str = "iceoryx2-event";

    fn about() -> ContenderInfo {
        about(&format!(
            "request-response, no overflow, a response buffer of 1, as many active requests as the load has in flight; \
             one way: requests to forget, {QUEUE} of them; a notification for each message, both ends block in \
             their listener when there is none"
        ))
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        refuses(load)
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        requests::serve::<[u8], Listening>(case, handler)
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        requests::measure::<[u8], Listening>(case, measure)
    }
}

impl Contender for Topics {
    const NAME: &'static str = "iceoryx2-pubsub";

    fn about() -> ContenderInfo {
        about(&format!(
            "publish-subscribe, no overflow, buffers of as many samples as the load has in flight; one way: of \
             {QUEUE}; events: of 256; a snapshot: a buffer and a history of 1 with overflow, kept as it lies and validated; both ends \
             poll, those that share a processor yield"
        ))
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Refresh { .. } | Work::Events { .. } => None,
            _ if load.clients > 1 => {
                Some("a topic has no answer to one of many: every subscriber gets every sample")
            }
            _ => refuses(load),
        }
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        match case.load.work {
            Work::Refresh { .. } => topics::serve_snapshots(case),
            Work::Events { size: 64 } => topics::serve_events::<[u8; 64]>(case),
            Work::Events { .. } => topics::serve_events::<[u8; 1024]>(case),
            _ => by_form!(case.load, topics::serve[](case, handler)),
        }
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        match case.load.work {
            Work::Refresh { .. } => topics::measure_snapshots(case, measure),
            Work::Events { size: 64 } => topics::measure_events::<[u8; 64]>(case, measure),
            Work::Events { .. } => topics::measure_events::<[u8; 1024]>(case, measure),
            _ => by_form!(case.load, topics::measure[](case, measure)),
        }
    }
}

fn about(settings: &str) -> ContenderInfo {
    ContenderInfo { version: VERSION.to_owned(), settings: settings.to_owned() }
}

fn refuses(load: &Load) -> Option<&'static str> {
    match load.work {
        Work::Grow { .. } => {
            Some("a data segment that has grown stays so: the next large call would find it grown")
        }
        Work::Refresh { .. } | Work::Events { .. } => {
            Some("copies nothing to many readers: iceoryx2-pubsub does")
        }
        _ => duplicate_of(load),
    }
}

/// The node of this process or thread: with the library's defaults, ignoring configuration files of this machine.
fn node() -> Outcome<Node<Ipc>> {
    set_log_level(LogLevel::Error);
    let builder = NodeBuilder::new().signal_handling_mode(SignalHandlingMode::Disabled);
    builder.config(&Config::default()).create().map_err(problem("create a node"))
}

fn name(case: &Case, what: &str) -> Outcome<ServiceName> {
    let name = format!("{}/{what}", case.name());
    ServiceName::new(&name).map_err(problem("name a service"))
}

/// How many messages wait for the other end, at most.
fn queue(load: &Load) -> usize {
    if load.is_one_way() { (QUEUED_BYTES / load.longest()).clamp(2, QUEUE) } else { load.depth() }
}

/// The first message of a one-way load is answered: until the receiver has found a new sender, what does not fit into
/// its queue is lost, whatever the strategy.
fn greet(client: &mut impl super::Client, load: &Load) -> Outcome<()> {
    let mut message = vec![0; load.longest()];
    client.call(&message.clone(), &mut message)?;
    Ok(())
}

/// Its errors are plain enumerations, whose names say what went wrong.
fn problem<E: Debug>(
    what: &'static str,
) -> impl FnOnce(E) -> Box<dyn std::error::Error + Send + Sync> {
    move |error| format!("cannot {what}: {error:?}").into()
}
