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
    let mut builder = Server::builder_with_config(run_dir, server_config());
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
    // To the publishers that this scenario has.
    let send =
        |events: &[_]| event_publisher.iter().try_for_each(|to| to.send_all(events).map(drop));
    let ring = |bytes: &[u8]| ring_publisher.iter().try_for_each(|to| to.publish(bytes).map(drop));
    publisher.publish(&first)?;
    let [before, after] = &ring_snapshots;
    ring(before)?;
    let (full, rest) = events.split_at(usize::try_from(FULL)?);
    let (within, last) = rest.split_at(usize::try_from(EVENTS)?);
    let (oldest, full) = full.split_at(1);
    send(oldest)?;
    // The survivor connects here.
    stop(GATE);
    if scenario == Scenario::Fetch {
        publisher.publish(&second)?;
    }
    send(full)?;
    stop(GATE);
    let (one, more) = within.split_at(1);
    send(one)?;
    send(more)?;
    if let Some(publisher) = event_publisher.as_ref().filter(|_| scenario == Scenario::Events) {
        publisher.set_depth(2 * RING)?;
        publisher.send_all(last)?;
    }
    ring(after)?;
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
