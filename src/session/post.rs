//! One-way requests.

use std::time::Duration;

use bellwire_core::drive::CallFailed;
use bellwire_core::lane::PushError;
use bellwire_core::{Deadline, call, call::SubmitError};

use super::exchange::not_attachable;
use super::{Backpressure, Outgoing, Session};
use crate::{CallError, Message, Service};

impl<S: Service> Session<S> {
    /// Sends a one-way request: the provider's handler runs, and nobody answers. Returns as soon as it is written:
    /// it waits for nothing but room, and neither end pays for an answer.
    ///
    /// When the lane is full, [`Backpressure`] decides as for [`Session::call`]: it waits for room, at most for the session's
    /// configured time, or fails, and the lane grows or not. Requests of one session are handled in order, or with
    /// [workers](crate::ServerConfig::workers) in any order.
    ///
    /// What was posted before the session is dropped is handled, unless the provider ends: [`Session::flush`] waits until
    /// it has taken everything, and [`Session::stats`] says how much it has taken. A handler that fails is counted in
    /// [`ServerStats::post_errors`](crate::ServerStats::post_errors), which `bellwire stat` shows.
    ///
    /// ```
    /// # use bellwire::{Client, RunDir, Server, Service};
    /// # use std::time::Duration;
    /// # struct Record;
    /// # impl Service for Record {
    /// #     const NAME: &'static str = "record";
    /// #     type Request = u64;
    /// #     type Response = ();
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let run_dir = RunDir::new(dir.path());
    /// # let mut builder = Server::builder(&run_dir);
    /// # builder.serve::<Record>(|_, _| Ok(()))?;
    /// # let server = builder.start()?;
    /// # let mut client = Client::<Record>::new(&run_dir);
    /// let session = client.connect()?;
    /// for reading in 0..1000 {
    ///     session.post(&reading)?;
    /// }
    /// session.flush(Duration::from_secs(1))?;
    /// assert_eq!(session.stats().posts_taken, 1000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CallError::Deadline`] after waiting for room in vain, [`CallError::WouldBlock`] with [`Backpressure::Fail`];
    /// [`CallError`] of a session that is over. No handler runs for the request.
    pub fn post(&mut self, request: &S::Request) -> Result<(), CallError> {
        self.check_here()?;
        self.outbox.clear();
        if request.as_payload().is_none() {
            request.encode(&mut self.outbox);
            if self.outbox.len() <= self.short && self.drive.try_post(&self.outbox) {
                self.drive.commit();
                self.posted();
                return Ok(());
            }
        }
        self.with_encoded(request, Self::post_slow)
    }

    /// Posts the bytes of a request as [`Session::post`] does: for callers that encode in place or already have the bytes.
    ///
    /// # Errors
    /// Like [`Session::post`].
    pub fn post_bytes(&mut self, request: &[u8]) -> Result<(), CallError> {
        self.check_here()?;
        if request.len() <= self.short && self.drive.try_post(request) {
            self.drive.commit();
            self.posted();
            return Ok(());
        }
        self.post_slow(Outgoing::Bytes(request))
    }

