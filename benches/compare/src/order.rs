//! The coordinator's orders to its processes, and their replies: JSON over the control socket.

use bellwire_floor::process::{Child, Peer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::clock::Usage;
use crate::contender::Counters;

/// The messages between clients and coordinator around [`Order::One`].
pub(crate) const WORD: &[u8] = b"word";

/// What a measuring process is to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Operations until then, in a row, the clock read before and after some of them. All clients end at the same time.
    Row { until: u64 },
    /// Operations until then, each timed.
    Each { until: u64, schedule: Schedule },
    /// One operation, timed, of all clients together: each sends [`WORD`] when it is ready and when it is done, and
    /// continues when it receives the same.
    One,
}

/// When the next operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Schedule {
    /// When the one before has ended.
    Max,
    /// So many a second.
    Rate(u64),
    /// So many ns of sleep after the one before has ended.
    Gap(u64),
}

impl Schedule {
    /// The ns from one operation to the next, at least.
    pub(crate) fn gap(self) -> u64 {
        match self {
            Self::Max => 0,
            Self::Rate(rate) => 1_000_000_000 / rate.max(1),
            Self::Gap(gap) => gap,
        }
    }
}

/// What a measuring process has done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) operations: u64,
    /// The time that they took together, ns.
    pub(crate) ns: u64,
    /// When the first began and the last ended.
    pub(crate) span: (u64, u64),
    /// How often an operation took so many ns, where each was timed.
    pub(crate) took: Vec<(u64, u64)>,
    pub(crate) usage: Usage,
    /// Of the time on the processor, what went into spinning until the next operation was due, ns.
    pub(crate) schedule_spin_ns: u64,
    pub(crate) counters: Counters,
}

/// What a server is to do, and what it answers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServerOrder {
    /// Its [`Usage`] and [`Counters`].
    Usage,
    /// Publish the next generation: when it began.
    Publish,
    /// Wait for the end of a stream: [`Received`](crate::sink::Received).
    Received,
}

/// An answer, or the sentence why there is none.
type Answer<T> = Result<T, String>;

/// Sends a message to a process.
pub(crate) fn send_order(child: &Child, order: &impl Serialize) -> Outcome<()> {
    Ok(child.send(&serde_json::to_vec(order)?)?)
}

/// Waits for its reply.
pub(crate) fn receive_reply<T: DeserializeOwned>(child: &Child) -> Outcome<T> {
    let answer: Answer<T> = serde_json::from_slice(&child.receive()?)?;
    answer.map_err(Into::into)
}

/// Sends an order and waits for the reply.
pub(crate) fn request_reply<T: DeserializeOwned>(
    child: &Child,
    order: &impl Serialize,
) -> Outcome<T> {
    send_order(child, order)?;
    receive_reply(child)
}

/// Executes orders until told to end.
pub(crate) fn execute_orders<O: DeserializeOwned, T: Serialize>(
    peer: &Peer,
    mut each: impl FnMut(O) -> Outcome<T>,
) -> Outcome<()> {
    while let Some(order) = peer.receive()? {
        let answer: Answer<T> = each(serde_json::from_slice(&order)?).map_err(|e| e.to_string());
        peer.send(&serde_json::to_vec(&answer)?)?;
    }
    Ok(())
}
