use std::ops::Range;
use std::time::Duration;

use bellwire::{
    CallError, Client, Delivery, Doorbell, ErrorKind, Executed, ProviderState, RefreshError,
    Refreshed, RunDir, Snapshot, SnapshotCache, StartAt, SubscribeError, Subscriber,
};

use super::Survivor;
use crate::channel::{Command, Response, ScenarioResult};
use crate::phase::Scenario;
use crate::service::{
    ATTACHED, CallSpec, FULL, LAST_EVENT, LONG, NumberedCall, NumberedEvent, PassedSnapshot,
    RingSnapshot, SHORT, Torn, client_config, event,
};

/// The client of all server victims, one after the other.
pub(super) struct Caller {
    run_dir: RunDir,
    client: Client<NumberedCall>,
    cache: SnapshotCache<PassedSnapshot>,
    ring_cache: SnapshotCache<RingSnapshot>,
    subscriber: Subscriber<NumberedEvent>,
    /// The last event of this publisher that was taken or counted as missed.
    last_event: u64,
    doorbell: Doorbell,
}

/// How long it waits for a snapshot: longer than any victim lives.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a subscriber looks whether its publisher is still there.
const EVENT_TIMEOUT: Duration = Duration::from_millis(4);

impl Caller {
    pub(super) fn new(run_dir: &RunDir) -> Self {
        let config = || client_config(Doorbell::Futex);
        Self {
            run_dir: run_dir.clone(),
            client: Client::with_config(run_dir, config()),
            cache: SnapshotCache::with_config(run_dir, config()),
            ring_cache: SnapshotCache::with_config(run_dir, config()),
            subscriber: Subscriber::with_config(run_dir, StartAt::Oldest, config()),
            last_event: 0,
            doorbell: Doorbell::Futex,
        }
    }

    /// Closes the session by replacing the client.
    fn replace_client(&mut self) {
        self.client = Client::with_config(&self.run_dir, client_config(self.doorbell));
    }

    fn connect(&mut self, scenario: Scenario, number: u64, snapshot: Option<u64>) -> Response {
        let result = match self.call(number, SHORT, SHORT) {
            ScenarioResult::Correct if scenario.has_events() => self.first_event(),
            ScenarioResult::Correct => snapshot.map_or(ScenarioResult::Correct, |number| {
                if scenario == Scenario::Broadcast {
                    let found = self.ring_cache.refresh_within(SNAPSHOT_TIMEOUT);
                    return check_snapshot(&self.ring_cache, found, number);
                }
                let found = self.cache.refresh_within(SNAPSHOT_TIMEOUT);
                check_snapshot(&self.cache, found, number)
            }),
            failure => failure,
        };
        match result {
            ScenarioResult::Correct => Response::Done,
            failure => Response::Failed(format!("a call to a new provider fails: {failure:?}")),
        }
    }

    fn call(&mut self, number: u64, request: usize, answer: usize) -> ScenarioResult {
        let spec = CallSpec { number, answer, hold: false };
        match self.client.call(&spec.request(request)) {
            Ok(bytes) if spec.is_answer(&bytes) => ScenarioResult::Correct,
            Ok(bytes) => {
                ScenarioResult::Corrupt(format!("{} bytes: {:?}", bytes.len(), bytes.get(..64)))
            }
            Err(error) => failed(&error, 0),
        }
    }

    /// Sends several requests, and then takes the answers that arrived.
    fn burst(&mut self, numbers: Range<u64>) -> ScenarioResult {
        let spec = |number| CallSpec { number, answer: SHORT, hold: false };
        let Some(session) = self.client.session() else { return ScenarioResult::Unavailable };
        let mut failure = None;
        let mut last = None;
        for number in numbers.clone() {
            let request = spec(number).request(SHORT);
            // The last one waits for its answer.
            let sent = if number + 1 < numbers.end {
                session.submit(&request).map(drop)
            } else {
                session.call(&request).map(|answer| last = Some(answer))
            };
            if let Err(error) = sent {
                failure = Some(error);
                break;
            }
        }
        let mut answers = Vec::new();
        while let Ok(Some((_, Ok(answer)))) = session.try_reply() {
            answers.push(answer);
        }
        answers.extend(last);
        let mut both = numbers.zip(&answers);
        if !both.all(|(number, answer)| spec(number).is_answer(answer)) {
            return ScenarioResult::Corrupt(format!("one of {} answers", answers.len()));
        }
        failure.map_or(ScenarioResult::Correct, |error| failed(&error, answers.len() as u64))
    }

    /// Follows a new publisher, and takes its first event.
    fn first_event(&mut self) -> ScenarioResult {
        while self.last_event != 1 {
            match self.subscriber.next(Some(SNAPSHOT_TIMEOUT)) {
                Ok(Some(Delivery::Restarted)) => self.last_event = 0,
                found => {
                    if let Some(wrong) = self.check_event(found) {
                        return wrong;
                    }
                }
            }
        }
        ScenarioResult::Correct
    }

    /// Takes the events up to `last`, or until the publisher is absent.
    fn events(&mut self, last: u64) -> ScenarioResult {
        while self.last_event < last {
            // A death ends the sleep, but not the wait: the next publisher may come.
            let found = self.subscriber.next(Some(EVENT_TIMEOUT));
            if matches!(found, Ok(None)) {
                if self.subscriber.state() == ProviderState::Ready {
                    continue;
                }
                return ScenarioResult::Events(self.last_event.saturating_sub(FULL));
            }
            if let Some(wrong) = self.check_event(found) {
                return wrong;
            }
        }
        ScenarioResult::Correct
    }

