//! The suite of what every transport has to do, over the simulator and over memfds. `transport-win/tests/main` runs it
//! over sections.

mod memfd;
mod simulator;
mod suite;

suite::conformance! {
    simulated: super::simulator::Simulator;
    memfd_rung_by_futex: super::memfd::OverFutex;
    memfd_rung_by_eventfd: super::memfd::OverEventfd;
    memfd_rung_by_socket: super::memfd::OverSocket;
}
