//! Fair queuing of clients: one with many sessions gets no more of a round than one with a single session.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use slab::Slab;

use crate::server::handler::Caller;
use crate::server::source::SlotKey;
use crate::transport::peer::User;

/// Sessions maintained at a time.
const MAX_MAINTAINED: usize = 64;

/// What counts as one client: a process of this user or of root; otherwise all processes of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Process(u32),
    User(User),
}

/// The clients that have connections, and the work pending for each.
#[derive(Default)]
pub(super) struct Clients {
    all: Slab<Client>,
    by_key: HashMap<Key, usize>,
    /// Clients with work that had none before: they go before the others, once, like the new flows of FQ-CoDel (RFC
    /// 8290).
    new: VecDeque<usize>,
    /// Clients that had their share, in turn. One without work stays until its turn comes and is not new before.
    old: VecDeque<usize>,
    /// The number of polled sessions of all clients.
    active: usize,
    /// The position among those of the next [`Clients::next_active_batch`].
    seen: usize,
}

/// A client with pending work.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy {
    pub(super) client: usize,
    pub(super) user: User,
    /// The number of its channels with an event.
    pub(super) ready: usize,
    /// The number of its polled sessions.
    pub(super) active: usize,
}

struct Client {
    key: Key,
    user: User,
    connections: usize,
    /// The slots of its polled sessions, and whose turn is next.
    active: Vec<usize>,
    next: usize,
    /// Its connections whose channels have an event.
    ready: VecDeque<SlotKey>,
    is_busy: bool,
}

impl Clients {
    /// Counts a connection, and returns its client.
    pub(super) fn join(&mut self, caller: &Caller) -> usize {
        let user = caller.user;
        let key = match caller.pid {
            Some(pid) if user.is_own() || user.is_system() => Key::Process(pid),
            _ => Key::User(user),
        };
        let all = &mut self.all;
        let at = *self.by_key.entry(key).or_insert_with(|| all.insert(Client::new(key, user)));
        if let Some(client) = self.all.get_mut(at) {
            client.connections += 1;
        }
        at
    }

    pub(super) fn user(&self, at: usize) -> Option<User> {
        self.all.get(at).map(|client| client.user)
    }

    /// Removes a connection that is over and no longer polled.
    pub(super) fn leave(&mut self, at: usize) {
        let Some(client) = self.all.get_mut(at) else { return };
        client.connections -= 1;
        if client.connections == 0 {
            self.by_key.remove(&client.key);
            self.all.remove(at);
            self.new.retain(|busy| *busy != at);
            self.old.retain(|busy| *busy != at);
        }
    }

    /// Polls a session of the client from now on.
    pub(super) fn activate(&mut self, at: usize, slot: usize) {
        let Some(client) = self.all.get_mut(at) else { return };
        client.active.push(slot);
        self.active += 1;
        self.make_busy(at);
    }

    /// Stops polling a session of the client. The last session of the list takes its place.
    pub(super) fn deactivate(&mut self, at: usize, slot: usize) {
        let Some(client) = self.all.get_mut(at) else { return };
        // Usually the one whose turn it was, or the last.
        let is_it = |place: &usize| client.active.get(*place) == Some(&slot);
        let last = client.active.len().checked_sub(1);
        let likely = client.next.checked_sub(1).filter(is_it).or(last.filter(is_it));
        let place = likely.or_else(|| client.active.iter().position(|active| *active == slot));
        if let Some(place) = place {
            client.active.swap_remove(place);
            client.next -= usize::from(place < client.next);
            self.active -= 1;
        }
    }

    /// Notes an event on the channel of one of the client's connections.
    pub(super) fn mark_ready(&mut self, at: usize, key: SlotKey) {
        if let Some(client) = self.all.get_mut(at) {
            client.ready.push_back(key);
            self.make_busy(at);
        }
    }

    fn make_busy(&mut self, at: usize) {
        if let Some(client) = self.all.get_mut(at) {
            if !std::mem::replace(&mut client.is_busy, true) {
                self.new.push_back(at);
            }
        }
    }

