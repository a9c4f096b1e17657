//! Ends sessions of clients that take nothing of what was published for them: stopped, hanging, or never reading.

use bellwire_core::end::Why;
use bellwire_core::{Instant, Left};

use super::{Reactor, SlotState};
use crate::server::source::Place;

impl Reactor {
    /// Checks, when a session is armed, whether its client has left anything unread, and if so schedules another
    /// check.
    pub(super) fn note_unread(&mut self, slot: usize, now: Instant) {
        let Some(limit) = self.config.unread_timeout else { return };
        let Some(session) = self.session(slot) else { return };
        if session.is_left_unread {
            return;
        }
        // After a protocol violation, or with a limit of zero, the session ends with the reactor's next check.
        let due = match session.check_stalled(now, limit) {
            Ok(Left::Until(due)) => due,
            Ok(Left::TooLong) | Err(_) => now,
            Ok(Left::Nothing) => return,
        };
        session.is_left_unread = true;
        let place = Place::new(slot, session.id());
        self.unread.push(place);
        self.unread_at.get_or_insert(due);
    }

    /// Ends the sessions whose clients have taken nothing for too long. Checks all of them together, so that many
    /// cost no more wake-ups than one.
    pub(super) fn end_unread(&mut self, now: Instant) {
        self.unread_at = None;
        let Some(limit) = self.config.unread_timeout else { return };
        let mut next: Option<Instant> = None;
        for place in std::mem::take(&mut self.unread) {
            if !self.is_current(place) {
                continue;
            }
            let Some(entry) = self.slots.get_mut(place.slot) else { continue };
            let (left, is_left_unread) = match &mut entry.state {
                SlotState::Open(session) => {
                    (session.check_stalled(now, limit), &mut session.is_left_unread)
                }
                #[cfg(feature = "netipc")]
                SlotState::Netipc(session) => {
                    (Ok(session.check_stalled(now, limit)), &mut session.is_left_unread)
                }
                SlotState::Handshake(_) | SlotState::Gone => continue,
            };
            match left {
                Ok(Left::Nothing) => *is_left_unread = false,
                Ok(Left::Until(due)) => {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    self.unread.push(place);
                }
                Ok(Left::TooLong) => self.end(place.slot, Why::Unread),
                Err(why) => self.end(place.slot, why),
            }
        }
        self.unread_at = next.map(|next| next.max(now.after(limit / 4)));
    }
}