    /// Posts many requests as one message, at most [`Session::max_batch`]: like [`Session::call_batch`], but nobody
    /// answers. It counts as one.
    ///
    /// # Errors
    /// Like [`Session::post`]. [`CallError::TooLarge`] for the first request for which the message had no room; the others
    /// are sent. [`CallError::TooManyItems`] before anything is sent.
    pub fn post_batch<'r>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request>,
    ) -> Result<(), CallError>
    where
        S::Request: 'r,
    {
        self.check_here()?;
        let (shape, sent) = self.with_batch(requests, |session, batch| match batch {
            Ok(batch) => session.post_slow(batch),
            Err(error) => Err(session.unsent(error)),
        });
        match shape.left_out() {
            Some(too_large) => sent.and(Err(too_large)),
            None => sent,
        }
    }

    /// Waits until the provider has taken everything that was posted, at most for `timeout`. A handler that was taken may
    /// still run, or wait for a worker. Answers that arrive meanwhile are kept as pending replies.
    ///
    /// # Errors
    /// [`CallError::Deadline`] when it has not; the session stays usable. [`CallError::PeerGone`] and others when the
    /// session is over: [`SessionStats::posts_lost`](crate::SessionStats::posts_lost) is the number of requests that the
    /// provider has not taken and whose handlers will not run; it took all before them.
    pub fn flush(&mut self, timeout: Duration) -> Result<(), CallError> {
        let mut until = Deadline::within(timeout);
        let mut is_taken = false;
        while !is_taken {
            // A provider that is blocked on its answers takes no requests.
            while self.keep_next_reply()? {}
            self.wait_by(|drive| {
                is_taken = drive.wait_for_taken(&mut until)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// A child of fork would write to memory that nobody reads, and get no answer that told it so.
    #[inline]
    fn check_here(&self) -> Result<(), CallError> {
        if self.link().is_here() { Ok(()) } else { Err(CallError::Forked) }
    }

    /// Posts a request for which the fast path found no room, or that is longer.
    #[cold]
    fn post_slow(&mut self, request: Outgoing<'_>) -> Result<(), CallError> {
        let mut until = Deadline::within(self.timeout);
        let in_lane = match request {
            Outgoing::Bytes(bytes) if bytes.len() < self.attach_from => {
                Some(call::Outgoing::from(bytes).one_way())
            }
            Outgoing::Batch(bytes) => Some(call::Outgoing::batch(bytes).one_way()),
            _ => None,
        };
        let sent = match in_lane.filter(|bytes| bytes.len() > self.parts_from()) {
            _ if self.backpressure == Backpressure::Fail => {
                self.post_now(request, in_lane).map_err(CallError::from)
            }
            Some(bytes) => self.post_in_parts(bytes, &mut until),
            None => {
                let sent =
                    self.waiting_for_room(&mut until, |session| session.post_now(request, in_lane));
                match (&sent, in_lane) {
                    // At the limit of shared memory, it goes through the current lane.
                    (Err(CallError::TooLarge { len, .. }), Some(bytes))
                        if *len <= self.max_request() =>
                    {
                        self.post_in_parts(bytes, &mut until)
                    }
                    _ => sent,
                }
            }
        };
        sent.map(|()| self.posted()).map_err(|error| self.unsent(error))
    }

    fn post_in_parts(
        &mut self,
        bytes: call::Outgoing<'_>,
        until: &mut Deadline,
    ) -> Result<(), CallError> {
        let sent = self.waiting_for_room(until, |session| session.drive.submit_in_parts(bytes));
        if sent.is_err() {
            self.drive.break_off();
        }
        sent.map(|_| ())
    }

    /// Posts a request, in the lane or attached, if there is room for it now.
    fn post_now(
        &mut self,
        request: Outgoing<'_>,
        in_lane: Option<call::Outgoing<'_>>,
    ) -> Result<(), CallFailed> {
        let unlaned = in_lane.map(|bytes| self.drive.submit(bytes));
        let copied;
        let payload = match (request, unlaned) {
            (Outgoing::Sealed(payload), _) => payload,
            (
                Outgoing::Bytes(bytes),
                None | Some(Err(CallFailed::Submit(SubmitError::Push(PushError::Attach { .. })))),
            ) => {
                copied = self.sealed_copy(bytes)?;
                &copied
            }
            (_, Some(sent)) => return sent.map(|_| ()).map_err(not_attachable),
            // A batch always goes through the lane.
            (Outgoing::Batch(_), None) => return Ok(()),
        };
        let Some(sealed) = payload.sealed() else { return Ok(()) };
        let bytes = payload.len() as u64;
        self.drive.post_attached(bytes, |link, id| link.pass_attachment(id, 0, sealed))
    }
}
