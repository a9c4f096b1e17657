use std::error::Error;

use bellwire::{HandlerError, RunDir, Server};
use bellwire_core::sync::Ordering;

use super::{END, GATE, Orders, RAN, stop};
use crate::phase::Scenario;
use crate::service::{Entry, Ledger, Sheet, server_config};

pub(super) fn run(orders: Orders, run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let scenario = orders.scenario;
    let [first, second] = orders.sheets().map(Sheet::bytes);
    if scenario == Scenario::Bind {
        stop(GATE);
    }
    let mut builder = Server::builder_with(run_dir, server_config());
    builder.serve::<Ledger>(|_, request| enter(&request))?;
    let publisher = builder.publish::<Sheet>()?;
    let server = builder.start()?;
    if scenario == Scenario::Bind {
        stop(END);
    }
    publisher.publish(&first)?;
    // The survivor connects to it here.
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

fn enter(request: &[u8]) -> Result<Vec<u8>, HandlerError> {
    let entry = Entry::read(request).ok_or_else(|| HandlerError::new("no such request"))?;
    RAN.store(entry.number, Ordering::Relaxed);
    Ok(entry.respond())
}
