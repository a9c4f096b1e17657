//! Checks the reports of a survivor against how far its victim got.

use crate::channel::{QuiescentState, ScenarioResult};
use crate::error::{Error, Result};
use crate::phase::{Scenario, Side};
use crate::victim::VictimTask;

/// What a victim had done when it was killed, as read from its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct VictimState {
    /// How many of its requests, or of its answers, were published completely.
    pub(super) published: u64,
    /// How many requests, or answers, the scenario has.
    pub(super) total: u64,
    /// Whether it had published that it took the survivor's last request.
    pub(super) taken: bool,
    /// Whether its handler had run for that request.
    pub(super) ran: bool,
}

/// Checks the result of the calling survivor's half of the scenario.
pub(super) fn check_result(
    task: VictimTask,
    state: VictimState,
    result: &ScenarioResult,
) -> Result<()> {
    let scenario = task.scenario;
    let wrong = |why: &str| Err(Error::Survivor(format!("{why}: {result:?}; {state:?}")));
    let counts = scenario.calls() || scenario.has_events();
    match result {
        ScenarioResult::Corrupt(_) => wrong("it received what nobody sent"),
        ScenarioResult::Correct if counts && state.published < state.total => {
            wrong("it has an answer or an event that was not published")
        }
        ScenarioResult::Correct => Ok(()),
        // One more may be in a larger ring, which it was not passed any more.
        ScenarioResult::Events(taken) if *taken == state.published => Ok(()),
        ScenarioResult::Events(_) => wrong("it does not have as many events as were published"),
        ScenarioResult::Failed { answers, .. }
            if scenario.calls() && *answers != state.published =>
        {
            wrong("it does not have as many answers as were published")
        }
        _ if state.published == state.total => wrong("what was published is lost"),
        ScenarioResult::Unavailable if scenario.calls() || scenario == Scenario::Open => {
            wrong("a call must end in an error that says why")
        }
        ScenarioResult::Unavailable => Ok(()),
        ScenarioResult::Failed { .. } if !scenario.calls() && scenario != Scenario::Open => {
            wrong("an absent publisher is a state, not an error")
        }
        ScenarioResult::Failed { kind, .. } if kind != "PeerGone" && kind != "Absent" => {
            wrong("a death is reported as something else")
        }
        ScenarioResult::Failed { not_run: true, .. } if state.ran => {
            wrong("it reports that the handler did not run, and it did")
        }
        ScenarioResult::Failed { not_run: false, .. } if scenario.calls() && !state.taken => {
            wrong("it reports that a handler may have run for a request that was never taken")
        }
        ScenarioResult::Failed { .. } => Ok(()),
    }
}

/// Checks the state of the survivor after the death of the victim.
pub(super) fn check_quiescent(
    task: VictimTask,
    state: VictimState,
    quiescent: &QuiescentState,
) -> Result<()> {
    check_clean(quiescent)?;
    if task.side == Side::Server {
        return Ok(());
    }
    let mut sent = vec![task.number];
    let published = usize::try_from(state.published).unwrap_or(0);
    sent.extend(task.requests().take(published));
    if quiescent.ran != sent {
        let what = format!(
            "requests {sent:?} were published, and {:?} reached the handler",
            quiescent.ran
        );
        return Err(Error::Survivor(what));
    }
    Ok(())
}

