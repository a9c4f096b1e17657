//! [ipc-channel](https://docs.rs/ipc-channel): its channels of bytes, which its documentation calls more efficient than those that
//! serialize.

use std::collections::VecDeque;
use std::io::ErrorKind;

use ::ipc_channel::IpcError;
use ::ipc_channel::ipc::{
    IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcSender, bytes_channel,
};

use super::arrivals::{Arrivals, announce};
use super::{Contender, ContenderInfo, Server, put, serve_each};
use crate::Outcome;
use crate::handler::Handler;
use crate::load::Case;
use crate::measure::Measure;

/// What is in flight at most, in bytes: each end blocks when the socket beneath is full, and may not wait for the other then.
const HELD: usize = 64 << 10;

/// A channel each way.
pub(super) struct IpcChannel;

/// What a client gets from the server: where to send, and where to receive.
type Ends = (IpcBytesSender, IpcBytesReceiver);

impl Contender for IpcChannel {
    const NAME: &'static str = "ipc-channel";

    fn about() -> ContenderInfo {
        ContenderInfo::new(
            "0.23",
            "channels of bytes, a one-shot server to meet, a thread for each connection; both ends block; of longer \
             messages at most 64 KiB in flight",
        )
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        let mut arrivals = Arrivals::new(case)?;
        let is_one_way = case.load.is_one_way();
        let accept = move || {
            let client = IpcSender::<Ends>::connect(arrivals.next()?)?;
            let (to_server, requests) = bytes_channel()?;
            let (answers, from_server) = bytes_channel()?;
            client.send((to_server, from_server)).map_err(|error| problem(&error))?;
            Ok((requests, answers))
        };
        // Until the client has closed its end.
        serve_each(Self::NAME, accept, move |(requests, answers)| {
            loop {
                let mut message = receive(&requests)?;
                if is_one_way {
                    handler.take(&message);
                } else {
                    handler.answer(&mut message);
                    answers.send(&message)?;
                }
            }
        })
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        measure.run(|| Connection::connect(case))
    }
}

/// Waits for a message, signals or not.
#[inline]
fn receive(from: &IpcBytesReceiver) -> Outcome<Vec<u8>> {
    loop {
        match from.recv() {
            Err(IpcError::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.map_err(|error| problem(&error)),
        }
    }
}

/// One connection.
struct Connection {
    requests: IpcBytesSender,
    answers: IpcBytesReceiver,
    in_flight: VecDeque<usize>,
    /// Answers that had to be taken before there was room for more.
    taken: VecDeque<Vec<u8>>,
}

impl Connection {
    fn connect(case: &Case) -> Outcome<Self> {
        let (server, name) = IpcOneShotServer::<Ends>::new()?;
        announce(case, &name)?;
        let (_, (requests, answers)) = server.accept().map_err(|error| problem(&error))?;
        Ok(Self { requests, answers, in_flight: VecDeque::new(), taken: VecDeque::new() })
    }

    #[inline]
    fn oldest(&mut self) -> Outcome<Vec<u8>> {
        self.in_flight.pop_front();
        receive(&self.answers)
    }
}

impl super::Client for Connection {
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        self.requests.send(request)?;
        put(&receive(&self.answers)?, answer)
    }

    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        while !self.in_flight.is_empty()
            && self.in_flight.iter().sum::<usize>() + request.len() > HELD
        {
            let answer = self.oldest()?;
            self.taken.push_back(answer);
        }
        self.in_flight.push_back(request.len());
        Ok(self.requests.send(request)?)
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        let bytes = match self.taken.pop_front() {
            Some(taken) => taken,
            None => self.oldest()?,
        };
        put(&bytes, answer)
    }

    /// Nothing is in flight that has an answer.
    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        Ok(self.requests.send(message)?)
    }
}

fn problem(error: &IpcError) -> Box<dyn std::error::Error + Send + Sync> {
    error.to_string().into()
}
