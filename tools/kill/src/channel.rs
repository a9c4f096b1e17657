//! The protocol between the processes of the harness: one JSON text per line, over a pair of sockets.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, io};
use crate::phase::Scenario;

/// A command to a survivor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Open a session and call; also fetch the snapshot, which must have the number `snapshot`, if one is given.
    Connect { scenario: Scenario, number: u64, snapshot: Option<u64> },
    /// Close the session.
    Disconnect,
    /// Run the client's half of a scenario.
    Run { scenario: Scenario, number: u64 },
    /// Publish a snapshot.
    Publish { number: u64 },
    /// Release the handler that holds a request.
    Release,
    /// Wait until nothing changes any more, and report the state.
    Quiesce,
}

/// A survivor's response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    Done,
    /// The command failed, and why.
    Failed(String),
    Finished(ScenarioResult),
    Quiescent(Box<QuiescentState>),
}

/// The result of the client's half of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ScenarioResult {
    /// Completed as without a kill; everything received is correct, to the last byte.
    Correct,
    /// It received something that was never sent.
    Corrupt(String),
    /// The provider is absent, which a client reports as a state.
    Unavailable,
    /// The provider of events is absent, after so many of those published since the gate, taken or counted as missed.
    Events(u64),
    Failed {
        kind: String,
        text: String,
        /// It reports that the handler did not run for the last request.
        not_run: bool,
        /// How many correct answers it received.
        answers: u64,
    },
}

/// The state of a survivor after the death of its peer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct QuiescentState {
    /// How its resources differ from those before the first kill; empty if they do not.
    pub(crate) leaked: String,
    /// What is wrong with its state or its counters; empty if nothing is.
    pub(crate) problem: String,
    /// The numbers of the requests that its handler ran since the previous report.
    pub(crate) ran: Vec<u64>,
}

/// One end of the connection between the harness and a survivor, or between a worker and the campaign.
#[derive(Debug)]
pub(crate) struct Channel {
    reader: BufReader<UnixStream>,
    peer: &'static str,
}

impl Channel {
    /// Creates both ends: the one to the first of these peers, and the one to the second.
    pub(crate) fn pair(peers: [&'static str; 2]) -> Result<[Self; 2]> {
        let (a, b) = UnixStream::pair().map_err(io("create a pair of sockets"))?;
        let [to, from] = peers;
        Ok([(a, to), (b, from)].map(|(end, peer)| Self { reader: BufReader::new(end), peer }))
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let invalid = |source| Error::Channel { peer: self.peer, source };
        let mut text = serde_json::to_vec(message).map_err(invalid)?;
        text.push(b'\n');
        self.reader.get_mut().write_all(&text).map_err(io("write to a process of the harness"))
    }

    /// Receives the next message; `None` if the peer has exited.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut text = String::new();
        let len =
            self.reader.read_line(&mut text).map_err(io("read from a process of the harness"))?;
        if len == 0 {
            return Ok(None);
        }
        let invalid = |source| Error::Channel { peer: self.peer, source };
        serde_json::from_str(&text).map(Some).map_err(invalid)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}
