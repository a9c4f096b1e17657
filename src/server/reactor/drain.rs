//! Stops the reactor.

use std::time::Duration;

use bellwire_core::wire::{CloseReason, Refuse, RefuseCode};

use super::{Reactor, Slot, SlotState};
use crate::server::source::Source;
use crate::transport::poll::{Events, PollEvent};
use crate::transport::{Os, prelude::*};

/// How often the clock is read while draining.
const DRAIN_SLICE: Duration = Duration::from_millis(5);

impl Reactor {
    /// Answers the requests that were taken, refuses the others, and closes every lane.
    pub(super) fn drain(mut self) {
        let mut listeners = std::mem::take(&mut self.listeners);
        for listener in &listeners {
            let _ = self.poller.delete(listener.endpoint.as_object());
        }
        if let Some(notify) = self.notify.take() {
            let _ = self.poller.delete(notify.changed());
        }
        self.reject_pending_handshakes();
        let deadline = self.shared.stop.get().unwrap_or_else(Os::now);
        let mut events = Events::with_capacity(64);
        loop {
            // On Windows clients find the pipe for as long as a session is open.
            listeners.iter().for_each(|listener| listener.endpoint.stop_accepting());
            self.refuse_rest();
            if !self.has_unsent_answer() || Os::now() >= deadline {
                break;
            }
            // Sleep until a worker is done; a client that makes room is noticed at the end of a slice.
            if self.outbox.arm_bell() {
                let _ = self.poller.wait(&mut events, Some(DRAIN_SLICE));
                self.note_departures(&events);
            }
            while self.take_done() {}
            #[cfg(feature = "netipc")]
            self.flush_netipc();
        }
        // Before any client sees a Close record: handlers that still run are too late.
        self.workers.close();
        self.tasks.close();
        for entry in std::mem::take(&mut self.slots).into_iter().map(|(_, entry)| entry) {
            match entry.state {
                SlotState::Open(session) => {
                    self.close(*session, CloseReason::Stopping, None);
                }
                #[cfg(feature = "netipc")]
                SlotState::Netipc(session) => self.close_netipc(*session, None),
                SlotState::Handshake(_) | SlotState::Gone => {}
            }
        }
        self.shared.report_suppressed();
        // After the lanes are closed, so that a client whose board reports the stop finds its session closed.
        for listener in listeners.drain(..) {
            listener.store.stop();
        }
    }

    fn reject_pending_handshakes(&mut self) {
        for slot in self.slots_where(|state| matches!(state, SlotState::Handshake(_))) {
            if let SlotState::Handshake(handshake) = self.slots.remove(slot).state {
                let refusal = Refuse::new(RefuseCode::Stopping, "the provider is stopping");
                if let Some(channel) = handshake.refuse(&refusal).channel {
                    self.discard(channel);
                }
            }
        }
    }

    /// Notes which clients have left, and takes what else would end each sleep at once off their channels, or leaves it there.
    fn note_departures(&mut self, events: &Events) {
        for PollEvent { token, readable, hung_up, .. } in events.iter() {
            match Source::parse(token) {
                Some(Source::Socket(key) | Source::Process(key)) if !self.is_current(key) => {}
                Some(Source::Socket(key)) if readable && self.session(key.slot).is_some() => {
                    self.on_socket(key);
                }
                #[cfg(feature = "netipc")]
                Some(Source::Socket(key)) if !hung_up => {
                    self.mute_netipc(key);
                }
                Some(Source::Socket(key)) if hung_up => self.peer_gone(key.slot),
                Some(Source::Process(key)) => self.peer_gone(key.slot),
                Some(Source::Peer(pid)) => self.on_process(pid),
                _ => {}
            }
        }
    }

    fn refuse_rest(&mut self) {
        for slot in self.slots_where(|state| matches!(state, SlotState::Open(_))) {
            let Some(session) = self.slots.get_mut(slot).and_then(Slot::session) else { continue };
            match session.refuse_rest(slot, &self.workers, &mut self.scratch) {
                Ok(()) if session.is_departed() => self.finish_departed(slot),
                Ok(()) => {}
                Err(why) => self.end(slot, why),
            }
        }
    }

    fn slots_where(&self, wanted: impl Fn(&SlotState) -> bool) -> Vec<usize> {
        let slots = self.slots.iter().filter(|(_, entry)| wanted(&entry.state));
        slots.map(|(slot, _)| slot).collect()
    }

    fn has_unsent_answer(&self) -> bool {
        self.slots.iter().any(|(_, entry)| match &entry.state {
            SlotState::Open(open) => !open.is_drained(),
            #[cfg(feature = "netipc")]
            SlotState::Netipc(session) => session.has_unsent_answer(),
            SlotState::Handshake(_) | SlotState::Gone => false,
        })
    }
}
