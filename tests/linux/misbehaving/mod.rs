//! Bad inputs by name: each row of a table is a test of its own, named by the fault.
//!
//! A row says what the hostile peer does and how that ends: with a typed error, on that session alone. Every server
//! in these tests also has a good client, and every client an honest server, that continue during the violation.
//!
//! | module | who attacks whom |
//! | --- | --- |
//! | `to_server` | a client to a real server: in the handshake, in its memory, on its control socket |
//! | `to_client` | a server to a real client: likewise |
//! | `records`, `passing` | the rows of both: in the own lane, and in memory that is passed |
//! | `closing` | descriptors whose `close` blocks, wherever a peer can put one |
//! | `flood` | actions that are no violation if done once |

#[macro_use]
mod table;

mod closing;
mod flood;
pub(crate) mod impostor;
#[macro_use]
pub(crate) mod passing;
#[macro_use]
mod records;
mod to_client;
mod to_server;
