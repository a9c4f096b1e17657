//! Hostile peers before a session is open: each fault ends in a refusal with a sentence, or a close, for that
//! session alone.

mod departing;
pub(crate) mod hostile_client;
pub(crate) mod hostile_server;
