//! What Bellwire's transports have in common on every operating system.
//!
//! ```text
//! range     bytes that one process writes while another reads them
//! memory    the memory of one end of a session, for the core: a page and a lane
//! link      one end of a session: the core's `Port` over the memory, the channel and the doorbells of a transport
//! platform  what a transport provides: the traits that each implements
//! observe   what an observer finds out about sessions of other processes
//! quota     what the peers of each user make this process hold
//! received  a control message with what came with it
//! reaper    the thread that closes what a peer sent and nobody verified
//! ```
//!
//! This crate makes no system call. A transport maps the memory, justifies its use, and closes handles.

#[cfg(target_endian = "big")]
compile_error!("the words of a page are little-endian");
#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "Bellwire needs a 64-bit processor: 32-bit ones promise no 64-bit load from memory that is mapped read-only; see ADR 0045"
);

mod broadcast;
mod cancel;
mod link;
mod lock;
mod memory;
pub mod platform;
mod quota;
mod range;
mod reaper;
mod received;

pub use broadcast::{ReceiveRegion, TransmitRegion};
pub use cancel::{Cancel, Canceller};
pub use link::Link;
pub use lock::lock;
pub use memory::{OwnEnd, PeerEnd};
pub use platform::{
    EndpointInfo, Interest, LifeState, ListError, Liveness, Parts, Platform, PollEvent, Trigger,
};
pub use quota::{
    Charge, Gauge, LentMemory, Loan, LoanAccount, MemoryPool, OverQuota, OverQuotaReason, Pressure,
    Quota,
};
pub use range::{OwnRange, PeerRange};
pub use reaper::{Reaper, reap_for};
pub use received::{Objects, Received};
