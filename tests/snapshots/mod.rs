//! Published once, read by many.

mod cache;
mod deltas;
mod ring;
mod watch;
