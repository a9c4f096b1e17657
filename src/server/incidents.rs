//! What clients did that this server did not put up with, and what it lacked for them: kept, counted, and told when it happens.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, SystemTime};

use bellwire_core::resize::{Resource, Shortage};
use bellwire_core::wire::RefuseCode;
use bellwire_core::{Instant, PeerFault, ServiceName};

use super::Caller;
use crate::ServerStats;
use crate::transport::clock;
use crate::transport::peer::User;
use crate::transport::shortage::remedy;

/// Incidents that are kept: a flood of them needs no more memory.
const MOST_KEPT: usize = 64;
/// Users that are counted each by itself. Whoever can act as many users makes this table no longer.
const MOST_USERS: usize = 16;
/// So many incidents of one kind and user are told in a window; the others are only counted, and told of with the next.
const MOST_TOLD: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

/// A client that was not let in, or whose session was closed for what it did or left undone; or what the server lacked
/// for one. See [`Server::incidents`](crate::Server::incidents).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incident {
    /// How many there were before it, since the server started.
    pub number: u64,
    /// When it happened.
    pub at: SystemTime,
    /// The service that the client connected to.
    pub service: ServiceName,
    /// Who it was; `None` when the system does not tell, or no client has come in yet.
    pub caller: Option<Caller>,
    /// What it did.
    pub offence: Offence,
    /// How many others of its kind and user were told of to nobody since the one that was told before it.
    pub suppressed: u64,
}

/// What a client did, or what the server lacked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offence {
    /// It wrote what an honest client cannot write; its session was closed. The client's program is broken or hostile.
    Lied(PeerFault),
    /// It took nothing for longer than [`ServerConfig::unread_timeout`](crate::ServerConfig::unread_timeout); its
    /// session was closed. The client was stopped, hangs, or never reads.
    Unread,
    /// It was turned away during the handshake, and told so.
    Refused {
        /// Why, for a program.
        code: RefuseCode,
        /// Why, and what to do, for an operator.
        reason: Box<str>,
    },
    /// The server had no descriptor or no memory to accept it, to follow its lane, or to answer it; or its user's clients hold
    /// as much of the server's memory as they may.
    Short(Shortage),
    /// The lane of its answers has become as large as the limits of both ends allow: from here on it is full where it
    /// grew before.
    AtLimit {
        /// The size of the lane in bytes.
        bytes: u64,
    },
    /// No client's doing: the socket or the lock of the service was removed or replaced, or its run dir. New clients did
    /// not find it meanwhile; sessions went on.
    Displaced {
        /// Why the name could not be taken again yet; `None` when it was.
        why: Option<Box<str>>,
    },
}

/// What incidents are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IncidentKind {
    /// [`Offence::Refused`].
    Refused,
    /// [`Offence::Lied`].
    Poisoned,
    /// [`Offence::Unread`].
    Unread,
    /// [`Offence::Short`] of descriptors.
    OutOfDescriptors,
    /// [`Offence::Short`] of memory or anything else.
    OutOfMemory,
    /// [`Offence::AtLimit`].
    AtLimit,
    /// [`Offence::Short`] of what the client's user may have.
    OverQuota,
    /// [`Offence::Displaced`].
    Displaced,
}

/// How many incidents there were of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncidentCounts([u64; IncidentKind::ALL.len()]);

/// The incidents of a user: one of those with the most, or all others together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserIncidents {
    /// The user; `None` for all others, and for clients of which the system does not tell it.
    pub user: Option<User>,
    /// Since the user came into the table: those of one who makes room for another are counted with the others.
    pub counts: IncidentCounts,
}

/// The latest incidents, and how many there were.
#[derive(Debug)]
pub(super) struct Incidents {
    total: u64,
    latest: VecDeque<Incident>,
    /// All others first.
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    count: UserIncidents,
    /// Of the row, not of the user: one who takes another's place gets no fresh allowance, so that acting as many users
    /// has no more told.
    allowances: [Allowance; IncidentKind::ALL.len()],
}

/// How much of one kind and user is told.
#[derive(Debug, Default)]
struct Allowance {
    window: Instant,
    told: u32,
    /// The latest that was not told, with how many before it.
    held: Option<Incident>,
}

