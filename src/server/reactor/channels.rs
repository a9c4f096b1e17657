//! What comes on the sessions' control channels, and which of them are polled.

use super::{Guest, Reactor, Seat};
use crate::server::conversation::Ended;
use crate::server::source::{Place, Source};
use crate::transport::link::{Heard, Link};
use crate::transport::poll::{Interest, Poller, Trigger};

impl Reactor {
    /// Something came on a channel, or may have.
    pub(super) fn hear(&mut self, place: Place) {
        if let Some(seat) = self.seats.get_mut(place.slot)
            && !std::mem::replace(&mut seat.is_heard, true)
        {
            self.clients.hear(seat.client, place);
        }
    }

    #[inline(never)]
    pub(super) fn on_socket(&mut self, place: Place) {
        if !self.sits(place) {
            return;
        }
        let slot = place.slot;
        let Some(seat) = self.seats.get_mut(slot) else { return };
        seat.is_heard = false;
        match &mut seat.guest {
            Guest::Open(conversation) => match conversation.read_control() {
                Ok(Heard::Nothing) => self.hear_again(place),
                Ok(Heard::Flood) => {
                    self.hear_again(place);
                    self.hear(place);
                }
                Ok(Heard::More) => self.turn_deaf(place),
                Ok(Heard::End) | Err(Ended::Gone) => self.depart(slot),
                Err(ended) => self.end(slot, ended),
            },
            Guest::Greeting(_) => self.greet(slot),
            Guest::Gone => {}
        }
    }

    /// Nothing stays on the socket.
    fn hear_again(&mut self, place: Place) {
        let Some(seat) = self.seats.get_mut(place.slot) else { return };
        if std::mem::take(&mut seat.is_deaf) && self.listen(place, true).is_err() {
            return self.end(place.slot, Ended::Gone);
        }
        self.go_on(place.slot);
    }

    /// Something stays on the socket and would wake this thread again and again: listens to it no more. The record
    /// that needs it has it received. A client of which nothing is heard otherwise is looked at by and by.
    fn turn_deaf(&mut self, place: Place) {
        let Some(seat) = self.seats.get_mut(place.slot) else { return };
        let is_news = !std::mem::replace(&mut seat.is_deaf, true);
        if is_news && self.listen(place, false).is_err() {
            return self.end(place.slot, Ended::Gone);
        }
        let Some(conversation) = self.conversation(place.slot) else { return };
        let comes_back = needs_channel(conversation.link());
        if is_news || conversation.is_stalled() || conversation.has_moved() {
            self.go_on(place.slot);
        }
        if comes_back {
            self.stall(place);
        }
    }

    /// Gives a session turns, also one that could not go on before.
    fn go_on(&mut self, slot: usize) {
        if let Some(conversation) = self.conversation(slot) {
            conversation.resume();
            self.heat(slot);
        }
    }

    /// Whether to be told when something arrives on a session's channel.
    pub(super) fn listen(&mut self, place: Place, readable: bool) -> std::io::Result<()> {
        let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get(place.slot) else {
            return Ok(());
        };
        let interest = Interest { readable, ..Interest::readable(Trigger::Level) };
        let token = Source::Socket(place).token();
        Ok(self.poller.modify(conversation.link().arrived(), token, interest)?)
    }
}

/// Whether what comes through the channel has to be heard: rings, or the client's end.
fn needs_channel(link: &Link) -> bool {
    link.event().is_none() || !Poller::HEARS_END
}
