//! One-way requests.

use std::time::Duration;

use bellwire_core::Deadline;

use super::{Outgoing, Session};
use crate::{CallError, Service};

impl<S: Service> Session<S> {
    /// Sends a one-way request: the provider's handler runs, and no answer is sent. Returns as soon as it is written:
    /// it waits for nothing but room, and neither end pays for an answer.
    ///
    /// When the lane is full, [`Backpressure`](crate::Backpressure) decides as for [`Session::call`]: it waits for room, at most for the session's
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
    /// [`CallError::Deadline`] after waiting for room in vain, [`CallError::WouldBlock`] with [`Backpressure::Fail`](crate::Backpressure::Fail);
    /// [`CallError`] of a session that is over. No handler runs for the request.
    pub fn post(&mut self, request: &S::Request) -> Result<(), CallError> {
        self.check_owner()?;
        match self.write::<true>(request) {
            Ok(_) => {
                self.publish();
                Ok(())
            }
            Err(unwritten) => {
                let sent = self.submit_encoded(request, |session, request| {
                    let mut until = Deadline::within(session.timeout);
                    session.submit_unwritten(request.one_way(), unwritten, &mut until)
                });
                sent.map(drop)
            }
        }
    }

    /// Posts many requests as one message, at most [`Session::max_batch`]: like [`Session::call_batch`], but without
    /// answers. It counts as one.
    ///
    /// # Errors
    /// Like [`Session::post`]. [`CallError::TooLarge`] for the first request for which the message had no room; the others
    /// are sent. [`CallError::TooManyItems`] before anything is sent.
    pub fn post_batch<'r>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request>,
    ) -> Result<(), CallError> {
        self.check_owner()?;
        let (shape, sent) = self.with_batch(requests, |session, batch| match batch {
            Ok(batch) => session.post_waiting(batch),
            Err(error) => Err(session.unsent(error)),
        });
        sent.and(shape.left_out().map_or(Ok(()), Err))
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
            self.wait_then_check_link(|driver| {
                is_taken = driver.wait_consumed(&mut until)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// A child of fork would write to memory that no process reads, and get no error.
    #[inline]
    pub(crate) fn check_owner(&self) -> Result<(), CallError> {
        if self.link().is_owner_process() { Ok(()) } else { Err(CallError::Forked) }
    }

    pub(super) fn post_waiting(&mut self, request: Outgoing<'_>) -> Result<(), CallError> {
        let mut until = Deadline::within(self.timeout);
        let sent = self.submit_waiting(request.one_way(), &mut until);
        sent.map(drop).map_err(|error| self.unsent(error))
    }
}
