//! Quotas: memory that clients make this process hold, charged to their user.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::{Geometry, Instant, Limits};

use super::ServerConfig;
use super::fd_budget::FdBudget;
use crate::transport::memory::{LoanAccount, MemoryPool, Quota};
use crate::transport::peer::User;
use crate::transport::{Os, prelude::*};

/// The default share of all clients together in the memory available to this process: a quarter. Charged memory may
/// take up to twice as much while it is copied, decoded and reallocated.
const POOL_SHARE: u64 = 4;
/// Mappings per session, and the fraction of all that is left to lanes that change, to messages and to the allocator.
const MAPS_OF_A_SESSION: usize = 4;
const SPARE_MAPS: usize = 16;
/// The fraction of a user's quota that one message or lane may take: an eighth.
const MESSAGE_SHARE: u64 = 8;
/// When to check first, and the longest interval, for memory that clients freed of sessions that are over: each
/// interval is eight times the one before. The reactor also checks when it is awake anyway.
const FIRST_RECLAIM: Duration = Duration::from_millis(20);
const LAST_RECLAIM: Duration = Duration::from_secs(11);
/// How many pieces of a user's memory are checked at a time, and the pause after that: about 15 µs in 4 ms, since a call
/// that meets it in more than one of a hundred cases decides the p99 of all calls.
const CHECK_BATCH: usize = 4;
const REST: Duration = Duration::from_millis(4);
/// The longest wait of sessions whose attached answers exceed their user's quota. Building 1 MiB in vain takes 0.6 ms
/// of the reactor's time.
const PAUSE: Duration = Duration::from_millis(500);
/// Users without charges are forgotten when there are this many.
const MAX_IDLE: usize = 1024;
/// The time whose sessions a user may open at once, and the longest that a session beyond that waits.
const BURST: Duration = Duration::from_secs(16);
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// How many sessions a session counts as that ends by a protocol violation.
const VIOLATION: u32 = 16;

/// The quotas of all known users.
#[derive(Debug)]
pub(super) struct Quotas {
    pool: Arc<MemoryPool>,
    /// What one user's clients may hold, in bytes.
    per_user: u64,
    /// How many sessions one user's clients may have.
    sessions_per_user: usize,
    /// How many sessions one user's clients may open in a second, on average.
    session_rate: u32,
    users: HashMap<User, UserQuota>,
    /// How many pieces of memory clients had ever kept when that was last checked, and when some were checked.
    ever_kept: usize,
    asked_at: Instant,
    /// When the next check is due, and its interval.
    due: Option<(Instant, Duration)>,
    /// Pieces still to be checked in this pass, and how many there were at its start.
    left: usize,
    began_with: usize,
}

#[derive(Debug)]
struct UserQuota {
    user_handle: UserHandle,
    rate: RateLimit,
}

/// Limits how often something happens: the generic cell rate algorithm, which needs no timer.
#[derive(Debug, Default)]
struct RateLimit {
    /// When the next event would be due if all so far had come at the average interval.
    due: Instant,
}

/// The state shared by a user's sessions. Each holds a clone.
#[derive(Clone, Debug)]
pub(super) struct UserHandle {
    pub(super) quota: Arc<Quota>,
    /// Held by each session, so that they can be counted. Stores when sessions whose attached answers exceeded the
    /// quota resume, in nanoseconds of the clock.
    session: Arc<AtomicU64>,
}

