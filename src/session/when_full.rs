//! What becomes of a request that finds no room in the lane.

use std::ops::{Deref, DerefMut};

use bellwire_core::Deadline;
use bellwire_core::call::Ticket;
use bellwire_core::lane::Growth;

use super::{Outgoing, Session};
use crate::{CallError, Service};

/// What to do with a request that the lane has no room for now: the provider has not taken enough of what was sent
/// before. For a whole client in [`ClientConfig::when_full`](crate::ClientConfig::when_full), for some calls by
/// [`Session::when_full`].
///
/// | | `call`, `call_bytes`, `call_batch` | `submit`, `submit_bytes`, `submit_batch` | `call_many` |
/// | --- | --- | --- | --- |
/// | `Adapt` | waits, at most until its deadline | fails | takes answers, and waits for more or for room |
/// | `Wait` | the same | waits, at most for the time set when the session was opened | the same |
/// | `Fail` | fails | fails | fails that request alone, and goes on |
/// | `Grow` | the lane grows; as large as it may be, waits | the lane grows; as large as it may be, fails | the lane grows; as large as it may be, as `Adapt` |
///
/// What fails does so at once with [`CallError::WouldBlock`], and what waits in vain with [`CallError::Deadline`]; no
/// handler runs for either. Who waits for room puts answers by that come meanwhile.
///
/// A request that the lane is too small for, however empty, is another matter: the lane grows for it, or it travels in
/// a memfd of its own, as ever. With `Wait` it goes through the lane as it is, in parts, unless
/// [`ClientConfig::stream_from`](crate::ClientConfig::stream_from) is `None`; only a [`Payload`](crate::Payload) built
/// in a memfd is passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenFull {
    /// Calls wait and `submit` fails. A lane that is full often grows, up to 1 MiB, and so does one with more than 32 KiB on
    /// their way through which 64 MiB a second go.
    #[default]
    Adapt,
    /// Waits for room. The lane keeps its size.
    Wait,
    /// Fails at once, with [`CallError::WouldBlock`]. The lane keeps its size, unless it is too small for the request.
    Fail,
    /// The lane becomes twice as large, again and again, up to the smaller of both ends' [`Limits`](crate::Limits). It
    /// may be four sizes ahead of its reader. Short of memory or descriptors it counts as large as it may be.
    Grow,
}

impl WhenFull {
    pub(crate) fn growth(self) -> Growth {
        match self {
            Self::Adapt => Growth::Often,
            Self::Wait | Self::Fail => Growth::Never,
            Self::Grow => Growth::AtOnce,
        }
    }
}

/// A session with another choice of what to do when the lane is full. It gets its own back when this is dropped.
#[derive(Debug)]
pub struct Choice<'a, S: Service> {
    session: &'a mut Session<S>,
    before: WhenFull,
}

impl<S: Service> Deref for Choice<'_, S> {
    type Target = Session<S>;

    fn deref(&self) -> &Session<S> {
        self.session
    }
}

impl<S: Service> DerefMut for Choice<'_, S> {
    fn deref_mut(&mut self) -> &mut Session<S> {
        self.session
    }
}

impl<S: Service> Drop for Choice<'_, S> {
    fn drop(&mut self) {
        self.session.set_when_full(self.before);
    }
}

impl<S: Service> Session<S> {
    /// The same session, with another choice of what to do when the lane is full for the calls that are made through
    /// what is returned.
    ///
    /// ```
    /// # use bellwire::{CallError, Client, RunDir, Server, Service, WhenFull};
    /// # struct Increment;
    /// # impl Service for Increment {
    /// #     const NAME: &'static str = "increment";
    /// #     type Request = u64;
    /// #     type Response = u64;
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let run_dir = RunDir::new(dir.path());
    /// # let mut builder = Server::builder(&run_dir);
    /// # builder.serve::<Increment>(|_, number| Ok(number + 1))?;
    /// # let server = builder.start()?;
    /// # let mut client = Client::<Increment>::new(&run_dir);
    /// let session = client.connect()?;
    /// match session.when_full(WhenFull::Fail).call(&41) {
    ///     Err(CallError::WouldBlock) => println!("the provider does not keep up"),
    ///     answer => assert_eq!(answer?, 42),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn when_full(&mut self, when_full: WhenFull) -> Choice<'_, S> {
        let before = self.when_full;
        self.set_when_full(when_full);
        Choice { session: self, before }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn chosen_when_full(&self) -> WhenFull {
        self.when_full
    }

    fn set_when_full(&mut self, when_full: WhenFull) {
        self.when_full = when_full;
        self.drive.set_growth(when_full.growth());
    }

    /// Sends a request that nobody waits for here.
    pub(super) fn submit_alone(&mut self, request: Outgoing<'_>) -> Result<Ticket, CallError> {
        match self.when_full {
            WhenFull::Wait => self.submit_waiting(request, &mut Deadline::within(self.timeout)),
            _ => Ok(self.submit_now(request)?),
        }
    }

    /// Requests longer than this many bytes go in parts when their caller waits.
    pub(super) fn parts_from(&self) -> usize {
        match self.when_full {
            WhenFull::Wait if self.stream_from < usize::MAX => {
                self.stream_from.min(self.drive.lane_epoch().size.max_payload())
            }
            _ => self.stream_from,
        }
    }
}
