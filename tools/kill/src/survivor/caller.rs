use std::ops::Range;
use std::time::Duration;

use bellwire::{
    CallError, Client, Doorbell, ErrorKind, Executed, RefreshError, Refreshed, RunDir,
    SnapshotCache, State,
};

use super::Part;
use crate::line::{Ask, Ended, Told};
use crate::phase::Scenario;
use crate::service::{ATTACHED, Entry, LONG, Ledger, SHORT, Sheet, Torn, client_config};

/// A client that connects to one victim after the other.
pub(super) struct Caller {
    run_dir: RunDir,
    client: Client<Ledger>,
    cache: SnapshotCache<Sheet>,
    doorbell: Doorbell,
}

/// How long it watches for a snapshot: longer than any victim lives.
const WATCH: Duration = Duration::from_secs(60);

impl Caller {
    pub(super) fn new(run_dir: &RunDir) -> Self {
        Self {
            run_dir: run_dir.clone(),
            client: Client::with_config(run_dir, client_config(Doorbell::Futex)),
            cache: SnapshotCache::with_config(run_dir, client_config(Doorbell::Futex)),
            doorbell: Doorbell::Futex,
        }
    }

    /// A client gives its session up by being dropped; its successor is as good.
    fn renew(&mut self) {
        self.client = Client::with_config(&self.run_dir, client_config(self.doorbell));
    }

    fn meet(&mut self, number: u64, sheet: Option<u64>) -> Told {
        let met = match self.call(number, SHORT, SHORT) {
            Ended::Right => sheet.map_or(Ended::Right, |number| {
                let found = self.cache.refresh_within(WATCH);
                self.took(found, number)
            }),
            ended => ended,
        };
        match met {
            Ended::Right => Told::Done,
            ended => Told::Wrong(format!("a fresh provider is not served right: {ended:?}")),
        }
    }

    fn call(&mut self, number: u64, request: usize, answer: usize) -> Ended {
        let entry = Entry { number, answer, hold: false };
        match self.client.call(&entry.request(request)) {
            Ok(bytes) if entry.is_answer(&bytes) => Ended::Right,
            Ok(bytes) => Ended::Garbled(format!("{} bytes: {:?}", bytes.len(), bytes.get(..64))),
            Err(error) => failed(&error, 0),
        }
    }

    /// Sends several requests, and then takes what answers there are.
    fn burst(&mut self, numbers: Range<u64>) -> Ended {
        let entry = |number| Entry { number, answer: SHORT, hold: false };
        let Some(session) = self.client.session() else { return Ended::Unavailable };
        let mut failure = None;
        let mut last = None;
        for number in numbers.clone() {
            let request = entry(number).request(SHORT);
            // The last one waits.
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
        if !both.all(|(number, answer)| entry(number).is_answer(answer)) {
            return Ended::Garbled(format!("one of {} answers", answers.len()));
        }
        failure.map_or(Ended::Right, |error| failed(&error, answers.len() as u64))
    }

    /// The outcome of a refresh that should have found this number.
    fn took(&self, found: Result<Refreshed, RefreshError<Torn>>, number: u64) -> Ended {
        match found {
            Ok(Refreshed::Unavailable) => Ended::Unavailable,
            Ok(Refreshed::Changed) => match self.cache.current().map(|sheet| *sheet.index()) {
                Some(held) if held == number => Ended::Right,
                held => Ended::Garbled(format!("snapshot {held:?} instead of {number}")),
            },
            Ok(found) => Ended::Garbled(format!("{found:?} instead of snapshot {number}")),
            Err(RefreshError::Call(error)) => failed(&error, 0),
            Err(error) => Ended::Garbled(error.to_string()),
        }
    }

    fn act_out(&mut self, scenario: Scenario, number: u64) -> Ended {
        match scenario {
            Scenario::Burst => self.burst(number..number + scenario.requests()),
            Scenario::Open => match self.client.connect() {
                Ok(_) => Ended::Right,
                Err(error) => failed(&error, 0),
            },
            Scenario::Grow => self.call(number, SHORT, LONG),
            Scenario::Follow => self.call(number, LONG, SHORT),
            Scenario::Attach => self.call(number, ATTACHED, ATTACHED),
            Scenario::Publish => {
                let found = self.cache.wait_for_change(Some(WATCH));
                self.took(found, number)
            }
            Scenario::Fetch => {
                let found = self.cache.refresh_within(WATCH);
                self.took(found, number)
            }
            _ => self.call(number, SHORT, SHORT),
        }
    }
}

impl Part for Caller {
    fn act(&mut self, ask: &Ask) -> Told {
        match *ask {
            Ask::Meet { scenario, number, sheet } => {
                if self.doorbell != scenario.doorbell() {
                    self.doorbell = scenario.doorbell();
                    self.renew();
                }
                self.meet(number, sheet)
            }
            Ask::Leave => {
                self.renew();
                Told::Done
            }
            Ask::Act { scenario, number } => Told::Ended(self.act_out(scenario, number)),
            _ => Told::Wrong(format!("a client does not know {ask:?}")),
        }
    }

    /// Without a provider: it is reported absent, and so do calls; the snapshot is kept.
    fn wrong(&mut self) -> String {
        let state = self.client.refresh();
        if state != State::Absent {
            return format!("its client is {state:?}, not absent");
        }
        match self.client.call(&Entry { number: 0, answer: SHORT, hold: false }.request(SHORT)) {
            Err(error) if error.kind() == ErrorKind::Absent && error.executed() == Executed::No => {
            }
            result => return format!("a call to nobody ends in {result:?}"),
        }
        match self.cache.refresh_within(WATCH) {
            Ok(Refreshed::Unavailable) => String::new(),
            found => format!("its snapshot is {found:?} without a provider"),
        }
    }

    fn ran(&mut self) -> Vec<u64> {
        Vec::new()
    }
}

fn failed(error: &CallError, got: u64) -> Ended {
    Ended::Failed {
        kind: format!("{:?}", error.kind()),
        text: error.to_string(),
        not_run: error.executed() == Executed::No,
        got,
    }
}
