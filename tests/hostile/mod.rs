//! Hostile peers on an open session: what they write poisons that session, and nothing else.

mod client;
mod server;
