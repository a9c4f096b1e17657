use std::time::Duration;

use bellwire_core::Geometry;
use bellwire_core::lane::{Armed, Lanes};
use bellwire_sim::{Event, Sim, SimEnd, SimPort, Step as SimStep};

use super::suite::Transport;
use super::suite::endpoints::{Next, Script, Serving};

/// Both ends in this thread, in virtual time.
pub(crate) struct Simulator;

impl Transport for Simulator {
    type Port = SimPort;

    const SLEEPS_WITHOUT_SPINNING: bool = true;

    fn connect(lane: Geometry, mut script: Box<Script>) -> (SimPort, Lanes) {
        let mut serving = None;
        let sim = Sim { lane, peer_lane: lane, ..Sim::default() };
        sim.start(move |end: &SimEnd| {
            let serving = serving.get_or_insert_with(|| Serving::new(end.clone(), end.lanes()));
            match serving.step(&mut *script) {
                Next::Again => SimStep::Again,
                Next::Vanish => SimStep::Gone,
                Next::Park if serving.arm() == Armed::Moved => SimStep::Again,
                Next::Park => SimStep::Parked(None),
            }
        })
    }

    fn cancel_when_parked(port: &SimPort) {
        port.after(Duration::from_millis(1), Event::Cancel);
    }

    fn take_cancel(_: &SimPort) {}
}
