//! What Bellwire's transports have in common, whatever the operating system.
//!
//! ```text
//! range     bytes that one process writes and another reads at the same time
//! end       the memory of one end of a session, for the core: a page and a lane
//! observe   what an observer finds of sessions that are not its own
//! quota     what the peers of each user make this process hold
//! reaper    the thread that closes what a peer sent and nobody verified
//! ```
//!
//! It makes no system call: a transport maps the memory, says why it may be used, and closes what is to be closed.

#[cfg(target_endian = "big")]
compile_error!("the words of a page are little-endian");

mod end;
mod observe;
mod quota;
mod range;
mod reaper;

pub use end::{OwnEnd, PeerEnd};
pub use observe::{ObserveError, PageMap};
pub use quota::{
    Charge, Gauge, Lender, Lent, Loan, MemoryPool, OverQuota, OverQuotaReason, Pressure, Quota,
};
pub use range::{OwnRange, PeerRange};
pub use reaper::{Reaper, reap_for};