#[cfg(feature = "log")]
impl Incident {
    /// One event of the target `bellwire`.
    pub(super) fn log(&self) {
        let Self { service, caller, offence, .. } = self;
        let (user, pid, session) = match caller {
            Some(Caller { pid, user, session, .. }) => (Some(user), *pid, Some(session)),
            None => (None, None, None),
        };
        let level = match offence.kind() {
            IncidentKind::AtLimit => log::Level::Info,
            _ => log::Level::Warn,
        };
        log::log!(
            target: "bellwire",
            level,
            "[INCIDENT] service={service} kind={} user={} pid={} session={} suppressed={}: {self}",
            offence.kind(), Told(user), Told(pid), Told(session), self.suppressed,
        );
    }
}

/// What the system may not tell.
#[cfg(feature = "log")]
struct Told<T>(Option<T>);

#[cfg(feature = "log")]
impl<T: fmt::Display> fmt::Display for Told<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(told) => write!(f, "\"{told}\""),
            None => f.write_str("-"),
        }
    }
}

impl IncidentKind {
    /// All kinds, in the order in which they are counted and reported. New ones are appended.
    pub const ALL: [Self; 8] = [
        Self::Refused,
        Self::Poisoned,
        Self::Unread,
        Self::OutOfDescriptors,
        Self::OutOfMemory,
        Self::AtLimit,
        Self::OverQuota,
        Self::Displaced,
    ];

    /// The name for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Poisoned => "poisoned",
            Self::Unread => "unread",
            Self::OutOfDescriptors => "out_of_descriptors",
            Self::OutOfMemory => "out_of_memory",
            Self::AtLimit => "at_limit",
            Self::OverQuota => "over_quota",
            Self::Displaced => "displaced",
        }
    }

    /// One of it, as a service counts it.
    pub(super) fn one(self) -> ServerStats {
        let mut stats = ServerStats::default();
        let counter = match self {
            Self::Refused => &mut stats.clients_refused,
            Self::Poisoned => &mut stats.poisoned,
            Self::Unread => &mut stats.unread,
            Self::OutOfDescriptors => &mut stats.out_of_descriptors,
            Self::OutOfMemory => &mut stats.out_of_memory,
            Self::AtLimit => &mut stats.at_limit,
            Self::OverQuota => &mut stats.over_quota,
            Self::Displaced => &mut stats.displaced,
        };
        *counter = 1;
        stats
    }
}

impl Offence {
    /// What it is counted as.
    pub const fn kind(&self) -> IncidentKind {
        match self {
            Self::Lied(_) => IncidentKind::Poisoned,
            Self::Unread => IncidentKind::Unread,
            Self::Refused { .. } => IncidentKind::Refused,
            Self::Short(Shortage {
                resource: Resource::Descriptors | Resource::InFlight, ..
            }) => IncidentKind::OutOfDescriptors,
            Self::Short(Shortage { resource: Resource::Quota, .. }) => IncidentKind::OverQuota,
            Self::Short(_) => IncidentKind::OutOfMemory,
            Self::AtLimit { .. } => IncidentKind::AtLimit,
            Self::Displaced { .. } => IncidentKind::Displaced,
        }
    }
}

impl IncidentCounts {
    /// Each kind with its count, in the order of [`IncidentKind::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (IncidentKind, u64)> + '_ {
        IncidentKind::ALL.into_iter().zip(self.0)
    }

    /// How many of one kind.
    pub fn of(&self, kind: IncidentKind) -> u64 {
        self.0.get(kind as usize).copied().unwrap_or(0)
    }

    /// How many of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// The counts in their order, as many as there are; what is missing is 0.
    pub(crate) fn of_values(values: impl IntoIterator<Item = u64>) -> Self {
        let mut counts = Self::default();
        for (count, value) in counts.0.iter_mut().zip(values) {
            *count = value;
        }
        counts
    }

    fn add(&mut self, kind: IncidentKind) {
        if let Some(count) = self.0.get_mut(kind as usize) {
            *count += 1;
        }
    }

    fn add_all(&mut self, others: &Self) {
        for (sum, count) in self.0.iter_mut().zip(others.0) {
            *sum = sum.wrapping_add(count);
        }
    }
}

