use std::error::Error;
use std::time::Duration;

use bellwire::{Client, Refreshed, RunDir, SnapshotCache};

use super::{END, GATE, Orders, stop};
use crate::phase::Scenario;
use crate::service::{ATTACHED, Entry, LONG, Ledger, SHORT, Sheet, client_config};

pub(super) fn run(orders: Orders, run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let Orders { scenario, number, hold, .. } = orders;
    let mut client = Client::<Ledger>::with_config(run_dir, client_config(scenario.doorbell()));
    let hello = Entry { number, answer: SHORT, hold: false };
    check(hello, &client.call(&hello.request(SHORT))?)?;
    match scenario {
        Scenario::Open => {
            drop(client);
            let mut client =
                Client::<Ledger>::with_config(run_dir, client_config(scenario.doorbell()));
            stop(GATE);
            client.connect()?;
            stop(END);
        }
        Scenario::Fetch => {
            const PATIENCE: Duration = Duration::from_secs(60);
            let mut cache =
                SnapshotCache::<Sheet>::with_config(run_dir, client_config(scenario.doorbell()));
            expect(cache.refresh_within(PATIENCE)? == Refreshed::Changed, "the first snapshot")?;
            stop(GATE);
            let found = cache.refresh_within(PATIENCE)?;
            stop(END);
            expect(found == Refreshed::Changed, "the next snapshot")?;
        }
        Scenario::Close => {
            stop(GATE);
            drop(client);
            stop(END);
        }
        Scenario::Burst => {
            let entry = |number| Entry { number, answer: SHORT, hold };
            let requests: Vec<_> =
                orders.requests().map(|number| entry(number).request(SHORT)).collect();
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
            let mut both = orders.requests().zip(&answers);
            both.try_for_each(|(number, answer)| check(entry(number), answer))?;
        }
        _ => {
            let (len, answer) = match scenario {
                Scenario::Grow => (LONG, SHORT),
                Scenario::Follow => (SHORT, LONG),
                Scenario::Attach => (ATTACHED, ATTACHED),
                _ => (SHORT, SHORT),
            };
            let entry = Entry { number: orders.requests().start, answer, hold };
            let request = entry.request(len);
            stop(GATE);
            let answered = client.call(&request)?;
            stop(END);
            check(entry, &answered)?;
        }
    }
    Ok(())
}

fn check(entry: Entry, answer: &[u8]) -> Result<(), Box<dyn Error>> {
    expect(entry.is_answer(answer), "the right answer")
}

fn expect(is_there: bool, what: &str) -> Result<(), Box<dyn Error>> {
    if is_there { Ok(()) } else { Err(format!("{what} did not come").into()) }
}
