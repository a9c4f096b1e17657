//! Many requests in flight from one call.

use std::collections::VecDeque;

use bellwire_core::Deadline;
use bellwire_core::call::{SubmitError, Ticket};
use bellwire_core::drive::CallFailed;
use bellwire_core::lane::PushError;

use super::{Answer, Backpressure, Session};
use crate::{CallError, Service};

/// Requests published together at most: the provider starts with the first ones meanwhile.
const TOGETHER: usize = 8;

/// Requests that wait for their answers, with their indexes in the call.
type InFlight = VecDeque<(Ticket, usize)>;

impl<S: Service> Session<S> {
    /// Calls with each of `requests`, keeping as many in flight as the lane has room for, and passes each answer with
    /// its request's index, from 0, to `each` as it arrives. Returns when all are answered. With
    /// [`Backpressure::Fail`], a request that finds no room fails alone with [`CallError::WouldBlock`].
    ///
    /// The session's configured time restarts with each answer.
    ///
    /// # Errors
    /// [`CallError`] that ended the whole call. Each request in flight was already reported to `each`, with whether
    /// its handler may have run; the requests after them were not sent. An error of one request goes to `each` alone.
    pub fn call_many<'r>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request>,
        mut each: impl FnMut(usize, Result<S::Response, CallError>),
    ) -> Result<(), CallError> {
        let mut in_flight = InFlight::new();
        let all = self.keep_in_flight(requests.into_iter(), &mut in_flight, &mut each);
        if let Err(error) = &all {
            for (ticket, number) in in_flight {
                let error = self.give_up(ticket, error);
                each(number, Err(error));
            }
        }
        all
    }

    fn keep_in_flight<'r>(
        &mut self,
        requests: impl Iterator<Item = &'r S::Request>,
        in_flight: &mut InFlight,
        each: &mut impl FnMut(usize, Result<S::Response, CallError>),
    ) -> Result<(), CallError> {
        let mut requests = requests.enumerate().fuse();
        let mut next = None;
        let mut until = Deadline::within(self.timeout);
        loop {
            let mut is_full = false;
            for _ in 0..TOGETHER {
                let Some((number, request)) = next.take().or_else(|| requests.next()) else {
                    break;
                };
                match self.write_now::<false>(request) {
                    Ok(ticket) => in_flight.push_back((ticket, number)),
                    Err(CallFailed::Submit(
                        SubmitError::Push(PushError::Full { .. }) | SubmitError::Window,
                    )) if self.backpressure != Backpressure::Fail => {
                        next = Some((number, request));
                        is_full = true;
                        break;
                    }
                    Err(failed @ CallFailed::Submit(_)) => {
                        let error = self.unsent(failed.into());
                        each(number, Err(error));
                    }
                    Err(failed) => return Err(self.explain(failed.into())),
                }
            }
            self.driver.commit();
            if next.is_none() {
                next = requests.next();
            }
            if self.take_answers(in_flight, each)? {
                until = Deadline::within(self.timeout);
            } else if is_full {
                self.wait_then_check_link(|driver| driver.wait_for_room(&mut until))?;
            } else if next.is_none() {
                if in_flight.is_empty() {
                    return Ok(());
                }
                self.wait_then_check_link(|driver| driver.wait_for_data(&mut until))?;
            }
        }
    }

    /// Passes on the answers that have arrived. Returns false when there is none.
    fn take_answers(
        &mut self,
        in_flight: &mut InFlight,
        each: &mut impl FnMut(usize, Result<S::Response, CallError>),
    ) -> Result<bool, CallError> {
        let mut any = false;
        loop {
            while let Some((ticket, len)) = self.driver.try_reply_fast(&mut self.inbox) {
                any = true;
                match number_of(in_flight, ticket) {
                    Some(number) => each(number, self.open_inbox(ticket, len)),
                    // An answer to a request that was submitted before.
                    None => self.keep_reply(Answer::in_inbox(ticket, len)),
                }
            }
            let Some(answer) = self.next_answer()? else { return Ok(any) };
            any = true;
            match number_of(in_flight, answer.reply.ticket) {
                Some(number) => each(number, self.open(answer)),
                None => self.keep_reply(answer),
            }
        }
    }

    /// Decodes an answer.
    #[inline]
    pub(super) fn open(&mut self, answer: Answer) -> Result<S::Response, CallError> {
        let ticket = answer.reply.ticket;
        let decoded = self.check(&answer).and_then(|()| self.decode(answer));
        self.count_answer(ticket, decoded.as_ref().err());
        decoded
    }
}

/// Removes a request from those in flight and returns its index.
#[inline]
fn number_of(in_flight: &mut InFlight, ticket: Ticket) -> Option<usize> {
    // Most answers arrive in the order of the requests.
    if in_flight.front().is_some_and(|(first, _)| *first == ticket) {
        return in_flight.pop_front().map(|(_, number)| number);
    }
    let at = in_flight.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
    in_flight.remove(at).map(|(_, number)| number)
}
