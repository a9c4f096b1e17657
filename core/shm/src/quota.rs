use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwire_core::Instant;
use bellwire_core::sync::{AtomicU64, AtomicUsize, Ordering};

use crate::lock;

/// How many pieces of memory from closed sessions a user's peers may keep before the user gets no more.
const MAX_OUTSTANDING: usize = 256;
/// How many outstanding pieces are checked for each new one, and how many before a request is refused. Each check costs three
/// system calls.
const CHECKS_PER_LOAN: usize = 4;
const CHECKS_BEFORE_REFUSAL: usize = 8;
/// How many pieces of memory a user may keep before what it gets is for it alone.
const MAX_SHARED: usize = 4;
/// How long memory counts when the system cannot report whether a peer returned it.
const UNREPORTED_FOR: Duration = Duration::from_secs(60);
/// Half-life of the amount recently lent to a user, which decides who is refused when memory is scarce.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// A user who was recently lent less than this fraction of its limit still gets memory when it is scarce.
const LIGHT_USER_FRACTION: u64 = 8;

/// The memory that all peers together may make this process hold.
#[derive(Debug)]
pub struct MemoryPool {
    total: Balance,
    /// Pieces of memory known to be kept by peers.
    kept: AtomicUsize,
    /// How many ever were, which only grows.
    ever_kept: AtomicUsize,
    gauge: Box<dyn Gauge>,
}

/// Reports how much memory is left.
pub trait Gauge: Send + Sync + fmt::Debug {
    /// Returns how close this process comes to running out of memory once it has taken `bytes` more.
    fn pressure(&self, bytes: u64) -> Pressure;
}

/// For processes that only the machine limits.
impl Gauge for () {
    fn pressure(&self, _: u64) -> Pressure {
        Pressure::Low
    }
}

/// How close a process is to running out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There is enough.
    Low,
    /// The users to whom most was lent recently get no more.
    Scarce,
    /// Nobody gets any.
    Critical,
}

/// The memory that the peers of one user make this process hold, and its limit.
///
/// It counts memory allocated for a peer. Memory that the peer has mapped counts until the system reports that no process has
/// it any more: the kernel charges it to its creator for as long as another process keeps it.
#[derive(Debug)]
pub struct Quota {
    total: Balance,
    pool: Arc<MemoryPool>,
    outstanding: Mutex<Outstanding>,
}

/// The bytes that are held, those that may be, and those that were lent recently.
#[derive(Debug)]
struct Balance {
    limit: u64,
    held: AtomicU64,
    recent: Mutex<Recent>,
}

/// Bytes charged to a user's quota until this is dropped.
#[derive(Debug)]
pub struct Charge {
    quota: Arc<Quota>,
    bytes: u64,
}

/// Memory of this process that a peer may have mapped. After the drop it still counts until no other process has it, or for a
/// minute where the system cannot tell.
#[derive(Debug)]
pub struct Loan {
    charge: Charge,
    lent: Option<Box<dyn LentMemory>>,
    clock: fn() -> Instant,
}

/// Reports on memory that a peer may have mapped.
pub trait LentMemory: Send + fmt::Debug {
    /// Returns whether no other process has it any more.
    fn is_released(&self) -> bool;
}

/// The quota to which lent memory is charged.
#[derive(Clone, Debug)]
pub struct LoanAccount {
    /// The user's quota.
    pub quota: Arc<Quota>,
    /// Whether to spend a descriptor on each piece of memory to learn when it is returned.
    pub is_watching: bool,
}

/// A user's peers, or all peers together, already hold as much as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverQuota {
    /// Bytes asked for.
    pub bytes: u64,
    /// Bytes that the user's peers hold.
    pub held: u64,
    /// Bytes that they may hold.
    pub limit: u64,
    /// The limit that was reached.
    pub why: OverQuotaReason,
}

/// The limit that prevents more memory for a user's peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverQuotaReason {
    /// Their own limit.
    User,
    /// They keep too many pieces of memory from closed sessions mapped.
    Outstanding,
    /// The limit of all users together.
    All,
    /// This process is about to run out of memory.
    System,
}

/// Memory that this process no longer uses but a peer may still have, in bytes.
#[derive(Debug, Default)]
struct Outstanding {
    /// Known to be kept.
    watched: VecDeque<(u64, Box<dyn LentMemory>)>,
    /// Of which the system cannot tell, and since when: the oldest first.
    unwatched: VecDeque<(u64, Instant)>,
}

/// Bytes that were lent recently.
#[derive(Debug, Default)]
struct Recent {
    since: Instant,
    bytes: u64,
}

