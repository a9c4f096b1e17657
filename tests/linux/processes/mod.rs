//! What a session costs the kernel, how soon a death is seen, and peers that stop.

mod cost;
mod death;
pub(crate) mod latency;
pub(crate) mod stopped;