impl Quotas {
    pub(super) fn new(config: &ServerConfig) -> Self {
        let (available, gauge) = Os::memory_limit();
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
            session_rate: config.max_session_rate_per_user.max(1),
            users,
            ever_kept: 0,
            asked_at: Instant::default(),
            due: None,
            left: 0,
            began_with: 0,
        }
    }

    /// Returns how many of the wanted sessions this process has mappings for.
    pub(super) fn sessions(wanted: usize, maps: Option<usize>) -> usize {
        let spared = |maps: usize| (maps - maps / SPARE_MAPS) / MAPS_OF_A_SESSION;
        maps.map_or(wanted, |maps| wanted.min(spared(maps)))
    }

    /// Returns limits for one session that leave something for other sessions of its user.
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

    /// Admits one more session of a user: returns its handle, and when its handshake may begin; or why it is refused.
    pub(super) fn admit(
        &mut self,
        user: User,
        now: Instant,
    ) -> Result<(UserHandle, Instant), String> {
        if self.users.len() >= MAX_IDLE {
            self.users.retain(|_, UserQuota { user_handle, rate }| {
                user_handle.sessions() > 0 || !user_handle.quota.is_idle() || rate.due > now
            });
        }
        let UserQuota { user_handle, rate } = self.users.entry(user).or_insert_with(|| UserQuota {
            user_handle: UserHandle {
                quota: Arc::new(Quota::new(self.per_user, Arc::clone(&self.pool))),
                session: Arc::default(),
            },
            rate: RateLimit::default(),
        });
        let sessions = user_handle.sessions();
        if sessions >= self.sessions_per_user {
            return Err(format!(
                "{user} has {sessions} sessions, as many as one user may: close some, or raise max_sessions_per_user"
            ));
        }
        let interval = Duration::from_secs(1) / self.session_rate;
        let begins = if is_limited(user) { rate.reserve(now, interval) } else { Some(now) };
        begins.map(|begins| (user_handle.clone(), begins)).ok_or_else(|| {
            format!(
                "{user} opens more than {} sessions a second: keep them open, or raise max_session_rate_per_user",
                self.session_rate
            )
        })
    }

    /// Delays a user's next sessions after one that violated the protocol. What it cost is not known here, and a client that
    /// works never does it.
    pub(super) fn slow_down(&mut self, user: User, now: Instant) {
        if is_limited(user) {
            if let Some(UserQuota { rate, .. }) = self.users.get_mut(&user) {
                rate.add(now, Duration::from_secs(1) / self.session_rate * VIOLATION);
            }
        }
    }

    /// Returns when to wake up and check for freed memory, if clients keep memory of sessions that are over.
    pub(super) fn reclaim_due(&mut self, now: Instant) -> Option<Instant> {
        // As many may be kept as before, and others.
        let ever_kept = self.pool.ever_kept();
        if ever_kept != self.ever_kept {
            self.ever_kept = ever_kept;
            self.due = Some((now.after(FIRST_RECLAIM), FIRST_RECLAIM));
        }
        // Watching memory keeps it alive, too: a reactor that is awake anyway checks it.
        if self.pool.kept() > 0 && now.since(self.asked_at) >= REST {
            self.ask_some(now);
        }
        self.due.map(|(at, _)| at)
    }

    /// Checks for freed memory when that is due: some pieces now, the others soon.
    pub(super) fn reclaim(&mut self, now: Instant) {
        let Some((_, after)) = self.due.filter(|(at, _)| now >= *at) else { return };
        if self.left == 0 {
            (self.left, self.began_with) = (self.pool.kept(), self.pool.kept());
        }
        self.ask_some(now);
        let kept = self.pool.kept();
        self.left = self.left.saturating_sub(CHECK_BATCH);
        self.due = if kept == 0 {
            self.left = 0;
            None
        } else if self.left > 0 {
            Some((now.after(REST), after))
        } else {
            // If some memory was freed, more may be soon.
            let after = if kept < self.began_with { FIRST_RECLAIM } else { after * 8 };
            (after <= LAST_RECLAIM).then(|| (now.after(after), after))
        };
    }

    fn ask_some(&mut self, now: Instant) {
        self.asked_at = now;
        for UserQuota { user_handle, .. } in self.users.values() {
            user_handle.quota.reclaim(now, CHECK_BATCH);
        }
    }
}

/// Returns whether the rate of a user's sessions is limited. Each process of the others is a client of its own: see
/// `reactor::clients`.
fn is_limited(user: User) -> bool {
    !user.is_own() && !user.is_system()
}

impl RateLimit {
    /// Reserves the next event. Returns when it may happen, unless that is too far away.
    fn reserve(&mut self, now: Instant, interval: Duration) -> Option<Instant> {
        let due = self.due.max(now);
        let delay = due.since(now).saturating_sub(BURST);
        if delay > LONGEST_DELAY {
            return None;
        }
        self.due = due.after(interval);
        Some(now.after(delay))
    }

    /// Takes the time of events that were not reserved. The next one waits for the longest delay at most.
    fn add(&mut self, now: Instant, time: Duration) {
        self.due = self.due.max(now).after(time).min(now.after(BURST + LONGEST_DELAY));
    }
}

impl UserHandle {
    /// Returns how many sessions hold it; call it on the clone that the server keeps.
    fn sessions(&self) -> usize {
        Arc::strong_count(&self.session) - 1
    }

