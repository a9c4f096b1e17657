//! Calls.

use bellwire::{Client, Message, Payload, Service, Session};

use super::{ANSWERS_WITHIN, counters_of, session_of};
use crate::Outcome;
use crate::contender::{self, Counters, put};

/// Requests that are bytes, and how those are sent.
pub(super) trait Request: Message {
    fn call<S>(session: &mut Session<S>, request: &[u8], answer: &mut [u8]) -> Outcome<usize>
    where
        S: Service<Request = Self, Response: AsRef<[u8]>>;

    fn submit<S>(session: &mut Session<S>, request: &[u8]) -> Outcome<()>
    where
        S: Service<Request = Self>;

    fn post<S>(session: &mut Session<S>, request: &[u8]) -> Outcome<()>
    where
        S: Service<Request = Self>;
}

/// Has a kind of requests: what of `$session` sends it, and how it is made of `$bytes`.
macro_rules! request {
    ([$($generics:tt)*] $kind:ty, |$session:ident, $bytes:ident| $sender:expr, $request:expr) => {
        impl<$($generics)*> Request for $kind {
            #[inline]
            fn call<S>($session: &mut Session<S>, $bytes: &[u8], answer: &mut [u8]) -> Outcome<usize>
            where
                S: Service<Request = Self, Response: AsRef<[u8]>>,
            {
                put($sender.call($request)?.as_ref(), answer)
            }

            #[inline]
            fn submit<S>($session: &mut Session<S>, $bytes: &[u8]) -> Outcome<()>
            where
                S: Service<Request = Self>,
            {
                $sender.submit($request)?;
                Ok(())
            }

            #[inline]
            fn post<S>($session: &mut Session<S>, $bytes: &[u8]) -> Outcome<()>
            where
                S: Service<Request = Self>,
            {
                Ok($sender.post($request)?)
            }
        }
    };
}

request!([const N: usize] [u8; N], |session, bytes| session, bytes.try_into()?);
// They go as they are: a payload of them would be a copy.
request!([] Payload, |session, bytes| session.raw(), bytes);

/// Of calls, or of requests that nobody answers.
impl<S: Service> contender::Client for Client<S>
where
    S::Request: Request,
    S::Response: AsRef<[u8]>,
{
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        S::Request::call(session_of(self)?, request, answer)
    }

    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        S::Request::submit(session_of(self)?, request)
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        let session = session_of(self)?;
        let response = match session.try_reply()? {
            Some((_, response)) => response?,
            None => session.wait_reply(ANSWERS_WITHIN)?.1?,
        };
        put(response.as_ref(), answer)
    }

    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        S::Request::post(session_of(self)?, message)
    }

    fn finish_posts(&mut self) -> Outcome<()> {
        Ok(session_of(self)?.flush(ANSWERS_WITHIN)?)
    }

    fn trim(&mut self) -> Outcome<()> {
        Ok(session_of(self)?.trim()?)
    }

    fn counters(&mut self) -> Counters {
        counters_of(self)
    }
}
