//! Published once, mapped by many.

mod ahead;
mod cache;
mod watch;