impl MemoryPool {
    /// Creates a pool of `limit` bytes.
    pub fn new(limit: u64, gauge: Box<dyn Gauge>) -> Self {
        let (kept, ever_kept) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { total: Balance::new(limit), kept, ever_kept, gauge }
    }

    /// Returns how many pieces of memory peers still had when last checked, although this process no longer uses them.
    pub fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Returns how many pieces peers ever kept for some time: another number says that there is a new one.
    pub fn ever_kept(&self) -> usize {
        self.ever_kept.load(Ordering::Relaxed)
    }

    /// Returns the bytes held for all users.
    pub fn held(&self) -> u64 {
        self.total.held()
    }
}

impl Quota {
    /// Creates a quota of `limit` bytes out of `pool`.
    pub fn new(limit: u64, pool: Arc<MemoryPool>) -> Self {
        Self { total: Balance::new(limit), pool, outstanding: Mutex::default() }
    }

    /// Returns the bytes held for this user.
    pub fn held(&self) -> u64 {
        self.total.held()
    }

    /// Returns whether `bytes` more could be charged now.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.total.has_room(bytes) && self.pool.total.has_room(bytes)
    }

    /// Returns how many pieces of memory the user's peers still had when last checked, although this process no longer uses them.
    pub fn kept(&self) -> usize {
        lock(&self.outstanding).watched.len()
    }

    /// Returns whether the user's peers keep so much that another `bytes` should not be memory that other users have, too: what
    /// they keep would fill the others' quotas.
    pub fn exceeds_sharing_limit(&self, bytes: u64) -> bool {
        let kept = self.kept();
        kept > MAX_SHARED
            || (kept as u64 + 1).saturating_mul(bytes) > self.total.limit / LIGHT_USER_FRACTION
    }

    /// Returns whether nothing is held.
    pub fn is_idle(&self) -> bool {
        self.held() == 0
    }

    /// Charges memory of this process that is kept for a peer.
    ///
    /// # Errors
    /// [`OverQuota`]: nothing was charged.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, OverQuota> {
        if !self.total.add(bytes) {
            return Err(self.refusal(bytes, OverQuotaReason::User));
        }
        if !self.pool.total.add(bytes) {
            self.total.subtract(bytes);
            return Err(self.refusal(bytes, OverQuotaReason::All));
        }
        Ok(Charge { quota: Arc::clone(self), bytes })
    }

    /// Charges memory that a peer will map.
    ///
    /// # Errors
    /// [`OverQuota`]: nothing was charged.
    pub fn charge_lent(self: &Arc<Self>, bytes: u64, now: Instant) -> Result<Charge, OverQuota> {
        self.reclaim(now, CHECKS_PER_LOAN);
        let is_full = || self.kept() >= MAX_OUTSTANDING;
        if is_full() {
            self.reclaim(now, CHECKS_BEFORE_REFUSAL);
            if is_full() {
                return Err(self.refusal(bytes, OverQuotaReason::Outstanding));
            }
        }
        let charge = self.charge(bytes).or_else(|_| {
            self.reclaim(now, CHECKS_BEFORE_REFUSAL);
            self.charge(bytes)
        })?;
        let all = lock(&self.pool.total.recent).add(bytes, now);
        let own = lock(&self.total.recent).add(bytes, now);
        match self.pool.gauge.pressure(bytes) {
            Pressure::Low => Ok(charge),
            Pressure::Scarce if own <= (all / 2).max(self.total.limit / LIGHT_USER_FRACTION) => {
                Ok(charge)
            }
            _ => Err(self.refusal(bytes, OverQuotaReason::System)),
        }
    }

    /// Keeps memory charged that this process no longer uses, until it is returned.
    fn keep_counting(&self, bytes: u64, lent: Option<Box<dyn LentMemory>>, now: Instant) {
        match lent {
            Some(lent) if lent.is_released() => self.release(bytes),
            Some(lent) => {
                self.pool.kept.fetch_add(1, Ordering::Relaxed);
                self.pool.ever_kept.fetch_add(1, Ordering::Relaxed);
                lock(&self.outstanding).watched.push_back((bytes, lent));
            }
            None => lock(&self.outstanding).unwatched.push_back((bytes, now)),
        }
    }

    /// Checks `most` of the watched pieces, those that were checked longest ago, and stops charging what was returned, or
    /// cannot be watched and has counted for long enough.
    pub fn reclaim(&self, now: Instant, most: usize) {
        let mut outstanding = lock(&self.outstanding);
        while let Some(&(bytes, since)) = outstanding.unwatched.front() {
            if now.since(since) < UNREPORTED_FOR {
                break;
            }
            outstanding.unwatched.pop_front();
            self.release(bytes);
        }
        for _ in 0..outstanding.watched.len().min(most) {
            let Some((bytes, lent)) = outstanding.watched.pop_front() else { return };
            if lent.is_released() {
                self.pool.kept.fetch_sub(1, Ordering::Relaxed);
                self.release(bytes);
            } else {
                outstanding.watched.push_back((bytes, lent));
            }
        }
    }

    fn release(&self, bytes: u64) {
        self.total.subtract(bytes);
        self.pool.total.subtract(bytes);
    }

    #[cold]
    fn refusal(&self, bytes: u64, why: OverQuotaReason) -> OverQuota {
        OverQuota { bytes, held: self.held(), limit: self.total.limit, why }
    }
}

