//! Ends sessions of clients that take nothing of what was published for them: stopped, hanging, or never reading.

use bellwire_core::end::EndReason;
use bellwire_core::{Instant, StallStatus};

use super::{Reactor, SlotState};
use crate::server::source::Place;

impl Reactor {
    /// Checks, when a session is armed, whether its client has left anything unread, and if so schedules another
    /// check.
    pub(super) fn watch_for_stall(&mut self, slot: usize, now: Instant) {
        let Some(limit) = self.config.unread_timeout else { return };
        let Some(session) = self.session(slot) else { return };
        if session.is_watched_for_stall {
            return;
        }
        // After a protocol violation, or with a limit of zero, the session ends with the reactor's next check.
        let due = match session.check_stalled(now, limit) {
            Ok(StallStatus::CheckAt(due)) => due,
            Ok(StallStatus::Stalled) | Err(_) => now,
            Ok(StallStatus::CaughtUp) => return,
        };
        session.is_watched_for_stall = true;
        let place = Place::new(slot, session.id());
        self.unread.push(place);
        self.unread_at.get_or_insert(due);
    }

    /// Ends the sessions whose clients have taken nothing for too long. Checks all of them together, so that many
    /// cost no more wake-ups than one.
    pub(super) fn end_stalled(&mut self, now: Instant) {
        self.unread_at = None;
        let Some(limit) = self.config.unread_timeout else { return };
        let mut next: Option<Instant> = None;
        for place in std::mem::take(&mut self.unread) {
            if !self.is_current(place) {
                continue;
            }
            let Some(entry) = self.slots.get_mut(place.slot) else { continue };
            let (left, is_watched_for_stall) = match &mut entry.state {
                SlotState::Open(session) => {
                    (session.check_stalled(now, limit), &mut session.is_watched_for_stall)
                }
                #[cfg(feature = "netipc")]
                SlotState::Netipc(session) => {
                    (Ok(session.check_stalled(now, limit)), &mut session.is_watched_for_stall)
                }
                SlotState::Handshake(_) | SlotState::Gone => continue,
            };
            match left {
                Ok(StallStatus::CaughtUp) => *is_watched_for_stall = false,
                Ok(StallStatus::CheckAt(due)) => {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    self.unread.push(place);
                }
                Ok(StallStatus::Stalled) => self.end(place.slot, EndReason::Unread),
                Err(why) => self.end(place.slot, why),
            }
        }
        self.unread_at = next.map(|next| next.max(now.after(limit / 4)));
    }
}
