//! Stopping.

use std::time::Duration;

use bellwire_core::wire::{CloseReason, RefuseCode};

use super::{Guest, Reactor, Seat};
use crate::ServerStats;
use crate::transport::clock;
use crate::transport::poll::Events;

/// How often the time is looked at while draining.
const DRAIN_SLICE: Duration = Duration::from_millis(5);

impl Reactor {
    /// Answers what was taken, refuses the rest, says bye.
    pub(super) fn drain(mut self) {
        let mut stations = std::mem::take(&mut self.stations);
        for station in &stations {
            let _ = self.poller.delete(&station.endpoint);
        }
        let deadline = self.shared.stop.told().unwrap_or_else(clock::now);
        let mut events = Events::with_capacity(64);
        self.refuse_rest();
        while self.is_owing() && clock::now() < deadline {
            // Sleeps until a worker is done; a client that makes room is looked for in slices.
            let _ = self.poller.wait(&mut events, Some(DRAIN_SLICE));
            while self.take_done() {}
            self.refuse_rest();
        }
        // Before anybody hears a bye: it is too late for what runs now.
        self.workers.close();
        for seat in std::mem::take(&mut self.seats).into_iter().map(|(_, seat)| seat) {
            match seat.guest {
                Guest::Open(conversation) => {
                    self.close(*conversation, CloseReason::Stopping, ServerStats::default());
                }
                Guest::Greeting(greeting) => {
                    let reason = "the provider is stopping";
                    let turned_away = greeting.turn_away(RefuseCode::Stopping, reason);
                    if let Some(channel) = turned_away.channel {
                        self.discard(channel);
                    }
                }
                Guest::Gone => {}
            }
        }
        self.shared.tell_rest();
        // After the byes: who looks at a board that says so finds its session closed.
        for station in stations.drain(..) {
            station.shelf.stop();
        }
    }

    fn refuse_rest(&mut self) {
        let slots: Vec<usize> = self.seats.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get_mut(slot)
                && let Err(ended) = conversation.refuse_rest(slot, &self.workers, &mut self.scratch)
            {
                self.end(slot, ended);
            }
        }
    }

    fn is_owing(&self) -> bool {
        self.seats
            .iter()
            .any(|(_, seat)| matches!(&seat.guest, Guest::Open(open) if !open.is_drained()))
    }
}
