//! What a session costs the kernel, how soon a death is seen, and peers that stop.

pub(crate) mod activation;
mod cost;
mod death;
pub(crate) mod latency;
pub(crate) mod stopped;
