//! What every platform promises, over sections.

#[path = "../../../tests/conformance/platform.rs"]
mod promises;

use bellwire_core::wire::Doorbell;
use bellwire_win::Windows;
use bellwire_win::link::Link;

use crate::support::links;

struct Sections;

impl promises::Testbed for Sections {
    type Platform = Windows;

    const DOORBELLS: &[Doorbell] = &[Doorbell::Eventfd];

    fn links(_: Doorbell) -> (Link, Link) {
        links()
    }

    fn parked() -> impl FnOnce() + Send {
        || ()
    }
}

promises::each_promise!(Sections);
