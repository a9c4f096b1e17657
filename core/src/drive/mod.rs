//! What drives a session over any port: an [`End`](crate::end::End) with a state machine.
//!
//! [`CallDriver`] is a client's: it has the only loops that block. [`ServeDriver`] is a server's, and never blocks.

mod call;
mod serve;

pub use call::{CallDriver, CallFailed, SpinPoll};
pub use serve::{Attachable, RespondOutcome, ServeDriver};
