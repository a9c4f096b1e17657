//! What clients make this process hold, on an account of their user.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bellwire_core::{Geometry, Instant, Limits};

use super::ServerConfig;
use crate::transport::memory::{self, Lender, MemoryPool, Quota};
use crate::transport::peer::User;

/// Of the memory that this process may have, what all clients together get by default: a quarter. What is counted takes up to
/// twice as much while it is copied, decoded and allocated anew.
const POOL_SHARE: u64 = 4;
/// Maps that a session takes, and what part of all is left to lanes that change, to messages and to the allocator.
const MAPS_OF_A_SESSION: usize = 4;
const SPARE_MAPS: usize = 16;
/// Of a user's quota, what one message or lane may take: an eighth.
const MESSAGE_SHARE: u64 = 8;
/// When it is asked for the first time, and the last, whether clients have given back what sessions left that are over:
/// each time eight times later. Besides, when the reactor is awake anyway.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(11);
/// Of how many pieces of memory of a user it is asked at a time, and how long it is rested then: some 60 µs in 4 ms.
const ASKED_AT_A_TIME: usize = 16;
const REST: Duration = Duration::from_millis(4);
/// How long sessions wait at most whose answers in memfds are above the quota of their user. To build 1 MiB for nothing takes
/// 0.6 ms of the reactor's time.
const PAUSE: Duration = Duration::from_millis(500);
/// Users of whom nothing is held are forgotten when there are so many.
const MOST_IDLE: usize = 1024;

/// The quotas of all users whose clients have come.
#[derive(Debug)]
pub(super) struct Quotas {
    pool: Arc<MemoryPool>,
    /// What one user's clients may hold, in bytes.
    per_user: u64,
    /// The sessions that they may have.
    sessions_per_user: usize,
    users: HashMap<User, Share>,
    /// Pieces of memory that clients kept, and when that was looked at last.
    kept: usize,
    looked: Instant,
    /// When it is looked at next, and how long after the last time that is.
    look: Option<(Instant, Duration)>,
    /// Pieces of which is still to be asked, this time, and how many there were at its beginning.
    left: usize,
    began_with: usize,
}

/// What a user's sessions share. Each holds a clone.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) quota: Arc<Quota>,
    /// Held by each session, so that they can be counted. When sessions go on whose answers in memfds were above the
    /// quota, in nanoseconds of the clock.
    session: Arc<AtomicU64>,
}

impl Quotas {
    pub(super) fn new(config: &ServerConfig) -> Self {
        let (available, gauge) = memory::limit();
        let all = config.max_memory.unwrap_or(available / POOL_SHARE);
        let per_user = config.max_memory_per_user.unwrap_or(all / 4 * 3).min(all);
        let sessions = config.max_sessions_per_user;
        let sessions_per_user = sessions.unwrap_or(config.max_sessions - config.max_sessions / 4);
        let pool = Arc::new(MemoryPool::new(all, gauge));
        let users = HashMap::new();
        Self {
            pool,
            per_user,
            sessions_per_user,
            users,
            kept: 0,
            looked: Instant::default(),
            look: None,
            left: 0,
            began_with: 0,
        }
    }

    /// The sessions that a process has maps for, out of those that are wanted.
    pub(super) fn sessions(wanted: usize, maps: Option<usize>) -> usize {
        let spared = |maps: usize| (maps - maps / SPARE_MAPS) / MAPS_OF_A_SESSION;
        maps.map_or(wanted, |maps| wanted.min(spared(maps)))
    }

    /// Limits for one session that leave other sessions of its user something.
    pub(super) fn bound(&self, limits: Limits) -> Limits {
        let message = (self.per_user / MESSAGE_SHARE).max(1);
        let most = Geometry::new(1 << message.ilog2().min(30)).unwrap_or(Geometry::SMALLEST);
        Limits {
            max_message: limits.max_message.min(message),
            max_lane: limits.max_lane.min(most),
            max_shared_bytes_per_session: limits
                .max_shared_bytes_per_session
                .min((self.per_user / 2).max(Limits::MIN_SHARED)),
        }
    }

    /// A user's share, for one more session. An error says how many it has.
    pub(super) fn share(&mut self, user: User) -> Result<Share, usize> {
        if self.users.len() >= MOST_IDLE {
            self.users.retain(|_, share| share.sessions() > 0 || !share.quota.is_idle());
        }
        let share = self.users.entry(user).or_insert_with(|| Share {
            quota: Arc::new(Quota::new(self.per_user, Arc::clone(&self.pool))),
            session: Arc::default(),
        });
        let sessions = share.sessions();
        if sessions < self.sessions_per_user { Ok(share.clone()) } else { Err(sessions) }
    }

    /// When to wake up to look what was given back, if clients keep memory of sessions that are over.
    pub(super) fn next_look(&mut self, now: Instant) -> Option<Instant> {
        let kept = self.pool.kept();
        if kept > self.kept {
            self.look = Some((now.after(FIRST_LOOK), FIRST_LOOK));
        }
        // To watch memory keeps it, too: who is awake anyway looks.
        if kept > 0 && now.since(self.looked) >= REST {
            self.ask_some(now);
        }
        self.kept = self.pool.kept();
        self.look.map(|(at, _)| at)
    }

    /// Looks what was given back, if it is time to: at some pieces now, and at the others soon.
    pub(super) fn reclaim(&mut self, now: Instant) {
        let Some((_, after)) = self.look.filter(|(at, _)| now >= *at) else { return };
        if self.left == 0 {
            (self.left, self.began_with) = (self.pool.kept(), self.pool.kept());
        }
        self.ask_some(now);
        self.kept = self.pool.kept();
        self.left = self.left.saturating_sub(ASKED_AT_A_TIME);
        self.look = if self.kept == 0 {
            self.left = 0;
            None
        } else if self.left > 0 {
            Some((now.after(REST), after))
        } else {
            // Where some was given back there may be more of it.
            let after = if self.kept < self.began_with { FIRST_LOOK } else { after * 8 };
            (after <= LAST_LOOK).then(|| (now.after(after), after))
        };
    }

    fn ask_some(&mut self, now: Instant) {
        self.looked = now;
        for share in self.users.values() {
            share.quota.reclaim(now, ASKED_AT_A_TIME);
        }
    }
}

impl Share {
    /// How many sessions hold it, seen from the one that is kept.
    fn sessions(&self) -> usize {
        Arc::strong_count(&self.session) - 1
    }

    /// An answer in a memfd was above the quota: sessions that had one wait for room, or for some time.
    pub(super) fn pause(&self, now: Instant) {
        self.session.store(now.after(PAUSE).as_nanos(), Ordering::Relaxed);
    }

    /// Whether a session waits whose answer was `bytes` long.
    pub(super) fn is_paused(&self, bytes: u64, now: Instant) -> bool {
        now.as_nanos() < self.session.load(Ordering::Relaxed) && !self.quota.has_room(bytes)
    }

    /// On whose quota a session's memory is.
    pub(super) fn lender(&self, is_watching: bool) -> Lender {
        Lender { quota: Arc::clone(&self.quota), is_watching }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_no_more_sessions_than_it_has_maps_for() {
        assert_eq!(Quotas::sessions(16_384, Some(65_530)), 15_358);
        assert_eq!(Quotas::sessions(16_384, Some(262_144)), 16_384);
        assert_eq!(Quotas::sessions(100, None), 100);
    }
}
