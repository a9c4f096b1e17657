//! Whose sessions are polled: a client with many of them gets no more of a round than one with one.

use std::collections::HashMap;
use std::time::Duration;

use slab::Slab;

use crate::server::handler::Caller;
use crate::transport::peer::User;

/// How long the sessions of one client have their turns in a round, while those of others wait. The last turn may be longer.
const LONGEST_SHARE: Duration = Duration::from_micros(200);

/// Who is one client: a process, as far as this process knows the user well; else all processes of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Process(u32),
    User(User),
}

/// The clients that have sessions.
#[derive(Default)]
pub(super) struct Clients {
    all: Slab<Client>,
    by_key: HashMap<Key, usize>,
    /// How many have sessions that are polled.
    hot: usize,
    round: u64,
}

struct Client {
    key: Key,
    sessions: usize,
    /// Of those, how many are polled.
    hot: usize,
    /// The round that what follows is of.
    round: u64,
    spent: Duration,
    /// The number of times that each session had its turn.
    lap: u64,
    /// Sessions were passed over in the round before: they come first.
    is_behind: bool,
    has_passed_over: bool,
}

impl Clients {
    /// Counts a session, and says who its client is.
    pub(super) fn join(&mut self, caller: &Caller) -> usize {
        let user = caller.user;
        let key = match caller.pid {
            Some(pid) if user.is_own() || user.is_system() => Key::Process(pid),
            _ => Key::User(user),
        };
        let all = &mut self.all;
        let at = *self.by_key.entry(key).or_insert_with(|| all.insert(Client::new(key)));
        if let Some(client) = self.all.get_mut(at) {
            client.sessions += 1;
        }
        at
    }

    /// A session is over, which is not polled any more.
    pub(super) fn leave(&mut self, at: usize) {
        let Some(client) = self.all.get_mut(at) else { return };
        client.sessions -= 1;
        if client.sessions == 0 {
            self.by_key.remove(&client.key);
            self.all.remove(at);
        }
    }

    /// A session of the client is polled from now on, or no more.
    pub(super) fn count_hot(&mut self, at: usize, is_hot: bool) {
        let Some(client) = self.all.get_mut(at) else { return };
        let was = client.hot;
        client.hot = if is_hot { was + 1 } else { was.saturating_sub(1) };
        self.hot += usize::from(was == 0 && is_hot);
        self.hot -= usize::from(was == 1 && !is_hot);
    }

    /// Whether sessions of several clients are polled.
    pub(super) fn is_contended(&self) -> bool {
        self.hot > 1
    }

    pub(super) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Whether a session of the client has a turn now. `lap` is the session's, of its last turn.
    pub(super) fn may_go(&mut self, at: usize, lap: &mut u64) -> bool {
        let round = self.round;
        let Some(client) = self.all.get_mut(at) else { return true };
        if client.round != round {
            client.begin(round);
        }
        if client.spent >= LONGEST_SHARE {
            client.has_passed_over = true;
            return false;
        }
        if client.is_behind && *lap == client.lap {
            return false;
        }
        *lap = client.lap;
        true
    }

    /// Whether the time of a turn counts: the client has other sessions that wait for theirs.
    pub(super) fn is_timed(&self, at: usize) -> bool {
        self.is_contended() && self.all.get(at).is_some_and(|client| client.hot > 1)
    }

    /// Counts the time of a turn.
    pub(super) fn spend(&mut self, at: usize, time: Duration) {
        if let Some(client) = self.all.get_mut(at) {
            client.spent += time;
        }
    }
}

impl Client {
    fn new(key: Key) -> Self {
        Self {
            key,
            sessions: 0,
            hot: 0,
            round: 0,
            spent: Duration::ZERO,
            lap: 1,
            is_behind: false,
            has_passed_over: false,
        }
    }

    fn begin(&mut self, round: u64) {
        self.is_behind = std::mem::take(&mut self.has_passed_over);
        self.lap += u64::from(!self.is_behind);
        (self.round, self.spent) = (round, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::watch::Watch;

    fn caller(pid: u32) -> Caller {
        Caller { pid: Some(pid), user: User::own(), session: 1, watch: Watch::Nothing }
    }

    /// Who has turns in a round, of ten sessions of one client and one of another, where each turn takes so long.
    fn round(clients: &mut Clients, laps: &mut [(usize, u64)], turn: Duration) -> Vec<usize> {
        clients.begin_round();
        let mut served = Vec::new();
        for (session, (client, lap)) in laps.iter_mut().enumerate() {
            if clients.may_go(*client, lap) {
                served.push(session);
                if clients.is_timed(*client) {
                    clients.spend(*client, turn);
                }
            }
        }
        served
    }

    #[test]
    fn a_client_with_many_sessions_has_its_share_of_a_round_and_each_of_them_its_turn() {
        let mut clients = Clients::default();
        let mut laps: Vec<_> =
            [1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1].map(|pid| (clients.join(&caller(pid)), 0)).to_vec();
        for (client, _) in &laps {
            clients.count_hot(*client, true);
        }
        let slow = LONGEST_SHARE / 2;
        let mut served = Vec::new();
        for _ in 0..10 {
            let now = round(&mut clients, &mut laps, slow);
            assert_eq!(now.len(), 3, "{now:?}");
            assert!(now.contains(&5), "the other client has a turn in each round");
            served.extend(now.into_iter().filter(|session| *session != 5));
        }
        for session in (0..11).filter(|session| *session != 5) {
            assert_eq!(served.iter().filter(|it| **it == session).count(), 2, "{served:?}");
        }
        // Quick turns: all have theirs, once those that were passed over have had it.
        round(&mut clients, &mut laps, Duration::ZERO);
        assert_eq!(round(&mut clients, &mut laps, Duration::ZERO).len(), 11);
    }

    #[test]
    fn a_client_that_is_alone_is_not_held_up() {
        let mut clients = Clients::default();
        let at = clients.join(&caller(1));
        assert_eq!(clients.join(&caller(1)), at);
        clients.count_hot(at, true);
        clients.count_hot(at, true);
        assert!(!clients.is_contended() && !clients.is_timed(at));
        clients.count_hot(at, false);
        clients.count_hot(at, false);
        clients.leave(at);
        clients.leave(at);
        assert!(clients.all.is_empty() && clients.by_key.is_empty() && clients.hot == 0);
    }
}
