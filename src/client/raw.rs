use std::time::Duration;

use super::Client;
use crate::{CallError, Service};

/// A [`Client`] with the bytes of its messages: see [`Client::raw`].
#[derive(Debug)]
pub struct RawClient<'a, S: Service>(&'a mut Client<S>);

impl<'a, S: Service> RawClient<'a, S> {
    /// Calls like [`Client::call`] with the bytes of a request, and lends the bytes of the answer. In a steady state, it
    /// allocates nothing.
    ///
    /// # Errors
    /// Like [`Client::call`].
    pub fn call(self, request: &[u8]) -> Result<&'a [u8], CallError> {
        let timeout = self.0.config.timeout;
        self.call_within(request, timeout)
    }

    /// Calls like [`RawClient::call`], but waits at most for `timeout`, which includes connecting.
    ///
    /// # Errors
    /// Like [`Client::call`].
    pub fn call_within(self, request: &[u8], timeout: Duration) -> Result<&'a [u8], CallError> {
        let client = self.0;
        let len =
            client.call_by(timeout, |session, until| session.call_bytes_until(request, until))?;
        Ok(client.ready()?.answer_bytes(len))
    }
}

impl<S: Service> Client<S> {
    /// Returns a view of the client with the bytes of its messages.
    ///
    /// ```
    /// use bellwire::Client;
    #[doc = include_str!("../doc/increment_served.txt")]
    /// let mut client = Client::<Increment>::new(&run_dir);
    /// assert_eq!(client.raw().call(&41_u64.to_le_bytes())?, 42_u64.to_le_bytes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn raw(&mut self) -> RawClient<'_, S> {
        RawClient(self)
    }
}
