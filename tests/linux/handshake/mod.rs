//! Hostile peers before a session is open: each fault ends in a refusal with a sentence, or a close, for that
//! session alone.

mod departing;
mod hostile_client;
mod hostile_server;