impl Incidents {
    /// Keeps and counts one. Returns it if it is to be told now.
    pub(super) fn add(
        &mut self,
        service: ServiceName,
        caller: Option<Caller>,
        offence: Offence,
    ) -> Option<Incident> {
        let (number, at, kind) = (self.total, SystemTime::now(), offence.kind());
        let user = caller.as_ref().map(|caller| caller.user);
        let incident = Incident { number, at, service, caller, offence, suppressed: 0 };
        if self.latest.len() == MOST_KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(incident.clone());
        self.total += 1;
        let row = self.row(user)?;
        row.count.counts.add(kind);
        row.allowances.get_mut(kind as usize)?.tell(clock::now(), incident)
    }

    pub(super) fn latest(&self) -> Vec<Incident> {
        self.latest.iter().cloned().collect()
    }

    /// Of the users with the most, the most first; of all others last.
    pub(super) fn by_user(&self) -> Vec<UserIncidents> {
        let mut users: Vec<_> = self.rows.iter().map(|row| row.count).collect();
        users.retain(|row| row.counts.total() > 0);
        users.sort_by_key(|row| (row.user.is_none(), u64::MAX - row.counts.total()));
        users
    }

    /// What was told to nobody yet, at the end.
    pub(super) fn take_held(&mut self) -> Vec<Incident> {
        let allowances = self.rows.iter_mut().flat_map(|row| &mut row.allowances);
        allowances.filter_map(|allowance| allowance.held.take()).collect()
    }

    fn row(&mut self, user: Option<User>) -> Option<&mut Row> {
        if let Some(at) = self.rows.iter().position(|row| row.count.user == user) {
            return self.rows.get_mut(at);
        }
        if self.rows.len() <= MOST_USERS {
            self.rows.push(Row::new(user));
            return self.rows.last_mut();
        }
        let (others, users) = self.rows.split_first_mut()?;
        let least = users.iter_mut().min_by_key(|row| row.count.counts.total())?;
        others.count.counts.add_all(&least.count.counts);
        least.count = UserIncidents::new(user, IncidentCounts::default());
        Some(least)
    }
}

impl Default for Incidents {
    fn default() -> Self {
        Self { total: 0, latest: VecDeque::new(), rows: vec![Row::new(None)] }
    }
}

impl UserIncidents {
    pub(crate) const fn new(user: Option<User>, counts: IncidentCounts) -> Self {
        Self { user, counts }
    }
}

impl Row {
    fn new(user: Option<User>) -> Self {
        let count = UserIncidents::new(user, IncidentCounts::default());
        Self { count, allowances: Default::default() }
    }
}

impl Allowance {
    /// The incident, if it is to be told now, with how many were held back before it.
    fn tell(&mut self, now: Instant, mut incident: Incident) -> Option<Incident> {
        if self.told == 0 || now.since(self.window) >= WINDOW {
            (self.window, self.told) = (now, 0);
        }
        incident.suppressed = self.held.take().map_or(0, |held| held.suppressed + 1);
        if self.told == MOST_TOLD {
            self.held = Some(incident);
            return None;
        }
        self.told += 1;
        Some(incident)
    }
}

