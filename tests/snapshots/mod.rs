//! Published once, read by many.

mod cache;
mod changes;
mod ring;
mod watch;
