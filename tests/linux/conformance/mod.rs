//! The suite of what every transport has to do, over memfds.

#[path = "../../../transport-memfd/tests/main/links.rs"]
mod links;
mod memfd;
#[path = "../../conformance/suite/mod.rs"]
mod suite;

suite::conformance! {
    memfd_rung_by_futex: super::memfd::OverFutex;
    memfd_rung_by_eventfd: super::memfd::OverEventfd;
    memfd_rung_by_socket: super::memfd::OverSocket;
}
