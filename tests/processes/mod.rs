//! A server and its clients, each in a process of its own.

mod arrival;
mod death;
mod errors;
mod shares;
