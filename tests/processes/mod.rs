//! A server and its clients, each in a process of its own.

mod death;
mod errors;
mod shares;