    /// Checks that what was found follows the last event. Returns what is wrong.
    fn check_event(
        &mut self,
        found: Result<Option<Delivery<Vec<u8>>>, SubscribeError>,
    ) -> Option<ScenarioResult> {
        let next = self.last_event + 1;
        match found {
            Ok(Some(Delivery::Event { sequence, event: bytes }))
                if sequence == next && bytes == event(next) =>
            {
                self.last_event = next;
                None
            }
            Ok(Some(Delivery::Missed { events })) => {
                self.last_event += events;
                None
            }
            Err(SubscribeError::Call(error)) => Some(failed(&error, 0)),
            found => Some(ScenarioResult::Corrupt(format!("{found:?} instead of event {next}"))),
        }
    }

    fn run_scenario(&mut self, scenario: Scenario, number: u64) -> ScenarioResult {
        match scenario {
            Scenario::Burst => self.burst(number..number + scenario.requests()),
            Scenario::Open => match self.client.connect() {
                Ok(_) => ScenarioResult::Correct,
                Err(error) => failed(&error, 0),
            },
            Scenario::Grow => self.call(number, SHORT, LONG),
            Scenario::Follow => self.call(number, LONG, SHORT),
            Scenario::Attach => self.call(number, ATTACHED, ATTACHED),
            Scenario::Publish => {
                let found = self.cache.wait_for_change(Some(SNAPSHOT_TIMEOUT));
                check_snapshot(&self.cache, found, number)
            }
            Scenario::Broadcast => {
                let found = self.ring_cache.wait_for_change(Some(SNAPSHOT_TIMEOUT));
                check_snapshot(&self.ring_cache, found, number)
            }
            Scenario::Events => self.events(LAST_EVENT),
            Scenario::Overrun => self.events(LAST_EVENT - 1),
            Scenario::Fetch => {
                let found = self.cache.refresh_within(SNAPSHOT_TIMEOUT);
                check_snapshot(&self.cache, found, number)
            }
            _ => self.call(number, SHORT, SHORT),
        }
    }
}

impl Survivor for Caller {
    fn execute(&mut self, command: &Command) -> Response {
        match *command {
            Command::Connect { scenario, number, snapshot } => {
                if self.doorbell != scenario.doorbell() {
                    self.doorbell = scenario.doorbell();
                    self.replace_client();
                }
                self.connect(scenario, number, snapshot)
            }
            Command::Disconnect => {
                self.replace_client();
                Response::Done
            }
            Command::Run { scenario, number } => {
                Response::Finished(self.run_scenario(scenario, number))
            }
            _ => Response::Failed(format!("the client survivor does not support {command:?}")),
        }
    }

    /// Without a provider, the client and each call report that it is absent, and a refresh finds none.
    fn problem(&mut self) -> String {
        let state = self.client.refresh();
        if state != ProviderState::Absent {
            return format!("its client is {state:?}, not absent");
        }
        match self.client.call(&CallSpec { number: 0, answer: SHORT, hold: false }.request(SHORT)) {
            Err(error) if error.kind() == ErrorKind::Absent && error.executed() == Executed::No => {
            }
            result => return format!("a call without a provider returns {result:?}"),
        }
        let found = [
            self.cache.refresh_within(SNAPSHOT_TIMEOUT),
            self.ring_cache.refresh_within(SNAPSHOT_TIMEOUT),
        ];
        if !found.iter().all(|found| matches!(found, Ok(Refreshed::Unavailable))) {
            return format!("its snapshots are {found:?} without a provider");
        }
        // It waits, as it may have waited when its publisher died: who waits watches for the next one.
        let found = self.subscriber.next(Some(Duration::from_micros(1)));
        match (found, self.subscriber.state()) {
            (Ok(None), ProviderState::Absent) => String::new(),
            found => format!("its subscriber finds {found:?} without a provider"),
        }
    }
}

/// Checks the result of a refresh that should have found the snapshot `number`.
fn check_snapshot<T: Snapshot<Index = u64>>(
    cache: &SnapshotCache<T>,
    found: Result<Refreshed, RefreshError<Torn>>,
    number: u64,
) -> ScenarioResult {
    match found {
        Ok(Refreshed::Unavailable) => ScenarioResult::Unavailable,
        Ok(Refreshed::Changed) => match cache.current().map(|snapshot| *snapshot.index()) {
            Some(held) if held == number => ScenarioResult::Correct,
            held => ScenarioResult::Corrupt(format!("snapshot {held:?} instead of {number}")),
        },
        Ok(found) => ScenarioResult::Corrupt(format!("{found:?} instead of snapshot {number}")),
        Err(RefreshError::Call(error)) => failed(&error, 0),
        Err(error) => ScenarioResult::Corrupt(error.to_string()),
    }
}

fn failed(error: &CallError, answers: u64) -> ScenarioResult {
    ScenarioResult::Failed {
        kind: format!("{:?}", error.kind()),
        text: error.to_string(),
        not_run: error.executed() == Executed::No,
        answers,
    }
}
