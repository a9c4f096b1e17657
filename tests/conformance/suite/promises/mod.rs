//! The promises. A serving end is a script: what it does at each step.

mod calls;
mod ends;
mod rings;
mod violations;

use std::time::Duration;

use bellwire_core::call::{SubmitError, Ticket};
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::PushError;
use bellwire_core::wire::Status;
use bellwire_core::{Deadline, Geometry, Port, Word};

use super::endpoints::{Endpoints, Next, Taken};
pub(crate) use calls::*;
pub(crate) use ends::*;
pub(crate) use rings::*;
pub(crate) use violations::*;

/// What an event index holds when its end does not wait.
const NOBODY: u64 = u64::MAX;
/// Long enough to park, for a wait in vain.
const SHORT: Duration = Duration::from_millis(5);

fn never() -> Deadline {
    Deadline::NEVER
}

fn tiny() -> Geometry {
    Geometry::new(4096).unwrap()
}

fn payload(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(167) ^ at ^ at >> 8) as u8).collect()
}

/// Answers each request with itself.
fn echo(endpoints: &mut dyn Endpoints) -> Next {
    if !endpoints.flush() {
        return Next::Park;
    }
    while let Some(taken) = endpoints.take() {
        if let Taken::Request(id, payload) = taken {
            endpoints.answer(id, &payload);
        }
    }
    Next::Park
}

/// Takes what comes and answers nothing.
fn swallow(endpoints: &mut dyn Endpoints) -> Next {
    while endpoints.take().is_some() {}
    Next::Park
}

fn caller_waits_for_data(endpoints: &dyn Endpoints) -> bool {
    endpoints.load(Word::WantData) != NOBODY
}

fn caller_waits_for_room(endpoints: &dyn Endpoints) -> bool {
    endpoints.load(Word::WantSpace) != NOBODY
}

fn wait<P: Port>(driver: &mut CallDriver<P>) -> Result<(Ticket, Vec<u8>), CallFailed> {
    let mut buffer = Vec::new();
    let reply = driver.wait_for_reply(&mut never(), &mut buffer)?;
    assert_eq!((reply.status, reply.attached), (Status::Ok, false));
    buffer.truncate(reply.len);
    Ok((reply.ticket, buffer))
}

fn call<P: Port>(driver: &mut CallDriver<P>, payload: &[u8]) -> Vec<u8> {
    let ticket = driver.submit(payload).unwrap();
    let (answered, answer) = wait(driver).unwrap();
    assert_eq!(answered, ticket);
    answer
}

/// Fills the lane; the requests that went in.
fn fill<P: Port>(driver: &mut CallDriver<P>, payload: &[u8]) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    loop {
        match driver.submit(payload) {
            Ok(ticket) => tickets.push(ticket),
            Err(CallFailed::Submit(SubmitError::Push(PushError::Full { .. }))) => return tickets,
            Err(error) => panic!("{error}"),
        }
    }
}

fn full(error: &CallFailed) -> bool {
    matches!(error, CallFailed::Submit(SubmitError::Push(PushError::Full { .. })))
}
