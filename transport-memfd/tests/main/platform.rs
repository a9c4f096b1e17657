//! What every platform promises, over memfds.

#[path = "../../../tests/conformance/platform.rs"]
mod promises;

use bellwire_core::wire::Doorbell;
use bellwire_memfd::Linux;
use bellwire_memfd::link::Link;

use crate::support::{links, thread_id, wait_until_parked};

struct Memfds;

impl promises::Testbed for Memfds {
    type Platform = Linux;

    const DOORBELLS: &[Doorbell] = &[Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket];

    fn links(doorbell: Doorbell) -> (Link, Link) {
        links(doorbell, Doorbell::Futex)
    }

    fn parked() -> impl FnOnce() + Send {
        let thread = thread_id();
        move || wait_until_parked(thread)
    }
}

promises::each_promise!(Memfds);
