//! What a survivor must report, given how far its victim got.

use crate::error::{Error, Result};
use crate::line::{Ended, Settled};
use crate::phase::{Scenario, Side};
use crate::victim::Orders;

/// What a victim had done when it was killed, read from its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truth {
    /// How many of its requests, or of its answers, were published to the last byte.
    pub(super) published: u64,
    /// Out of how many.
    pub(super) of: u64,
    /// It had published that it took the survivor's last request.
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

#[cfg(test)]
mod tests {
    use super::{Truth, ended, settled};
    use crate::line::{Ended, Settled};
    use crate::phase::{Scenario, Side};
    use crate::victim::Orders;

    const CALL: Orders =
        Orders { side: Side::Server, scenario: Scenario::Call, number: 8, hold: false };
    const UNTOUCHED: Truth = Truth { published: 0, of: 1, taken: false, ran: false };
    const RAN: Truth = Truth { taken: true, ran: true, ..UNTOUCHED };
    const ANSWERED: Truth = Truth { published: 1, ..RAN };

    fn gone(not_run: bool) -> Ended {
        Ended::Failed { kind: "PeerGone".to_owned(), text: String::new(), not_run, got: 0 }
    }

    #[track_caller]
    fn is_wrong(orders: Orders, truth: Truth, end: &Ended, part: &str) {
        let error = ended(orders, truth, end).unwrap_err().to_string();
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }

    #[test]
    fn a_death_is_told_and_an_answer_that_was_published_is_had() {
        assert!(ended(CALL, UNTOUCHED, &gone(true)).is_ok());
        assert!(ended(CALL, RAN, &gone(false)).is_ok());
        assert!(ended(CALL, ANSWERED, &Ended::Right).is_ok());
    }

    #[test]
    fn what_was_published_must_not_be_lost_nor_made_up() {
        is_wrong(CALL, ANSWERED, &gone(false), "as many answers as were published");
        is_wrong(CALL, RAN, &Ended::Right, "was not published");
        is_wrong(CALL, ANSWERED, &Ended::Garbled("x".to_owned()), "nobody sent");
        let burst = Orders { scenario: Scenario::Burst, ..CALL };
        let three = Truth { published: 3, of: 4, ..RAN };
        is_wrong(burst, three, &gone(false), "as many answers as were published");
    }

    #[test]
    fn whether_a_handler_ran_is_told_as_it_was() {
        is_wrong(CALL, RAN, &gone(true), "did not run, and it did");
        is_wrong(CALL, UNTOUCHED, &gone(false), "never taken");
    }

    #[test]
    fn a_death_is_neither_a_deadline_nor_silence() {
        let late = Ended::Failed {
            kind: "Deadline".to_owned(),
            text: String::new(),
            not_run: false,
            got: 0,
        };
        is_wrong(CALL, RAN, &late, "told as something else");
        is_wrong(CALL, RAN, &Ended::Unavailable, "an error that says why");
        let fetch = Orders { scenario: Scenario::Fetch, ..CALL };
        is_wrong(fetch, UNTOUCHED, &gone(true), "a state, not an error");
        assert!(ended(fetch, UNTOUCHED, &Ended::Unavailable).is_ok());
    }

    #[test]
    fn a_handler_runs_exactly_what_was_published() {
        let client = Orders { side: Side::Client, ..CALL };
        let ran = |ran: &[u64]| Settled { ran: ran.to_vec(), ..Settled::default() };
        assert!(settled(client, UNTOUCHED, &ran(&[8])).is_ok());
        assert!(settled(client, ANSWERED, &ran(&[8, 11])).is_ok());
        assert!(settled(client, ANSWERED, &ran(&[8])).is_err(), "lost");
        assert!(settled(client, UNTOUCHED, &ran(&[8, 11])).is_err(), "made up");
        assert!(settled(client, ANSWERED, &ran(&[8, 11, 11])).is_err(), "twice");
    }

    #[test]
    fn what_is_left_is_wrong() {
        let left = Settled { left: "one descriptor".to_owned(), ..Settled::default() };
        assert!(settled(CALL, RAN, &left).unwrap_err().to_string().contains("one descriptor"));
        let wrong = Settled { wrong: "a session".to_owned(), ..Settled::default() };
        assert!(settled(CALL, RAN, &wrong).unwrap_err().to_string().contains("a session"));
    }
}