impl fmt::Display for IncidentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, caller, offence, suppressed, .. } = self;
        write!(f, "{service}: ")?;
        match caller {
            Some(Caller { pid: Some(pid), user, session, .. }) => {
                write!(f, "session {session} of {user}, process {pid}, {offence}")?;
            }
            Some(Caller { pid: None, user, session, .. }) => {
                write!(f, "session {session} of {user} {offence}")?;
            }
            None if matches!(offence, Offence::Displaced { .. }) => write!(f, "{offence}")?,
            None => write!(f, "a client {offence}")?,
        }
        match suppressed {
            0 => Ok(()),
            more => write!(f, " … and {more} more of this kind before it"),
        }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lied(fault) => write!(f, "was closed: {fault}"),
            Self::Unread => f.write_str("was closed: it left its answers unread for too long"),
            Self::Displaced { why: None } => f.write_str(
                "its files in the run dir were removed or replaced: it has taken its name again",
            ),
            Self::Displaced { why: Some(why) } => write!(
                f,
                "its files in the run dir were removed or replaced, and no client finds it until the name can be taken \
                 again: {why}"
            ),
            Self::Refused { code, reason } => write!(f, "was refused ({code:?}): {reason}"),
            Self::Short(shortage) => {
                write!(f, "has to wait or goes without: {shortage}; {}", remedy(shortage.resource))
            }
            Self::AtLimit { bytes } => write!(
                f,
                "has a lane of answers that is as large as it may be, {bytes} bytes: raise max_lane of both ends if it is often full"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::User;
    use crate::server::watch::Watch;

    fn caller(session: u64) -> Option<Caller> {
        let (pid, user, watch) = (Some(7), User::own(), Watch::Nothing);
        Some(Caller { pid, user, session, watch })
    }

    #[test]
    fn the_latest_are_kept_and_counted_on() {
        let service = ServiceName::constant("echo");
        let mut incidents = Incidents::default();
        for session in 0..100 {
            let _ = incidents.add(service, caller(session), Offence::Unread);
        }
        let latest = incidents.latest();
        assert_eq!(latest.len(), MOST_KEPT);
        let (first, last) = (latest.first().unwrap(), latest.last().unwrap());
        assert_eq!((first.number, &first.caller), (36, &caller(36)));
        assert_eq!((last.number, &last.caller), (99, &caller(99)));
    }

    #[test]
    fn an_incident_says_who_and_what() {
        let service = ServiceName::constant("echo");
        let mut incidents = Incidents::default();
        let fault = PeerFault::TailWentBack { seen: 32, now: 16 };
        let _ = incidents.add(service, caller(3), Offence::Lied(fault));
        let told = incidents.latest().remove(0).to_string();
        for part in ["echo", "session 3", "process 7", "went back from 32 to 16"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn an_incident_is_one_in_the_counters_of_its_service() {
        for kind in IncidentKind::ALL {
            assert_eq!(kind.one().values().iter().sum::<u64>(), 1, "{kind}");
        }
    }

    #[test]
    fn a_flood_of_one_kind_is_told_in_part_and_the_rest_with_the_next() {
        let mut allowance = Allowance::default();
        let mut incidents = Incidents::default();
        let mut make = |session| {
            let service = ServiceName::constant("echo");
            let _ = incidents.add(service, caller(session), Offence::Unread);
            incidents.latest().pop().unwrap()
        };
        let start = Instant::from_nanos(0);
        let told = (0..100).filter(|session| allowance.tell(start, make(*session)).is_some());
        assert_eq!(told.count(), MOST_TOLD as usize);
        let next = allowance.tell(start.after(WINDOW), make(100)).unwrap();
        assert_eq!((next.number, next.suppressed), (100, 95));
        assert!(next.to_string().contains("95 more"), "{next}");
        assert!(allowance.held.is_none());
    }

    /// Some user, on any system.
    fn user(number: u32) -> User {
        let sid = || format!("S-1-5-{number}").parse().unwrap();
        number.to_string().parse().unwrap_or_else(|_| sid())
    }

    #[test]
    fn many_users_neither_lengthen_the_table_nor_hide_one_who_does_much_nor_have_more_told() {
        let service = ServiceName::constant("echo");
        let mut incidents = Incidents::default();
        let mut told = 0;
        let mut add = |uid: u32| {
            let caller = Caller { user: user(uid), ..caller(1).unwrap() };
            told += u64::from(incidents.add(service, Some(caller), Offence::Unread).is_some());
        };
        for uid in 1..10_000 {
            add(uid);
            if uid % 100 == 0 {
                add(0);
                add(0);
            }
        }
        let users = incidents.by_user();
        assert_eq!(users.len(), 1 + MOST_USERS);
        let (first, last) = (users.first().unwrap(), users.last().unwrap());
        assert_eq!((first.user, first.counts.total()), (Some(user(0)), 198));
        assert_eq!(last.user, None);
        let total: u64 = users.iter().map(|row| row.counts.of(IncidentKind::Unread)).sum();
        assert_eq!(total, 9999 + 198);
        let most = (1 + MOST_USERS as u64) * u64::from(MOST_TOLD);
        // One window, or two should the machine have stopped in between.
        assert!(told <= 2 * most, "{told} were told");
        let held: u64 = incidents.take_held().iter().map(|last| last.suppressed + 1).sum();
        assert!(held > 0 && told <= total - held, "{told} told, {held} held of {total}");
    }
}
