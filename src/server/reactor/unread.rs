//! Clients that take nothing of what was published for them: stopped, hanging, or never reading.

use bellwire_core::{Instant, Left};

use super::Reactor;
use crate::server::conversation::Ended;
use crate::server::source::Place;

impl Reactor {
    /// Looks, as a session goes to sleep, whether its client has left anything unread, and if so looks again in time.
    pub(super) fn note_unread(&mut self, slot: usize, now: Instant) {
        let Some(limit) = self.config.unread_timeout else { return };
        let Some(conversation) = self.conversation(slot) else { return };
        if conversation.is_left_unread {
            return;
        }
        // A lie is told in its next turn; who may take nothing at all is ended at once, by the reactor's next look.
        let due = match conversation.look_unread(now, limit) {
            Ok(Left::Until(due)) => due,
            Ok(Left::TooLong) => now,
            Ok(Left::Nothing) | Err(_) => return,
        };
        conversation.is_left_unread = true;
        let place = Place::new(slot, conversation.session());
        self.unread.push(place);
        self.unread_at.get_or_insert(due);
    }

    /// Ends the sessions whose clients have taken nothing for too long. The others are looked at together, so that
    /// many of them cost no more wake-ups than one.
    pub(super) fn end_unread(&mut self, now: Instant) {
        self.unread_at = None;
        let Some(limit) = self.config.unread_timeout else { return };
        let mut next: Option<Instant> = None;
        for place in std::mem::take(&mut self.unread) {
            if !self.sits(place) {
                continue;
            }
            let Some(conversation) = self.conversation(place.slot) else { continue };
            match conversation.look_unread(now, limit) {
                Ok(Left::Nothing) => conversation.is_left_unread = false,
                Ok(Left::Until(due)) => {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    self.unread.push(place);
                }
                Ok(Left::TooLong) => self.end(place.slot, Ended::Unread),
                Err(ended) => self.end(place.slot, ended),
            }
        }
        self.unread_at = next.map(|next| next.max(now.after(limit / 4)));
    }
}