impl Balance {
    fn new(limit: u64) -> Self {
        Self { limit, held: AtomicU64::new(0), recent: Mutex::default() }
    }

    fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.limit.saturating_sub(self.held()) >= bytes
    }

    /// Adds bytes, unless they would exceed the limit. Returns whether it did.
    fn add(&self, bytes: u64) -> bool {
        let fits = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn subtract(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Recent {
    /// Adds bytes and returns the total.
    fn add(&mut self, bytes: u64, now: Instant) -> u64 {
        while self.bytes > 0 && now.since(self.since) >= HALF_LIFE {
            self.since = self.since.after(HALF_LIFE);
            self.bytes /= 2;
        }
        if self.bytes == 0 {
            self.since = now;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes
    }
}

impl Charge {
    /// Creates an empty charge, to be resized.
    pub fn none(quota: &Arc<Quota>) -> Self {
        Self { quota: Arc::clone(quota), bytes: 0 }
    }

    /// Reduces the charge to nothing.
    pub fn clear(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.quota.release(bytes);
        }
    }

    /// Changes the charge to `bytes`.
    ///
    /// # Errors
    /// [`OverQuota`]: the charge is unchanged.
    pub fn resize(&mut self, bytes: u64) -> Result<(), OverQuota> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            let mut more = self.quota.charge(more)?;
            self.bytes += std::mem::take(&mut more.bytes);
        } else {
            self.quota.release(self.bytes - bytes);
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Charges `bytes` more.
    ///
    /// # Errors
    /// As [`Charge::resize`].
    pub fn extend(&mut self, bytes: u64) -> Result<(), OverQuota> {
        self.resize(self.bytes.saturating_add(bytes))
    }

    /// Returns the quota that is charged.
    pub fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }
}

impl Loan {
    /// Creates a loan of charged memory. `lent` reports when the peer has returned it; `None` where the system cannot tell.
    pub fn new(charge: Charge, lent: Option<Box<dyn LentMemory>>, clock: fn() -> Instant) -> Self {
        Self { charge, lent, clock }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.charge.bytes);
        self.charge.quota.keep_counting(bytes, self.lent.take(), (self.clock)());
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, held, limit, why } = self;
        match why {
            OverQuotaReason::User => write!(
                f,
                "the user's clients hold {held} of {limit} bytes, and {bytes} more are needed: close sessions, or raise the provider's memory limit"
            ),
            OverQuotaReason::Outstanding => write!(
                f,
                "the user's clients keep memory of {MAX_OUTSTANDING} closed sessions mapped ({held} bytes): unmap it"
            ),
            OverQuotaReason::All => f.write_str(
                "all clients together hold as much as they may: close sessions, or raise the provider's memory limit",
            ),
            OverQuotaReason::System => {
                f.write_str("the provider is about to run out of memory: give it more, or use less")
            }
        }
    }
}

impl std::error::Error for OverQuota {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Kept(Arc<Mutex<bool>>);

    impl LentMemory for Kept {
        fn is_released(&self) -> bool {
            *self.0.lock().unwrap()
        }
    }

    #[derive(Debug)]
    struct Said(Arc<Mutex<Pressure>>);

    impl Gauge for Said {
        fn pressure(&self, _: u64) -> Pressure {
            *self.0.lock().unwrap()
        }
    }

