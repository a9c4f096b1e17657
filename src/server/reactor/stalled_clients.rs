//! Ends sessions of clients that take nothing of what was published for them: stopped, hanging, or never reading.

use std::time::Duration;

use bellwire_core::end::EndReason;
use bellwire_core::{Instant, StallStatus};

use super::{Reactor, Slot, SlotState};

impl Slot {
    /// Returns whether the client has taken nothing for `limit` of what was published for it. `None` without a session.
    fn check_stalled(
        &mut self,
        now: Instant,
        limit: Duration,
    ) -> Option<Result<StallStatus, EndReason>> {
        match &mut self.state {
            SlotState::Open(session) => Some(session.check_stalled(now, limit)),
            #[cfg(feature = "netipc")]
            SlotState::Netipc(session) => Some(Ok(session.machine.check_stalled(now, limit))),
            SlotState::Handshake(_) | SlotState::Gone => None,
        }
    }
}

impl Reactor {
    /// Checks, when a session is armed, whether its client has left anything unread, and if so schedules another
    /// check.
    pub(super) fn watch_for_stall(&mut self, slot: usize, now: Instant) {
        let Some(limit) = self.config.stall_timeout else { return };
        let Some(entry) = self.slots.get_mut(slot) else { return };
        if entry.is_watched_for_stall {
            return;
        }
        // After a protocol violation, or with a limit of zero, the session ends with the reactor's next check.
        let due = match entry.check_stalled(now, limit) {
            Some(Ok(StallStatus::CheckAt(due))) => due,
            Some(Ok(StallStatus::Stalled) | Err(_)) => now,
            Some(Ok(StallStatus::CaughtUp)) | None => return,
        };
        entry.is_watched_for_stall = true;
        self.stall_watched.push(entry.key);
        self.stall_check_at.get_or_insert(due);
    }

    /// Ends the sessions whose clients have taken nothing for too long. Checks all of them together, so that many
    /// cost no more wake-ups than one.
    pub(super) fn end_stalled(&mut self, now: Instant) {
        self.stall_check_at = None;
        let Some(limit) = self.config.stall_timeout else { return };
        let mut next: Option<Instant> = None;
        for key in std::mem::take(&mut self.stall_watched) {
            let entry = self.slots.get_mut(key.slot).filter(|entry| entry.key == key);
            let Some(entry) = entry else { continue };
            match entry.check_stalled(now, limit) {
                Some(Ok(StallStatus::CaughtUp)) => entry.is_watched_for_stall = false,
                Some(Ok(StallStatus::CheckAt(due))) => {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    self.stall_watched.push(key);
                }
                Some(Ok(StallStatus::Stalled)) => self.end(key.slot, EndReason::Stalled),
                Some(Err(why)) => self.end(key.slot, why),
                None => {}
            }
        }
        self.stall_check_at = next.map(|next| next.max(now.after(limit / 4)));
    }
}
