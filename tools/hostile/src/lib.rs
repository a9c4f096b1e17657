//! A client that implements the wire protocol itself, for programs that attack a server.

pub mod wire;