    /// Pauses the sessions whose attached answers exceeded the quota until there is room, or for some time.
    pub(super) fn pause(&self, now: Instant) {
        self.session.store(now.after(PAUSE).as_nanos(), Ordering::Relaxed);
    }

    /// Returns whether a session whose answer was `bytes` long is paused.
    pub(super) fn is_paused(&self, bytes: u64, now: Instant) -> bool {
        now.as_nanos() < self.session.load(Ordering::Relaxed) && !self.quota.has_room(bytes)
    }

    /// Returns the account that charges a session's memory to its user.
    pub(super) fn account(&self, fd_budget: FdBudget) -> LoanAccount {
        // Unwatched memory is charged for a minute after its session: a user that opens ten a second would exceed the quota.
        let is_watching = fd_budget.watches_memory(self.sessions() + self.quota.kept());
        LoanAccount { quota: Arc::clone(&self.quota), is_watching }
    }
}

#[cfg(test)]
mod tests {
    use bellwire_shm::{LentMemory, Loan};

    use super::*;

    #[test]
    fn a_rate_limit_admits_a_burst_delays_the_next_and_refuses_long_delays() {
        let (mut rate, interval) = (RateLimit::default(), Duration::from_millis(100));
        let now = Instant::default().after(Duration::from_secs(1_000));
        let delays = || {
            let reserved = std::iter::from_fn(|| rate.reserve(now, interval));
            reserved.map(|begins| begins.since(now).as_millis()).collect::<Vec<_>>()
        };
        let (mut delays, mut expected) = (delays, vec![0; 161]);
        expected.extend((1..=10).map(|at| at * 100));
        assert_eq!(delays(), expected);
        let mut later = |after| rate.reserve(now.after(after), interval);
        assert_eq!(later(interval), Some(now.after(interval + LONGEST_DELAY)));
        assert_eq!(later(interval), None);
        let idle = BURST + LONGEST_DELAY + interval * 2;
        assert_eq!(later(idle), Some(now.after(idle)), "credit returns with time");
    }

    #[test]
    fn a_client_that_violates_the_protocol_opens_one_session_a_second() {
        let (mut rate, interval) = (RateLimit::default(), Duration::from_millis(50));
        let mut now = Instant::default().after(Duration::from_secs(1_000));
        let end = now.after(Duration::from_secs(60));
        let mut opened = 0;
        while now < end {
            match rate.reserve(now, interval) {
                Some(begins) => {
                    now = begins;
                    rate.add(now, interval * VIOLATION);
                    opened += 1;
                }
                None => now = now.after(interval),
            }
        }
        assert!((60..=100).contains(&opened), "{opened} sessions: 20 at once, then one a second");
    }

    #[derive(Debug)]
    struct Kept(Arc<AtomicU64>);

    impl LentMemory for Kept {
        fn is_released(&self) -> bool {
            self.0.load(Ordering::Relaxed) == 0
        }
    }

    #[test]
    fn a_piece_that_is_kept_instead_of_another_is_checked_soon() {
        let mut quotas = Quotas::new(&ServerConfig::default());
        let at = |millis: u64| Instant::default().after(Duration::from_millis(1_000_000 + millis));
        let (user_handle, _) = quotas.admit(User::own(), at(0)).unwrap();
        let [first, second] = [(); 2].map(|()| Arc::new(AtomicU64::new(1)));
        let keep = |kept: &Arc<AtomicU64>| {
            let charge = user_handle.quota.charge_lent(1, at(0)).unwrap();
            drop(Loan::new(charge, Some(Box::new(Kept(Arc::clone(kept)))), Instant::default));
        };
        keep(&first);
        assert_eq!(quotas.reclaim_due(at(0)), Some(at(20)));
        quotas.reclaim(at(20));
        assert_eq!(quotas.reclaim_due(at(20)), Some(at(180)));
        first.store(0, Ordering::Relaxed);
        user_handle.quota.reclaim(at(21), 1);
        keep(&second);
        assert_eq!(quotas.reclaim_due(at(22)), Some(at(42)));
    }

    #[test]
    fn a_server_has_no_more_sessions_than_it_has_maps_for() {
        assert_eq!(Quotas::sessions(16_384, Some(65_530)), 15_358);
        assert_eq!(Quotas::sessions(16_384, Some(262_144)), 16_384);
        assert_eq!(Quotas::sessions(100, None), 100);
    }
}
