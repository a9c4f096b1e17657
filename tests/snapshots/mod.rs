//! Published once, mapped by many.

mod cache;
mod prefetch;
mod watch;
