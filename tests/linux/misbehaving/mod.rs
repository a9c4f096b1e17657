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
mod impostor;
#[macro_use]
pub(crate) mod passing;
#[macro_use]
mod records;
mod to_client;
mod to_server;

/// Every row of every table.
fn rows() -> Vec<&'static str> {
    let closing = [closing::ROWS, closing::of_clients::ROWS].concat();
    [to_server::rows(), to_client::rows(), closing].concat()
}

#[test]
fn two_hundred_bad_inputs_have_names_of_their_own() {
    let mut rows = rows();
    let all = rows.len();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len(), all, "a name stands for two inputs");
    assert!(all >= 200, "{all} rows");
    println!("{all} bad inputs");
}
