//! What a survivor must say, given how far its victim came.

use crate::error::{Error, Result};
use crate::line::{Ended, Settled};
use crate::phase::{Scenario, Side};
use crate::victim::Orders;

/// What a victim had done when it was killed, as its own memory told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truth {
    /// How many of its requests, or of its answers, were published to the last byte.
    pub(super) published: u64,
    /// Out of how many.
    pub(super) of: u64,
    /// It had said that it took the survivor's last request.
    pub(super) taken: bool,
    /// Its handler had run for that request.
    pub(super) ran: bool,
}

/// Judges how the calling survivor's half ended.
pub(super) fn ended(orders: Orders, truth: Truth, ended: &Ended) -> Result<()> {
    let scenario = orders.scenario;
    let wrong = |why: &str| Err(Error::Survivor(format!("{why}: {ended:?}; {truth:?}")));
    match ended {
        Ended::Garbled(_) => wrong("it was given what nobody sent"),
        Ended::Right if scenario.calls() && truth.published < truth.of => {
            wrong("it has an answer that was not published")
        }
        Ended::Right => Ok(()),
        Ended::Failed { got, .. } if scenario.calls() && *got != truth.published => {
            wrong("it has not as many answers as were published")
        }
        _ if truth.published == truth.of => wrong("what was published is lost"),
        Ended::Unavailable if scenario.calls() || scenario == Scenario::Open => {
            wrong("a call ends in an error that says why")
        }
        Ended::Unavailable => Ok(()),
        Ended::Failed { .. } if !scenario.calls() && scenario != Scenario::Open => {
            wrong("an absent provider of snapshots is a state, not an error")
        }
        Ended::Failed { kind, .. } if kind != "PeerGone" && kind != "Absent" => {
            wrong("a death is told as something else")
        }
        Ended::Failed { not_run: true, .. } if truth.ran => {
            wrong("it says that the handler did not run, and it did")
        }
        Ended::Failed { not_run: false, .. } if scenario.calls() && !truth.taken => {
            wrong("it says that a handler may have run for a request that was never taken")
        }
        Ended::Failed { .. } => Ok(()),
    }
}

/// Judges what is left when the victim is gone.
pub(super) fn settled(orders: Orders, truth: Truth, settled: &Settled) -> Result<()> {
    at_rest(settled)?;
    if orders.side == Side::Server {
        return Ok(());
    }
    let mut sent = vec![orders.number];
    let published = usize::try_from(truth.published).unwrap_or(0);
    sent.extend(orders.requests().take(published));
    if settled.ran != sent {
        let what =
            format!("requests {sent:?} were published, and {:?} reached the handler", settled.ran);
        return Err(Error::Survivor(what));
    }
    Ok(())
}

/// Judges what a survivor holds without a peer.
pub(super) fn at_rest(settled: &Settled) -> Result<()> {
    if !settled.wrong.is_empty() {
        return Err(Error::Survivor(settled.wrong.clone()));
    }
    if !settled.left.is_empty() {
        return Err(Error::Survivor(format!("it does not give back: {}", settled.left)));
    }
    Ok(())
}