    /// Returns how many clients have work, or had some lately.
    #[inline]
    pub(super) fn busy(&self) -> usize {
        self.new.len() + self.old.len()
    }

    /// Returns whether several clients have work.
    #[inline]
    pub(super) fn is_contended(&self) -> bool {
        self.busy() > 1
    }

    /// Returns the client whose share is next: the busy ones in turn, new ones first.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Busy> {
        loop {
            let new = self.new.pop_front();
            let is_new = new.is_some();
            let client = new.or_else(|| self.old.pop_front())?;
            let Some(Client { user, active, ready, is_busy, .. }) = self.all.get_mut(client) else {
                continue;
            };
            let (user, active, ready) = (*user, active.len(), ready.len());
            let has_work = active + ready > 0;
            if has_work || is_new {
                self.old.push_back(client);
            } else {
                *is_busy = false;
            }
            if has_work {
                return Some(Busy { client, user, ready, active });
            }
        }
    }

    /// Returns the client's next connection with an event on its channel.
    pub(super) fn next_ready(&mut self, at: usize) -> Option<SlotKey> {
        self.all.get_mut(at)?.ready.pop_front()
    }

    /// Returns the client's session whose turn it is.
    #[inline]
    pub(super) fn next_active(&mut self, at: usize) -> Option<usize> {
        let client = self.all.get_mut(at)?;
        if client.next >= client.active.len() {
            client.next = 0;
        }
        let slot = *client.active.get(client.next)?;
        client.next += 1;
        Some(slot)
    }

    /// Returns how many sessions of all clients are polled.
    #[inline]
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Returns the polled session, if there is only one.
    #[inline]
    pub(super) fn sole_active(&self) -> Option<usize> {
        if self.active == 1 { self.all_active().next() } else { None }
    }

    /// Returns all polled sessions by client.
    #[inline]
    pub(super) fn by_client(&self) -> impl Iterator<Item = &[usize]> {
        self.listed().filter_map(|at| Some(self.all.get(at)?.active.as_slice()))
    }

    /// Returns all polled sessions one by one.
    pub(super) fn all_active(&self) -> impl Iterator<Item = usize> {
        self.by_client().flatten().copied()
    }

    /// Returns the positions of some polled sessions in turn, or of all when they are few.
    pub(super) fn next_active_batch(&mut self) -> Range<usize> {
        let from = if self.seen >= self.active { 0 } else { self.seen };
        self.seen = self.active.min(from + MAX_MAINTAINED);
        from..self.seen
    }

    /// Returns the polled session at this position.
    pub(super) fn active_at(&self, place: usize) -> Option<usize> {
        self.all_active().nth(place)
    }

    /// Returns one of the most recently added polled sessions.
    pub(super) fn any_active(&self) -> Option<usize> {
        self.by_client().filter_map(|active| active.last().copied()).last()
    }

    #[inline]
    fn listed(&self) -> impl Iterator<Item = usize> {
        self.new.iter().chain(&self.old).copied()
    }
}