/// Checks that a survivor without a peer leaks nothing and is in the expected state.
pub(super) fn check_clean(state: &QuiescentState) -> Result<()> {
    if !state.problem.is_empty() {
        return Err(Error::Survivor(state.problem.clone()));
    }
    if !state.leaked.is_empty() {
        return Err(Error::Survivor(format!("it leaks: {}", state.leaked)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{VictimState, check_quiescent, check_result};
    use crate::channel::{QuiescentState, ScenarioResult};
    use crate::phase::{Language, Scenario, Side};
    use crate::victim::VictimTask;

    const CALL: VictimTask = VictimTask {
        language: Language::Rust,
        side: Side::Server,
        scenario: Scenario::Call,
        number: 8,
        hold: false,
    };
    const UNTOUCHED: VictimState = VictimState { published: 0, total: 1, taken: false, ran: false };
    const RAN: VictimState = VictimState { taken: true, ran: true, ..UNTOUCHED };
    const ANSWERED: VictimState = VictimState { published: 1, ..RAN };

    fn failed(kind: &str, not_run: bool) -> ScenarioResult {
        let (kind, text) = (kind.to_owned(), String::new());
        ScenarioResult::Failed { kind, text, not_run, answers: 0 }
    }

    #[test]
    fn a_result_is_judged_by_the_victims_published_and_taken_records() {
        use Scenario::{Broadcast, Burst, Call, Events, Fetch};
        use ScenarioResult::{Correct, Corrupt, Unavailable};
        let peer_gone = |not_run| failed("PeerGone", not_run);
        let three = VictimState { published: 3, total: 4, ..RAN };
        let two = VictimState { published: 2, total: 3, ..UNTOUCHED };
        let announced = VictimState { published: 1, ..UNTOUCHED };
        // What is wrong with it; nothing, if it is as it must be.
        let rows = [
            // A death is reported, and a published answer arrives.
            (Call, UNTOUCHED, peer_gone(true), ""),
            (Call, RAN, peer_gone(false), ""),
            (Call, ANSWERED, Correct, ""),
            // Published messages are neither lost nor invented.
            (Call, ANSWERED, peer_gone(false), "as many answers as were published"),
            (Call, RAN, Correct, "was not published"),
            (Call, ANSWERED, Corrupt("x".to_owned()), "nobody sent"),
            (Burst, three, peer_gone(false), "as many answers as were published"),
            // Whether a handler ran is reported correctly.
            (Call, RAN, peer_gone(true), "did not run, and it did"),
            (Call, UNTOUCHED, peer_gone(false), "never taken"),
            // A death is neither a deadline nor an absent service.
            (Call, RAN, failed("Deadline", false), "reported as something else"),
            (Call, RAN, Unavailable, "an error that says why"),
            (Fetch, UNTOUCHED, peer_gone(true), "a state, not an error"),
            (Fetch, UNTOUCHED, Unavailable, ""),
            // Every published event is taken or counted.
            (Events, two, ScenarioResult::Events(2), ""),
            (Events, two, ScenarioResult::Events(1), "as many events as were published"),
            (Events, two, ScenarioResult::Events(3), "as many events as were published"),
            (Events, two, Correct, "was not published"),
            (Broadcast, announced, Unavailable, "is lost"),
        ];
        for (row, (scenario, state, result, part)) in rows.into_iter().enumerate() {
            let judged = check_result(VictimTask { scenario, ..CALL }, state, &result);
            let wrong = judged.err().map_or_else(String::new, |error| error.to_string());
            let is_right = if part.is_empty() { wrong.is_empty() } else { wrong.contains(part) };
            assert!(is_right, "row {row}: {wrong:?} instead of {part:?}");
        }
    }

    #[test]
    fn a_handler_runs_exactly_the_published_requests() {
        let client = VictimTask { side: Side::Client, ..CALL };
        let ran = |ran: &[u64]| QuiescentState { ran: ran.to_vec(), ..QuiescentState::default() };
        assert!(check_quiescent(client, UNTOUCHED, &ran(&[8])).is_ok());
        assert!(check_quiescent(client, ANSWERED, &ran(&[8, 11])).is_ok());
        assert!(check_quiescent(client, ANSWERED, &ran(&[8])).is_err(), "lost");
        assert!(check_quiescent(client, UNTOUCHED, &ran(&[8, 11])).is_err(), "invented");
        assert!(check_quiescent(client, ANSWERED, &ran(&[8, 11, 11])).is_err(), "twice");
    }

    #[test]
    fn leaks_and_a_wrong_state_are_errors() {
        let clean = QuiescentState::default();
        let leaked = QuiescentState { leaked: "one descriptor".to_owned(), ..clean.clone() };
        let problem = QuiescentState { problem: "a session".to_owned(), ..clean };
        let error = |state| check_quiescent(CALL, RAN, state).unwrap_err().to_string();
        assert!(error(&leaked).contains("one descriptor"));
        assert!(error(&problem).contains("a session"));
    }
}
