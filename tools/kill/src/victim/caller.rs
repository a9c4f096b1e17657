use std::error::Error;
use std::time::Duration;

use bellwire::{Client, Delivery, Refreshed, RunDir, SnapshotCache, StartAt, Subscriber};

use super::{END, GATE, VictimTask, stop};
use crate::phase::Scenario;
use crate::service::{
    ATTACHED, CallSpec, EVENTS, LONG, NumberedCall, NumberedEvent, PassedSnapshot, SHORT,
    client_config, event,
};

const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn run(task: VictimTask, run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let VictimTask { scenario, number, hold, .. } = task;
    let config = || client_config(scenario.doorbell());
    let mut client = Client::<NumberedCall>::with_config(run_dir, config());
    let hello = CallSpec { number, answer: SHORT, hold: false };
    check(hello, &client.call(&hello.request(SHORT))?)?;
    match scenario {
        Scenario::Open => {
            drop(client);
            let mut client = Client::<NumberedCall>::with_config(run_dir, config());
            stop(GATE);
            client.connect()?;
            stop(END);
        }
        Scenario::Fetch => {
            let mut cache = SnapshotCache::<PassedSnapshot>::with_config(run_dir, config());
            expect(cache.refresh_within(TIMEOUT)? == Refreshed::Changed, "the first snapshot")?;
            stop(GATE);
            let found = cache.refresh_within(TIMEOUT)?;
            stop(END);
            expect(found == Refreshed::Changed, "the next snapshot")?;
        }
        Scenario::Subscribe => {
            stop(GATE);
            let mut subscriber =
                Subscriber::<NumberedEvent>::with_config(run_dir, StartAt::Oldest, config());
            let mut taken = Vec::new();
            for _ in 0..EVENTS {
                taken.push(subscriber.next(Some(TIMEOUT))?);
            }
            stop(END);
            let wanted = |sequence| Some(Delivery::Event { sequence, event: event(sequence) });
            expect(taken == (1..=EVENTS).map(wanted).collect::<Vec<_>>(), "every event")?;
        }
        Scenario::Close => {
            stop(GATE);
            drop(client);
            stop(END);
        }
        Scenario::Burst => {
            let spec = |number| CallSpec { number, answer: SHORT, hold };
            let requests: Vec<_> =
                task.requests().map(|number| spec(number).request(SHORT)).collect();
            let session = client.connect()?;
            stop(GATE);
            let (last, rest) = requests.split_last().ok_or("no requests")?;
            rest.iter().try_for_each(|request| session.submit(request).map(drop))?;
            let answered = session.call(last)?;
            let mut answers = Vec::new();
            while let Some((_, answer)) = session.try_reply()? {
                answers.push(answer?);
            }
            stop(END);
            answers.push(answered);
            expect(answers.len() == requests.len(), "every answer")?;
            let mut both = task.requests().zip(&answers);
            both.try_for_each(|(number, answer)| check(spec(number), answer))?;
        }
        _ => {
            let (len, answer) = match scenario {
                Scenario::Grow => (LONG, SHORT),
                Scenario::Follow => (SHORT, LONG),
                Scenario::Attach => (ATTACHED, ATTACHED),
                _ => (SHORT, SHORT),
            };
            let spec = CallSpec { number: task.requests().start, answer, hold };
            let request = spec.request(len);
            stop(GATE);
            let answered = client.call(&request)?;
            stop(END);
            check(spec, &answered)?;
        }
    }
    Ok(())
}

fn check(spec: CallSpec, answer: &[u8]) -> Result<(), Box<dyn Error>> {
    expect(spec.is_answer(answer), "the right answer")
}

fn expect(is_there: bool, what: &str) -> Result<(), Box<dyn Error>> {
    if is_there { Ok(()) } else { Err(format!("{what} did not come").into()) }
}
