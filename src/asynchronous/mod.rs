//! Sessions shared by the tasks of a tokio runtime (feature `tokio`, on Linux).
//!
//! One task per session, the driver, waits for the provider and distributes answers; it sleeps while none arrive. A
//! calling task writes its request itself and then waits for the driver.
//!
//! # Spinning
//!
//! While answers come soon, nothing sleeps: the driver polls for them whenever its thread has no other task to run, for at
//! most 3 µs at a time, and a task whose call is the only one in flight polls itself for that long first. Every other task
//! and the runtime's events have their turn in between. [`ClientConfig::spin`](crate::ClientConfig::spin) decides, as for
//! blocking calls; with [`SpinPolicy::NEVER`](crate::SpinPolicy::NEVER) the driver sleeps at once. Deadlines of calls are
//! then kept to within about a millisecond, the resolution of the runtime's timers.
//!
//! Where the tasks of a runtime of one thread call at the same time, the driver publishes their requests together: the first at
//! once, those after it when the tasks before the driver have had their turn. A task that blocks its thread meanwhile, for
//! instance until a handler has run, delays them.
//!
//! # Cancellation safety
//!
//! Every future here may be dropped at any time. A call that is dropped before its request was written has no effect.
//! One that is dropped later is abandoned: the provider is notified and does not run the handler unless it has
//! already started; an answer that arrives anyway is dropped; the session continues. A post that is dropped while it waits
//! for room was not sent. A wait for a snapshot or an event takes nothing before it ends. After a connection attempt is dropped, the next one continues where it stopped.

mod cache;
mod client;
mod driver;
mod session;
mod state;
mod subscriber;
mod waiters;
mod wakeup;

use bellwire_core::wire::Doorbell;

use crate::ClientConfig;

pub use cache::AsyncSnapshotCache;
pub use client::AsyncClient;
pub use session::{AsyncSession, RawAsyncSession};
pub use subscriber::AsyncSubscriber;

/// A runtime waits for descriptors, not for a futex.
fn with_descriptor(config: ClientConfig) -> ClientConfig {
    match config.doorbell {
        Doorbell::Futex => config.doorbell(Doorbell::Eventfd),
        _ => config,
    }
}
