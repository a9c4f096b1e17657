//! Published once, mapped by many.

mod cache;
mod watch;
