//! What the demo's provider serves, beside snapshots and the burst.

use bellwire::Event;

/// The service that the demo calls: answers 64 bytes with 64 others.
#[derive(bellwire::Service)]
#[service(name = "demo-ping", request = [u8; 64], response = [u8; 64], idempotent)]
pub(crate) struct DemoPing;

impl DemoPing {
    /// Returns the right answer: every bit inverted, so that an echo of stale memory is detected.
    pub(crate) fn answer(request: [u8; 64]) -> [u8; 64] {
        request.map(|byte| !byte)
    }
}

/// The events of the demo: a number that follows from the event's own.
pub(crate) struct DemoTick;

impl Event for DemoTick {
    const NAME: &'static str = "demo-tick";
    type Message = u64;
}

impl DemoTick {
    /// How much memory the provider keeps for a slow consumer, in bytes.
    pub(crate) const DEPTH: u64 = 1 << 20;

    /// Returns the contents of the event with this number.
    pub(crate) fn contents(sequence: u64) -> u64 {
        sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
