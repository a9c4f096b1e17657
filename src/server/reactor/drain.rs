//! Stops the reactor.

use std::time::Duration;

use bellwire_core::wire::{CloseReason, RefuseCode};

use super::{Reactor, Slot, SlotState};
use crate::ServerStats;
use crate::transport::clock;
use crate::transport::poll::Events;

/// How often the clock is read while draining.
const DRAIN_SLICE: Duration = Duration::from_millis(5);

impl Reactor {
    /// Answers the requests that were taken, refuses the others, and closes every lane.
    pub(super) fn drain(mut self) {
        let mut listeners = std::mem::take(&mut self.listeners);
        for listener in &listeners {
            let _ = self.poller.delete(&listener.endpoint);
        }
        let deadline = self.shared.stop.get().unwrap_or_else(clock::now);
        let mut events = Events::with_capacity(64);
        self.refuse_rest();
        while self.is_owing() && clock::now() < deadline {
            // Sleep until a worker is done; a client that makes room is noticed at the end of a slice.
            if self.workers.will_ring() {
                let _ = self.poller.wait(&mut events, Some(DRAIN_SLICE));
            }
            while self.take_done() {}
            #[cfg(feature = "netipc")]
            self.flush_netipc();
            self.refuse_rest();
        }
        // Before any client sees a Close record: handlers that still run are too late.
        self.workers.close();
        self.tasks.close();
        for entry in std::mem::take(&mut self.slots).into_iter().map(|(_, entry)| entry) {
            match entry.state {
                SlotState::Open(session) => {
                    self.close(*session, CloseReason::Stopping, ServerStats::default());
                }
                SlotState::Handshake(handshake) => {
                    let reason = "the provider is stopping";
                    let turned_away = handshake.turn_away(RefuseCode::Stopping, reason);
                    if let Some(channel) = turned_away.channel {
                        self.discard(channel);
                    }
                }
                #[cfg(feature = "netipc")]
                SlotState::Netipc(session) => self.close_netipc(*session, None),
                SlotState::Gone => {}
            }
        }
        self.shared.report_suppressed();
        // After the lanes are closed, so that a client whose board reports the stop finds its session closed.
        for listener in listeners.drain(..) {
            listener.store.stop();
        }
    }

    fn refuse_rest(&mut self) {
        let slots: Vec<usize> = self.slots.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(Slot { state: SlotState::Open(session), .. }) = self.slots.get_mut(slot) {
                if let Err(why) = session.refuse_rest(slot, &self.workers, &mut self.scratch) {
                    self.end(slot, why);
                }
            }
        }
    }

    fn is_owing(&self) -> bool {
        self.slots.iter().any(|(_, entry)| match &entry.state {
            SlotState::Open(open) => !open.is_drained(),
            #[cfg(feature = "netipc")]
            SlotState::Netipc(session) => session.is_owing(),
            SlotState::Handshake(_) | SlotState::Gone => false,
        })
    }
}
