//! The suite of what every transport has to do, over the simulator. `tests/linux` runs it over memfds,
//! `transport-win/tests/main` over sections.

mod simulator;
#[allow(dead_code, reason = "transports whose ends are on threads of their own use the rest")]
mod suite;

suite::conformance! {
    simulated: super::simulator::Simulator;
}
