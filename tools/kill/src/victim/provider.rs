use std::error::Error;

use bellwire::{HandlerError, RunDir, Server};
use bellwire_core::sync::Ordering;

use super::{END, GATE, RAN, VictimTask, stop};
use crate::phase::Scenario;
use crate::service::{CallSpec, NumberSnapshot, NumberedCall, server_config};

pub(super) fn run(task: VictimTask, run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let scenario = task.scenario;
    let [first, second] = task.snapshots().map(NumberSnapshot::bytes);
    if scenario == Scenario::Bind {
        stop(GATE);
    }
    let mut builder = Server::builder_with(run_dir, server_config());
    builder.serve::<NumberedCall>(|_, request| handle(&request))?;
    let publisher = builder.publish::<NumberSnapshot>()?;
    let server = builder.start()?;
    if scenario == Scenario::Bind {
        stop(END);
    }
    publisher.publish(&first)?;
    // The survivor connects here.
    stop(GATE);
    if scenario == Scenario::Fetch {
        publisher.publish(&second)?;
    }
    stop(GATE);
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