impl Client {
    fn new(key: Key, user: User) -> Self {
        let (active, ready) = (Vec::new(), VecDeque::new());
        Self { key, user, connections: 0, active, next: 0, ready, is_busy: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::watch::Watch;

    fn caller(pid: u32) -> Caller {
        Caller { pid: Some(pid), user: User::own(), session: 1, watch: Watch::Nothing }
    }

    /// Returns two clients: the first with ten polled sessions, the second with one.
    fn two() -> (Clients, [usize; 2]) {
        let mut clients = Clients::default();
        let [many, one] = [1, 2].map(|pid| clients.join(&caller(pid)));
        for slot in 1..10 {
            assert_eq!(clients.join(&caller(1)), many);
            clients.activate(many, slot);
        }
        clients.activate(many, 0);
        clients.activate(one, 100);
        (clients, [many, one])
    }

    fn next_two(clients: &mut Clients) -> [usize; 2] {
        [(); 2].map(|()| clients.next().unwrap().client)
    }

    #[test]
    fn a_client_with_many_sessions_has_its_share_of_a_round_and_each_of_them_its_turn() {
        let (mut clients, [many, one]) = two();
        assert!(clients.is_contended() && clients.active() == 11);
        let mut served = Vec::new();
        for _ in 0..10 {
            assert_eq!(next_two(&mut clients), [many, one]);
            served.extend((0..2).map(|_| clients.next_active(many).unwrap()));
            assert_eq!(clients.next_active(one), Some(100));
        }
        for session in 0..10 {
            assert_eq!(served.iter().filter(|it| **it == session).count(), 2, "{served:?}");
        }
    }

    #[test]
    fn a_client_without_work_is_passed_over() {
        let (mut clients, [many, one]) = two();
        assert_eq!(clients.next_active(one), Some(100));
        clients.deactivate(one, 100);
        assert_eq!(next_two(&mut clients), [many, many]);
        assert_eq!(clients.next().unwrap().client, many);
        assert!(!clients.is_contended());
        let key = SlotKey::new(100, 1);
        clients.mark_ready(one, key);
        assert!(clients.is_contended());
        assert_eq!(
            clients.next(),
            Some(Busy { client: one, user: User::own(), ready: 1, active: 0 })
        );
        assert!(clients.next_ready(one) == Some(key) && clients.next_ready(one).is_none());
        clients.leave(one);
        assert_eq!(next_two(&mut clients), [many, many]);
    }

    #[test]
    fn a_newly_busy_client_has_one_turn_ahead_of_the_others() {
        let (mut clients, [many, one]) = two();
        let other = clients.join(&caller(3));
        assert_eq!(next_two(&mut clients), [many, one]);
        let ready = |clients: &mut Clients| {
            clients.mark_ready(other, SlotKey::new(200, 1));
            let Busy { client, .. } = clients.next().unwrap();
            if client == other {
                assert!(clients.next_ready(other).is_some());
            }
            client
        };
        assert_eq!(ready(&mut clients), other);
        // Heard again immediately: the others have their turns first.
        assert_eq!([(); 3].map(|()| ready(&mut clients)), [many, one, other]);
    }

    #[test]
    fn a_session_that_is_polled_no_more_takes_no_turn_of_another() {
        let (mut clients, [many, _]) = two();
        let mut served = Vec::new();
        for _ in 0..9 {
            let slot = clients.next_active(many).unwrap();
            served.push(slot);
            if slot % 3 == 0 {
                clients.deactivate(many, slot);
            }
        }
        // A session that was not the last to have its turn.
        clients.deactivate(many, 1);
        let mut left = [(); 5].map(|()| clients.next_active(many).unwrap());
        left.sort_unstable();
        assert_eq!(left, [2, 4, 5, 7, 8]);
        served.sort_unstable();
        served.dedup();
        assert!(served.len() == 9, "{served:?}");
    }

    #[test]
    fn all_polled_sessions_are_maintained_a_few_at_a_time() {
        let mut clients = Clients::default();
        let at = clients.join(&caller(1));
        (0..100).for_each(|slot| clients.activate(at, slot));
        assert_eq!([0..64, 64..100, 0..64], [(); 3].map(|()| clients.next_active_batch()));
        assert!(clients.active_at(70) == Some(70) && clients.active_at(100).is_none());
        (0..90).for_each(|slot| clients.deactivate(at, slot));
        assert_eq!([0..10, 0..10], [(); 2].map(|()| clients.next_active_batch()));
    }

    #[test]
    fn nothing_is_left_of_a_client_that_is_gone() {
        let mut clients = Clients::default();
        let at = clients.join(&caller(1));
        clients.activate(at, 3);
        clients.deactivate(at, 3);
        clients.leave(at);
        assert!(clients.all.is_empty() && clients.by_key.is_empty() && clients.active == 0);
        assert!(clients.next().is_none() && clients.busy() == 0);
    }
}
