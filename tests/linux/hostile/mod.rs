//! Hostile peers on an open session: what they write poisons that session, and nothing else.

mod awaited;
mod batches;
pub(crate) mod client;
mod reactor;
pub(crate) mod server;
mod unrung;
