use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Event;
use crate::exit::{Exit, Failure};

/// One of the demo's two processes: this program again, with a hidden subcommand.
///
/// It ends when its standard input does, so that it never outlives the demo, and it ignores Ctrl-C. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    who: Who,
    child: Child,
    orders: Option<ChildStdin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Provider,
    Consumer,
}

impl Process {
    /// Starts it; its messages and its end arrive as events.
    pub(super) fn start<M: DeserializeOwned + 'static>(
        who: Who,
        command: &mut Command,
        events: &Sender<Event>,
        into: fn(M) -> Event,
    ) -> Result<Self, Failure> {
        let failed =
            |error| Failure::of(Exit::Failed, "cannot start a process of the demo", &error);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (orders, said) = (child.stdin.take(), child.stdout.take());
        let events = events.clone();
        thread::spawn(move || {
            let lines = said.into_iter().flat_map(|said| BufReader::new(said).lines());
            for line in lines.map_while(Result::ok) {
                let event = match serde_json::from_str(&line) {
                    Ok(message) => into(message),
                    Err(error) => Event::Garbled(who, error.to_string()),
                };
                if events.send(event).is_err() {
                    return;
                }
            }
            let _ = events.send(Event::Ended(who));
        });
        Ok(Self { who, child, orders })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order. The process's end shows if it no longer reads.
    pub(super) fn tell(&mut self, order: &impl Serialize) {
        let Some(orders) = &mut self.orders else { return };
        if let Ok(mut line) = serde_json::to_vec(order) {
            line.push(b'\n');
            let _ = orders.write_all(&line).and_then(|()| orders.flush());
        }
    }

    /// Asks it to end.
    pub(super) fn close(&mut self) {
        self.orders = None;
    }

    /// Waits for its end, announced or not.
    pub(super) fn end(&mut self, announced: bool) -> Result<(), String> {
        if !announced {
            let _ = self.child.kill();
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        match (announced, status.success()) {
            (true, true) => Ok(()),
            (true, false) => Err(format!("the {} ended with {status}", self.who.name())),
            (false, _) => Err(format!("the {} did not end and was killed", self.who.name())),
        }
    }
}

impl Who {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Consumer => "consumer",
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails without harm if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
