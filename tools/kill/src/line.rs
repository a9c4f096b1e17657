//! The protocol between the harness and a survivor: one JSON text per line, over a pair of sockets.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, io};
use crate::phase::Scenario;

/// What a survivor is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Open a session and call; take the snapshot too, if there is a number that it must have.
    Meet { scenario: Scenario, number: u64, sheet: Option<u64> },
    /// Close the session.
    Leave,
    /// Do the client's half of a scenario.
    Act { scenario: Scenario, number: u64 },
    /// Publish a snapshot.
    Publish { number: u64 },
    /// Let the handler that holds go on.
    Release,
    /// Report what is left, when nothing changes any more.
    Settle,
}

/// What a survivor answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    Done,
    /// It could not be done, and why.
    Wrong(String),
    Ended(Ended),
    Settled(Box<Settled>),
}

/// How the client's half of a scenario ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ended {
    /// Ended as without a kill; everything received is right, to the last byte.
    Right,
    /// It received something that was never sent.
    Garbled(String),
    /// The provider is not there, which is a state.
    Unavailable,
    Failed {
        kind: String,
        text: String,
        /// It reports that the last request did not run.
        not_run: bool,
        /// Answers that came, and were right.
        got: u64,
    },
}

/// A survivor without its peer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Settled {
    /// What differs from its state before the first peer; empty if nothing.
    pub(crate) left: String,
    /// What else is not as it should be: its state, its counters.
    pub(crate) wrong: String,
    /// The numbers of the requests that its handler ran since it settled last.
    pub(crate) ran: Vec<u64>,
}

/// One end.
#[derive(Debug)]
pub(crate) struct Line {
    reader: BufReader<UnixStream>,
    whom: &'static str,
}

impl Line {
    pub(crate) fn pair(whom: [&'static str; 2]) -> Result<[Self; 2]> {
        let (a, b) = UnixStream::pair().map_err(io("make a pair of sockets"))?;
        let [to, from] = whom;
        Ok([(a, to), (b, from)].map(|(end, whom)| Self { reader: BufReader::new(end), whom }))
    }

    pub(crate) fn say(&mut self, what: &impl Serialize) -> Result<()> {
        let nonsense = |source| Error::Line { whom: self.whom, source };
        let mut text = serde_json::to_vec(what).map_err(nonsense)?;
        text.push(b'\n');
        self.reader.get_mut().write_all(&text).map_err(io("speak to a survivor"))
    }

    /// What comes next; `None` when the peer is gone.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut text = String::new();
        let len = self.reader.read_line(&mut text).map_err(io("listen to a survivor"))?;
        if len == 0 {
            return Ok(None);
        }
        let nonsense = |source| Error::Line { whom: self.whom, source };
        serde_json::from_str(&text).map(Some).map_err(nonsense)
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}
