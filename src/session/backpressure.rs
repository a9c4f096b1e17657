//! What happens to a request when the lane is full.

use std::ops::{Deref, DerefMut};

use bellwire_core::Deadline;
use bellwire_core::call::Ticket;
use bellwire_core::lane::Growth;

use super::requests::Unwritten;
use super::{Outgoing, Session};
use crate::{CallError, Service};

/// What to do with a request when the lane is full because the provider has not taken enough of the earlier ones. Set
/// for a whole client in [`ClientConfig::backpressure`](crate::ClientConfig::backpressure), for single calls with
/// [`Session::backpressure`].
///
/// | | `call`, `call_batch`, `post` | `submit`, `submit_batch` | `call_many` |
/// | --- | --- | --- | --- |
/// | `Adapt` | waits, at most until its deadline | fails | takes answers, and waits for more or for room |
/// | `Wait` | as `Adapt` | waits, at most for the session's configured time | as `Adapt` |
/// | `Fail` | fails | fails | fails only that request, and continues |
/// | `Grow` | the lane grows; at its maximum, waits | grows; at its maximum, fails | grows; at its maximum, as `Adapt` |
///
/// A request fails immediately with [`CallError::WouldBlock`], or with [`CallError::Deadline`] after waiting in vain;
/// no handler runs for it. Answers that arrive while a request waits for room are kept as pending replies.
///
/// A request that does not fit even an empty lane is handled separately: the lane grows for it, or it is attached.
/// With `Wait`, it goes through the lane in parts instead, unless
/// [`LaneConfig::stream_from`](crate::LaneConfig::stream_from) is `None`; only a [`Payload`](crate::Payload)
/// built in a memfd is attached.
///
/// ```
/// use bellwire::{Backpressure, Client};
/// # use std::time::Duration;
#[doc = include_str!("../doc/increment_served.txt")]
/// let mut client = Client::<Increment>::new(&run_dir);
/// let session = client.connect()?;
/// let ticket = session.backpressure(Backpressure::Fail).submit(&41)?;
/// let (answered, answer) = session.wait_reply(Duration::from_secs(5))?;
/// assert_eq!((answered, answer?), (ticket, 42));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backpressure {
    /// Calls wait and `submit` fails. The lane grows, up to 1 MiB, when it is often full, or when it carries 64 MiB a
    /// second with more than 32 KiB in use.
    #[default]
    Adapt,
    /// Waits for room. The lane keeps its size.
    Wait,
    /// Fails immediately with [`CallError::WouldBlock`]. The lane keeps its size, unless it is too small for the
    /// request.
    Fail,
    /// The lane doubles each time it is full, up to the smaller of both ends' [`Limits`](crate::Limits). It may be
    /// four sizes ahead of its reader. Without memory or descriptors for more, it counts as at its maximum.
    Grow,
}

impl Backpressure {
    pub(crate) fn growth(self) -> Growth {
        match self {
            Self::Adapt => Growth::Often,
            Self::Wait | Self::Fail => Growth::Never,
            Self::Grow => Growth::Immediate,
        }
    }
}

/// A session with a different [`Backpressure`]. Dropping this restores the session's own.
///
/// ```
/// use bellwire::{Backpressure, Client};
#[doc = include_str!("../doc/increment_served.txt")]
/// let mut client = Client::<Increment>::new(&run_dir);
/// let mut patient = client.connect()?.backpressure(Backpressure::Wait);
/// assert_eq!((patient.call(&1)?, patient.call(&2)?), (2, 3));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WithBackpressure<'a, S: Service> {
    session: &'a mut Session<S>,
    before: Backpressure,
}

impl<S: Service> Deref for WithBackpressure<'_, S> {
    type Target = Session<S>;

    fn deref(&self) -> &Session<S> {
        self.session
    }
}

impl<S: Service> DerefMut for WithBackpressure<'_, S> {
    fn deref_mut(&mut self) -> &mut Session<S> {
        self.session
    }
}

impl<S: Service> Drop for WithBackpressure<'_, S> {
    fn drop(&mut self) {
        self.session.set_backpressure(self.before);
    }
}

impl<S: Service> Session<S> {
    /// Returns this session with a different [`Backpressure`] for the calls made through the returned value.
    ///
    /// ```
    /// # use bellwire::{CallError, Client, Backpressure};
    #[doc = include_str!("../doc/increment_served.txt")]
    /// # let mut client = Client::<Increment>::new(&run_dir);
    /// let session = client.connect()?;
    /// match session.backpressure(Backpressure::Fail).call(&41) {
    ///     Err(CallError::WouldBlock) => println!("the provider does not keep up"),
    ///     answer => assert_eq!(answer?, 42),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn backpressure(&mut self, backpressure: Backpressure) -> WithBackpressure<'_, S> {
        let before = self.backpressure;
        self.set_backpressure(backpressure);
        WithBackpressure { session: self, before }
    }

    fn set_backpressure(&mut self, backpressure: Backpressure) {
        self.backpressure = backpressure;
        self.driver.end_mut().set_growth(backpressure.growth());
    }

    /// Sends a request that was [not written](Session::write), without waiting for its answer here.
    #[inline]
    pub(super) fn submit_alone(
        &mut self,
        request: Outgoing<'_>,
        unwritten: Unwritten,
    ) -> Result<Ticket, CallError> {
        if self.backpressure == Backpressure::Wait {
            let mut until = Deadline::within(self.timeout);
            return self.submit_unwritten(request, unwritten, &mut until);
        }
        let ticket = self.push_unwritten(request, unwritten)?;
        self.publish();
        Ok(ticket)
    }

    /// Returns the length in bytes above which a request is sent in parts when its caller waits.
    pub(super) fn parts_from(&self) -> usize {
        match self.backpressure {
            Backpressure::Wait if self.stream_from < usize::MAX => {
                self.stream_from.min(self.driver.end().lanes().epoch().size.max_payload())
            }
            _ => self.stream_from,
        }
    }
}
