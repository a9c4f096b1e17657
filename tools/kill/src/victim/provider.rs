use std::error::Error;

use bellwire::{HandlerError, RunDir, Server};
use bellwire_core::sync::Ordering;

use super::{END, GATE, RAN, VictimTask, stop};
use crate::phase::Scenario;
use crate::service::{
    CallSpec, EVENTS, FULL, LAST_EVENT, NumberedCall, NumberedEvent, PassedSnapshot, RING,
    RingSnapshot, event, server_config,
};

pub(super) fn run(task: VictimTask, run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let scenario = task.scenario;
    let [first, second] = task.snapshots().map(PassedSnapshot::bytes);
    let ring_snapshots = task.snapshots().map(RingSnapshot::bytes);
    let events: Vec<_> = (1..=LAST_EVENT).map(event).collect();
    if scenario == Scenario::Bind {
        stop(GATE);
    }
    let mut builder = Server::builder_with(run_dir, server_config());
    builder.serve::<NumberedCall>(|_, request| handle(&request))?;
    let publisher = builder.publish::<PassedSnapshot>()?;
    let ring_publisher = match scenario {
        Scenario::Broadcast => Some(builder.publish::<RingSnapshot>()?),
        _ => None,
    };
    let event_publisher =
        scenario.has_events().then(|| builder.events::<NumberedEvent>(RING)).transpose()?;
    let server = builder.start()?;
    if scenario == Scenario::Bind {
        stop(END);
    }
    publisher.publish(&first)?;
    let [before, after] = &ring_snapshots;
    if let Some(publisher) = &ring_publisher {
        publisher.publish(before)?;
    }
    let (full, rest) = events.split_at(usize::try_from(FULL)?);
    let (within, last) = rest.split_at(usize::try_from(EVENTS)?);
    let (oldest, full) = full.split_at(1);
    if let Some(publisher) = &event_publisher {
        publisher.send_all(oldest)?;
    }
    // The survivor connects here.
    stop(GATE);
    if scenario == Scenario::Fetch {
        publisher.publish(&second)?;
    }
    if let Some(publisher) = &event_publisher {
        publisher.send_all(full)?;
    }
    stop(GATE);
    if let Some(publisher) = &event_publisher {
        let (one, more) = within.split_at(1);
        publisher.send_all(one)?;
        publisher.send_all(more)?;
        if scenario == Scenario::Events {
            publisher.deepen(2 * RING)?;
            publisher.send_all(last)?;
        }
    }
    if let Some(publisher) = &ring_publisher {
        publisher.publish(after)?;
    }
    match scenario {
        Scenario::Publish => drop(publisher.publish(&second)?),
        Scenario::Close => drop(server.stop()),
        _ => {}
    }
    stop(END);
    Ok(())
}

fn handle(request: &[u8]) -> Result<Vec<u8>, HandlerError> {
    let spec = CallSpec::read(request).ok_or_else(|| HandlerError::new("no such request"))?;
    RAN.store(spec.number, Ordering::Relaxed);
    Ok(spec.respond())
}
