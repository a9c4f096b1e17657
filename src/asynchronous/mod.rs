//! Sessions that the tasks of a tokio runtime share (feature `tokio`, on Linux).
//!
//! One task for each session, the driver, waits for the provider and hands answers on; it sleeps as long as nothing
//! comes. Whoever calls writes the request himself, and then waits for the driver.
//!
//! # Cancellation safety
//!
//! Every future here may be dropped at any time. A call that is dropped before its request was written has done nothing.
//! One that is dropped later is abandoned: the provider is told, and does not run the handler unless it has begun
//! already; an answer that comes all the same is dropped; the session goes on. A connection attempt that is dropped goes
//! on where it was at the next one.

mod client;
mod driver;
mod session;
mod state;
mod waiters;

pub use client::AsyncClient;
pub use session::AsyncSession;
