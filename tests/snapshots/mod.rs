//! Published once, mapped by many.

mod cache;
mod memory;
mod watch;