    fn quota(limit: u64, all: u64) -> (Arc<Quota>, Arc<Mutex<Pressure>>) {
        let pressure = Arc::new(Mutex::new(Pressure::Low));
        let pool = Arc::new(MemoryPool::new(all, Box::new(Said(Arc::clone(&pressure)))));
        (Arc::new(Quota::new(limit, pool)), pressure)
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn held_memory_is_bounded_for_a_user_and_for_all() {
        let (first, _) = quota(100, 150);
        let second = Arc::new(Quota::new(100, Arc::clone(&first.pool)));
        let charge = first.charge(100).unwrap();
        assert_eq!(first.charge(1).unwrap_err().why, OverQuotaReason::User);
        assert_eq!(second.charge(51).unwrap_err().why, OverQuotaReason::All);
        assert_eq!((first.held(), second.held(), first.pool.held()), (100, 0, 100));
        drop(charge);
        assert!(second.charge(51).is_ok() && first.is_idle());
    }

    #[test]
    fn a_charge_that_cannot_grow_stays_as_it_is() {
        let (quota, _) = quota(100, 100);
        let mut charge = quota.charge(40).unwrap();
        assert!(charge.resize(101).is_err());
        assert_eq!(quota.held(), 40);
        charge.resize(100).unwrap();
        charge.resize(10).unwrap();
        assert_eq!(quota.held(), 10);
        drop(charge);
        assert_eq!((quota.held(), quota.pool.held()), (0, 0));
    }

    #[test]
    fn memory_that_a_peer_keeps_counts_until_it_is_given_back() {
        let (quota, _) = quota(100, 100);
        let given_back = Arc::new(Mutex::new(false));
        let charge = quota.charge_lent(60, at(1)).unwrap();
        drop(Loan::new(charge, Some(Box::new(Kept(Arc::clone(&given_back)))), || at(1)));
        assert_eq!(quota.charge_lent(60, at(1000)).unwrap_err().held, 60);
        *given_back.lock().unwrap() = true;
        assert!(quota.charge_lent(60, at(1000)).is_ok());
        assert!(quota.is_idle());
    }

    #[test]
    fn memory_without_reports_counts_for_a_minute() {
        let (quota, _) = quota(100, 100);
        drop(Loan::new(quota.charge_lent(60, at(1)).unwrap(), None, || at(1)));
        assert!(quota.charge_lent(60, at(60)).is_err());
        assert!(quota.charge_lent(60, at(61)).is_ok());
    }

    #[test]
    fn memory_without_reports_holds_up_no_check_of_other_memory() {
        let (quota, _) = quota(100, 100);
        for _ in 0..5 {
            drop(Loan::new(quota.charge_lent(10, at(1)).unwrap(), None, || at(1)));
        }
        let given_back = Arc::new(Mutex::new(false));
        let charge = quota.charge_lent(50, at(1)).unwrap();
        drop(Loan::new(charge, Some(Box::new(Kept(Arc::clone(&given_back)))), || at(1)));
        *given_back.lock().unwrap() = true;
        quota.reclaim(at(2), 1);
        assert_eq!((quota.held(), quota.kept()), (50, 0));
    }

    #[test]
    fn a_user_that_holds_many_pieces_is_refused_further_loans() {
        let (quota, _) = quota(1 << 20, 1 << 20);
        for _ in 0..MAX_OUTSTANDING {
            let kept = Kept(Arc::default());
            let charge = quota.charge_lent(1, at(1)).unwrap();
            drop(Loan::new(charge, Some(Box::new(kept)), || at(1)));
        }
        let why = quota.charge_lent(1, at(1000)).unwrap_err().why;
        assert_eq!(why, OverQuotaReason::Outstanding);
    }

    #[test]
    fn scarce_memory_is_refused_to_the_largest_user_first_and_then_to_all() {
        let (greedy, pressure) = quota(6400, 6400);
        let modest = Arc::new(Quota::new(6400, Arc::clone(&greedy.pool)));
        drop(greedy.charge_lent(1000, at(1)).unwrap());
        drop(modest.charge_lent(100, at(1)).unwrap());
        *pressure.lock().unwrap() = Pressure::Scarce;
        assert_eq!(greedy.charge_lent(1, at(2)).unwrap_err().why, OverQuotaReason::System);
        assert_eq!(greedy.held(), 0);
        assert!(modest.charge_lent(100, at(2)).is_ok());
        // The amount decays while the other user keeps borrowing.
        for minute in 1..10 {
            drop(modest.charge_lent(1, at(60 * minute)).unwrap());
        }
        drop(modest.charge_lent(40, at(600)).unwrap());
        assert!(greedy.charge_lent(1, at(600)).is_ok());
        *pressure.lock().unwrap() = Pressure::Critical;
        assert!(modest.charge_lent(1, at(601)).is_err());
    }
}
