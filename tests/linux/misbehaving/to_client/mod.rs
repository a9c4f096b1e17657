//! A hostile server and a real client.

mod descriptors;
mod records;
mod welcome;
mod words;

use bellwire_core::wire::{Header, Kind, Status};

pub(super) use crate::hostile::server::is_found;

fn response(id: u64, len: u32) -> Header {
    Header::new(Kind::Response, Status::Ok, id, len)
}
