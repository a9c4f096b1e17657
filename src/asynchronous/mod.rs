//! Sessions shared by the tasks of a tokio runtime (feature `tokio`, on Linux).
//!
//! One task per session, the driver, waits for the provider and distributes answers; it sleeps while none arrive. A
//! calling task writes its request itself and then waits for the driver.
//!
//! # Cancellation safety
//!
//! Every future here may be dropped at any time. A call that is dropped before its request was written has no effect.
//! One that is dropped later is abandoned: the provider is notified and does not run the handler unless it has
//! already started; an answer that arrives anyway is dropped; the session continues. After a connection attempt is
//! dropped, the next one continues where it stopped.

mod client;
mod driver;
mod session;
mod state;
mod waiters;

pub use client::AsyncClient;
pub use session::AsyncSession;
