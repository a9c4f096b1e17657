//! A server and its clients, each in a process of its own.

mod cost;
mod death;
mod errors;
pub(crate) mod latency;
pub(crate) mod stopped;
