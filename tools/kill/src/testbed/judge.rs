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

    fn peer_gone(not_run: bool) -> ScenarioResult {
        ScenarioResult::Failed {
            kind: "PeerGone".to_owned(),
            text: String::new(),
            not_run,
            answers: 0,
        }
    }

    #[track_caller]
    fn assert_wrong(task: VictimTask, state: VictimState, result: &ScenarioResult, part: &str) {
        let error = check_result(task, state, result).unwrap_err().to_string();
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }

    #[test]
    fn a_death_is_reported_and_a_published_answer_arrives() {
        assert!(check_result(CALL, UNTOUCHED, &peer_gone(true)).is_ok());
        assert!(check_result(CALL, RAN, &peer_gone(false)).is_ok());
        assert!(check_result(CALL, ANSWERED, &ScenarioResult::Correct).is_ok());
    }

    #[test]
    fn published_messages_are_neither_lost_nor_invented() {
        assert_wrong(CALL, ANSWERED, &peer_gone(false), "as many answers as were published");
        assert_wrong(CALL, RAN, &ScenarioResult::Correct, "was not published");
        assert_wrong(CALL, ANSWERED, &ScenarioResult::Corrupt("x".to_owned()), "nobody sent");
        let burst = VictimTask { scenario: Scenario::Burst, ..CALL };
        let three = VictimState { published: 3, total: 4, ..RAN };
        assert_wrong(burst, three, &peer_gone(false), "as many answers as were published");
    }

    #[test]
    fn whether_a_handler_ran_is_reported_correctly() {
        assert_wrong(CALL, RAN, &peer_gone(true), "did not run, and it did");
        assert_wrong(CALL, UNTOUCHED, &peer_gone(false), "never taken");
    }

    #[test]
    fn a_death_is_neither_a_deadline_nor_an_absent_service() {
        let deadline = ScenarioResult::Failed {
            kind: "Deadline".to_owned(),
            text: String::new(),
            not_run: false,
            answers: 0,
        };
        assert_wrong(CALL, RAN, &deadline, "reported as something else");
        assert_wrong(CALL, RAN, &ScenarioResult::Unavailable, "an error that says why");
        let fetch = VictimTask { scenario: Scenario::Fetch, ..CALL };
        assert_wrong(fetch, UNTOUCHED, &peer_gone(true), "a state, not an error");
        assert!(check_result(fetch, UNTOUCHED, &ScenarioResult::Unavailable).is_ok());
    }

    #[test]
    fn every_published_event_is_taken_or_counted() {
        let events = VictimTask { scenario: Scenario::Events, ..CALL };
        let two = VictimState { published: 2, total: 3, ..UNTOUCHED };
        assert!(check_result(events, two, &ScenarioResult::Events(2)).is_ok());
        let wanted = "as many events as were published";
        assert_wrong(events, two, &ScenarioResult::Events(1), wanted);
        assert_wrong(events, two, &ScenarioResult::Events(3), wanted);
        assert_wrong(events, two, &ScenarioResult::Correct, "was not published");
        let broadcast = VictimTask { scenario: Scenario::Broadcast, ..CALL };
        let announced = VictimState { published: 1, ..UNTOUCHED };
        assert_wrong(broadcast, announced, &ScenarioResult::Unavailable, "is lost");
    }

    #[test]
    fn a_handler_runs_exactly_what_was_published() {
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
