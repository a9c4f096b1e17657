//! Which sessions are polled, for how long, and when their clients are asked to ring instead.

use std::time::Duration;

use bellwire_core::{Instant, Looks};

use super::{Guest, Reactor, Seat, Station};
use crate::server::source::Place;
use crate::transport::clock;

/// Rounds without work after which a session is armed and no longer polled, while others are busy: of one, and of one
/// among many, all of which a round looks at.
const ROUNDS_BEFORE_COLD: u32 = 4096;
const LEAST_BEFORE_COLD: u32 = 256;
/// How long a session waits that this process could not go on with.
const RETRY_AFTER: Duration = Duration::from_millis(50);

impl Reactor {
    /// Polls a session from now on.
    pub(super) fn heat(&mut self, slot: usize) {
        let Some(conversation) = self.conversation(slot) else { return };
        if !conversation.is_hot {
            conversation.is_hot = true;
            conversation.idle_turns = 0;
            conversation.disarm();
            let client = conversation.client;
            self.clients.heat(client, slot);
        }
    }

    /// Whether a session was without work for so long that it can be armed: then it is no longer hot.
    pub(super) fn is_cold(&mut self, slot: usize) -> bool {
        let hot = u32::try_from(self.clients.hot()).unwrap_or(u32::MAX);
        let rounds = (ROUNDS_BEFORE_COLD / hot.max(1)).max(LEAST_BEFORE_COLD);
        let Some(conversation) = self.conversation(slot) else { return true };
        if conversation.idle_turns < rounds || !matches!(conversation.arm(), Ok(false)) {
            return false;
        }
        self.note_unread(slot, clock::now());
        true
    }

    /// Polls a session no more.
    pub(super) fn cool(&mut self, slot: usize) {
        self.settle(slot);
        if let Some(conversation) = self.conversation(slot) {
            conversation.is_hot = false;
            let client = conversation.client;
            self.clients.cool(client, slot);
        }
    }

    /// Polls the hot sessions for a bounded time. True when there is something to do.
    pub(super) fn spin_for_work(&mut self) -> bool {
        if self.clients.hot() == 0 {
            return false;
        }
        self.spin.exchanged(std::mem::take(&mut self.exchanged));
        let budget = self.spin.budget();
        if budget == 0 {
            return false;
        }
        let mut looks = Looks::new(budget);
        loop {
            if self.look_around() {
                self.spin.hit(looks.spun());
                return true;
            }
            std::hint::spin_loop();
            if !looks.count() {
                continue;
            }
            let has_done = self.workers.has_done() || self.stations.iter().any(Station::has_news);
            if has_done || self.shared.stop.told().is_some() {
                self.spread_news();
                return true;
            }
            let now = clock::now();
            self.spin.shorten(&mut looks, now);
            if looks.tick(now) {
                self.spin.ran_out();
                return false;
            }
            if self.spin.gives_way(now) {
                std::thread::yield_now();
                self.spin.gave_way(now, clock::now());
            }
        }
    }

    /// Gives sessions a turn whose clients may have awaited what was published: they did not ring for it.
    pub(super) fn spread_news(&mut self) {
        for at in 0..self.stations.len() {
            if !self.stations.get(at).is_some_and(|station| station.shelf.take_news()) {
                continue;
            }
            let readers = self.seats.iter_mut().filter(|(_, seat)| seat.station == at);
            let moved = readers.filter_map(|(slot, seat)| match &mut seat.guest {
                Guest::Open(open) => open.hear_news().then_some(slot),
                _ => None,
            });
            for slot in moved.collect::<Vec<_>>() {
                self.heat(slot);
            }
        }
    }

    /// Whether a hot session has moved. Those before it use the time until the next look.
    #[inline]
    fn look_around(&mut self) -> bool {
        for sessions in self.clients.by_client() {
            for &slot in sessions {
                let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get_mut(slot)
                else {
                    continue;
                };
                if conversation.has_moved() {
                    return true;
                }
                conversation.claim();
            }
        }
        false
    }

    /// Takes over what sessions have counted, and makes lanes small that have been much too large for long: of sessions that
    /// have something to do, and of some of them at a time. An idle one costs nothing, and keeps its lane until it is used
    /// again or trimmed.
    pub(super) fn look_after_some(&mut self, now: Instant) {
        for place in self.clients.some_hot() {
            let Some(slot) = self.clients.hot_at(place) else { return };
            self.settle(slot);
            if let Some(conversation) = self.conversation(slot) {
                conversation.tend(now);
            }
        }
    }

    /// Tries a session again later that waits for this process to have descriptors or memory.
    pub(super) fn stall(&mut self, place: Place) {
        if let Some(seat) = self.seats.get_mut(place.slot)
            && !std::mem::replace(&mut seat.is_stalled, true)
        {
            self.stalled.push(place);
            self.retry_at.get_or_insert_with(|| clock::now().after(RETRY_AFTER));
        }
    }

    /// Has those looked at, each in the share of its client.
    pub(super) fn retry_stalled(&mut self) {
        self.retry_at = None;
        for place in std::mem::take(&mut self.stalled) {
            if self.sits(place)
                && let Some(seat) = self.seats.get_mut(place.slot)
            {
                seat.is_stalled = false;
                self.hear(place);
            }
        }
    }

    /// Asks all hot clients to ring. True when one of them has something already.
    pub(super) fn arm_all(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for slot in self.clients.all_hot() {
            if let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get_mut(slot) {
                // A session that is over is dealt with in its turn.
                moved |= conversation.arm().unwrap_or(true);
            }
        }
        if !moved {
            while let Some(slot) = self.clients.any_hot() {
                self.cool(slot);
                self.note_unread(slot, now);
            }
        }
        moved
    }
}
