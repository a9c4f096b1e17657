//! The sessions' control channels: handles their events, and decides which are polled.

use std::time::Duration;

use bellwire_core::end::EndReason;

use super::active::RETRY_AFTER;
use super::{Reactor, Slot, SlotState};
use crate::server::source::{SlotKey, Source};
use crate::transport::link::{DrainOutcome, Link};
use crate::transport::poll::{Interest, Poller, Trigger};
use crate::transport::prelude::*;

/// The longest interval at which a session is checked whose channel is not polled.
const LAST_RETRY_AFTER: Duration = Duration::from_millis(1_600);

impl Reactor {
    /// Handles a channel on which something may have arrived.
    pub(super) fn mark_ready(&mut self, key: SlotKey) {
        if let Some(entry) = self.slots.get_mut(key.slot) {
            if !std::mem::replace(&mut entry.is_ready, true) {
                self.clients.mark_ready(entry.client, key);
            }
        }
    }

    #[inline(never)]
    pub(super) fn on_socket(&mut self, key: SlotKey) {
        if !self.is_current(key) {
            return;
        }
        let slot = key.slot;
        let Some(entry) = self.slots.get_mut(slot) else { return };
        entry.is_ready = false;
        match &mut entry.state {
            SlotState::Open(session) => match session.read_control() {
                Ok(DrainOutcome::Nothing) => self.unmute_socket(key),
                Ok(DrainOutcome::Flood) => {
                    self.unmute_socket(key);
                    self.mark_ready(key);
                }
                Ok(DrainOutcome::More) => self.mute_socket(key),
                Ok(DrainOutcome::End) => self.peer_gone(slot),
                Err(why) => self.end(slot, why),
            },
            SlotState::Handshake(_) => self.advance_handshake(slot),
            #[cfg(feature = "netipc")]
            SlotState::Netipc(_) => self.turn_netipc(key),
            SlotState::Gone => {}
        }
    }

    /// Polls the socket again, now that it is empty.
    fn unmute_socket(&mut self, key: SlotKey) {
        let Some(entry) = self.slots.get_mut(key.slot) else { return };
        if std::mem::take(&mut entry.is_muted) && self.listen(key, true).is_err() {
            return self.end(key.slot, EndReason::Gone);
        }
        self.resume(key.slot);
    }

    /// Stops polling a socket on which messages stay, which would wake this thread again and again. The record that
    /// needs a message has it received. A client without another doorbell is checked after 50 ms, and then at intervals
    /// that double: a thousand such clients must not take the time of the others.
    fn mute_socket(&mut self, key: SlotKey) {
        let Some(entry) = self.slots.get_mut(key.slot) else { return };
        let is_news = !std::mem::replace(&mut entry.is_muted, true);
        if is_news && self.listen(key, false).is_err() {
            return self.end(key.slot, EndReason::Gone);
        }
        let Some(session) = self.session(key.slot) else { return };
        let (comes_back, is_paused) = (needs_channel(session.link()), session.is_paused());
        if is_news || is_paused || session.has_moved() {
            self.resume(key.slot);
        }
        if !comes_back {
            return;
        }
        let Some(entry) = self.slots.get_mut(key.slot) else { return };
        let is_new = is_news || is_paused;
        let retry_after =
            if is_new { RETRY_AFTER } else { (entry.retry_after * 2).min(LAST_RETRY_AFTER) };
        entry.retry_after = retry_after;
        self.retry_later(key, retry_after);
    }

    /// Gives a session turns, even if it was paused.
    pub(super) fn resume(&mut self, slot: usize) {
        if let Some(session) = self.session(slot) {
            session.resume();
            self.activate(slot);
        }
    }

    /// Sets whether the poller reports what arrives on a session's channel.
    pub(super) fn listen(&mut self, key: SlotKey, readable: bool) -> std::io::Result<()> {
        let entry = self.slots.get_mut(key.slot);
        let Some(session) = entry.and_then(Slot::session) else { return Ok(()) };
        let interest = Interest { readable, ..Interest::readable(Trigger::Level) };
        let token = Source::Socket(key).token();
        Ok(self.poller.modify(session.link().arrived(), token, interest)?)
    }
}

/// Returns whether the channel carries needed events: rings, or the client's end.
fn needs_channel(link: &Link) -> bool {
    link.event().is_none() || !Poller::REPORTS_HANGUP
}
