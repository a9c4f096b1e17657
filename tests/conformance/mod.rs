//! The suite of what every transport has to do, over the simulator. `tests/linux` runs it over memfds,
//! `transport-win/tests/main` over sections. `platform.rs` is what both
//! transports promise below that, and their own tests include it.

mod simulator;
#[allow(dead_code, reason = "transports whose ends are on threads of their own use the rest")]
mod suite;

suite::conformance! {
    simulated: super::simulator::Simulator;
}
