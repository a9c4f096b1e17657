//! Incidents: clients that were refused, violated the protocol or stopped reading, and resources that the server
//! lacked for them. They are kept, counted, and reported as they happen.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bellwire_core::resize::{Resource, Shortage};
use bellwire_core::wire::RefuseCode;
use bellwire_core::{Instant, PeerFault, ServiceName};

use super::Caller;
use crate::transport::memory::OverQuota;
use crate::transport::peer::User;
use crate::transport::{Os, prelude::*};
use crate::{ServeError, ServerStats};

/// Incidents kept: bounds the memory that a flood of them takes.
const MAX_KEPT: usize = 64;
/// Users counted individually: bounds the table, even for someone who controls many users.
const MAX_USERS: usize = 16;
/// Incidents of one kind and user reported per window; the rest are only counted, and summed up in the next window.
const MAX_REPORTED: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

/// A client that was refused, or whose session was closed for its behavior; or a resource that the server lacked for
/// one. See [`Server::incidents`](crate::Server::incidents).
///
/// ```
/// use bellwire::{Client, ClientConfig, ServerConfig};
#[doc = include_str!("../doc/increment.txt")]
/// let wanted = "8f14e45fceea167a5a36dedd4bea2543".parse()?;
/// let (report, reported) = std::sync::mpsc::channel();
/// let mut builder = Server::builder_with_config(&run_dir, ServerConfig::default().token(Some(wanted)));
/// builder.on_incident(move |incident| drop(report.send(incident.clone())));
/// builder.serve::<Increment>(|_, number| Ok(number + 1))?;
/// let server = builder.start()?;
/// let mut client = Client::<Increment>::with_config(&run_dir, ClientConfig::default().token(None));
/// client.call(&41).unwrap_err();
/// let incident = reported.recv()?;
/// println!("{:?} {incident}", incident.at);
/// assert_eq!(incident.service.as_str(), "increment");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Incident {
    /// The number of earlier incidents since the server started.
    pub number: u64,
    /// When it happened.
    pub at: SystemTime,
    /// The service that the client connected to.
    pub service: ServiceName,
    /// The client; `None` when the system does not report it, or no client is involved.
    pub caller: Option<Caller>,
    /// The cause.
    pub cause: IncidentCause,
    /// How many others of this kind and user were suppressed since the last one reported.
    pub suppressed: u64,
}

/// What a client did, or what the server lacked for it.
///
/// ```
/// use bellwire::{IncidentCause, RefuseCode};
/// # use bellwire::{Client, ClientConfig, ServerConfig};
#[doc = include_str!("../doc/increment.txt")]
#[doc = include_str!("../doc/incident.txt")]
/// let cause = incident.cause;
/// assert!(matches!(cause, IncidentCause::Refused { code: RefuseCode::Token, .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum IncidentCause {
    /// It violated the protocol; its session was closed. The client's program is broken or hostile.
    ProtocolViolation(PeerFault),
    /// A client of netipc violated its protocol; its session was closed.
    #[cfg(feature = "netipc")]
    NetipcViolation(crate::netipc::Violation),
    /// It took nothing for longer than [`ServerConfig::stall_timeout`](crate::ServerConfig::stall_timeout); its
    /// session was closed. The client was stopped, hangs, or never reads.
    Stalled,
    /// It was refused during the handshake, with a reason.
    Refused {
        /// Why, as a code.
        code: RefuseCode,
        /// Why, and what to do, as a message for the operator.
        reason: Box<str>,
    },
    /// The server had no descriptor or memory to accept it, to follow its lane, or to answer it; or the clients of
    /// its user have reached their quota.
    Short(Shortage),
    /// The lane for its answers has reached the limits of both ends: from now on it applies backpressure instead of
    /// growing.
    AtLimit {
        /// The size of the lane in bytes.
        bytes: u64,
    },
    /// Not caused by a client: the socket, the lock or the run dir of the service was removed or replaced. Meanwhile,
    /// new clients did not find the service; sessions continued.
    Displaced {
        /// Why the name could not be taken again yet, such as [`ServeError::Taken`] by another provider; `None` when it was.
        why: Option<Arc<ServeError>>,
    },
}

/// Defines the kinds of incidents: for each its name for metrics and logs, and the counter of its service.
macro_rules! kinds {
    ($(#[$about:meta])* pub enum $Kinds:ident {
        $($(#[$doc:meta])* $Kind:ident: $name:literal, $counter:ident;)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $Kinds { $($(#[$doc])* $Kind,)* }

        impl $Kinds {
            /// All kinds, in the order in which they are counted and reported. New kinds are appended.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Kind),*];

            /// Returns the name for metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$Kind => $name),* }
            }

            /// Returns one incident of this kind as a service counts it.
            pub(super) fn one(self) -> ServerStats {
                match self { $(Self::$Kind => ServerStats { $counter: 1, ..ServerStats::default() }),* }
            }
        }
    };
}

kinds! {
    /// The kinds by which incidents are counted.
    ///
    /// ```
    /// use bellwire::IncidentKind;
    /// # use bellwire::{Client, ClientConfig, ServerConfig};
    #[doc = include_str!("../doc/increment.txt")]
    #[doc = include_str!("../doc/incident.txt")]
    /// assert_eq!(incident.cause.kind(), IncidentKind::Refused);
    /// # Ok(())
    /// # }
    /// ```
    pub enum IncidentKind {
        /// [`IncidentCause::Refused`].
        Refused: "refused", clients_refused;
        /// [`IncidentCause::ProtocolViolation`], in either protocol.
        Poisoned: "poisoned", poisoned;
        /// [`IncidentCause::Stalled`].
        Stalled: "stalled", stalled;
        /// [`IncidentCause::Short`] of descriptors.
        OutOfDescriptors: "out_of_descriptors", out_of_descriptors;
        /// [`IncidentCause::Short`] of memory or anything else.
        OutOfMemory: "out_of_memory", out_of_memory;
        /// [`IncidentCause::AtLimit`].
        AtLimit: "at_limit", at_limit;
        /// [`IncidentCause::Short`] of the user's quota.
        OverQuota: "over_quota", over_quota;
        /// [`IncidentCause::Displaced`].
        Displaced: "displaced", displaced;
    }
}

/// The number of incidents of each kind.
///
/// ```
/// use bellwire::{IncidentCounts, IncidentKind};
/// # use bellwire::{Client, ClientConfig, ServerConfig};
#[doc = include_str!("../doc/increment.txt")]
#[doc = include_str!("../doc/incident.txt")]
/// let counts: IncidentCounts = server.incidents_by_user()[0].counts;
/// assert_eq!((counts.of(IncidentKind::Refused), counts.total()), (1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncidentCounts([u64; IncidentKind::ALL.len()]);

/// The incidents of one of the users with the most, or of all others together.
///
/// ```
/// use bellwire::UserIncidents;
/// # use bellwire::{Client, ClientConfig, ServerConfig};
#[doc = include_str!("../doc/increment.txt")]
#[doc = include_str!("../doc/incident.txt")]
/// for UserIncidents { user, counts, .. } in server.incidents_by_user() {
///     println!("{user:?}: {} in all", counts.total());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserIncidents {
    /// The user; `None` for all others, and for clients whose user the system does not report.
    pub user: Option<User>,
    /// Counted since the user entered the table: when it is replaced, its counts move to the others.
    pub counts: IncidentCounts,
}

/// The latest incidents, and the counts.
#[derive(Debug)]
pub(super) struct Incidents {
    total: u64,
    latest: VecDeque<Incident>,
    /// The row of all others is first.
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    count: UserIncidents,
    /// Belongs to the row, not the user: a user that takes over a row gets no fresh allowance, so acting as many
    /// users yields no more reports.
    allowances: [Allowance; IncidentKind::ALL.len()],
}

/// A rate limit for reports of one kind and user.
#[derive(Debug, Default)]
struct Allowance {
    window: Instant,
    reported: u32,
    /// The latest incident that was not reported, with the number suppressed before it.
    held: Option<Incident>,
}

#[cfg(feature = "log")]
impl Incident {
    /// Logs one event of the target `bellwire`.
    pub(super) fn log(&self) {
        let Self { service, caller, cause, .. } = self;
        let (user, pid, session) = match caller {
            Some(Caller { pid, user, session, .. }) => (Some(user), *pid, Some(session)),
            None => (None, None, None),
        };
        let level = match cause.kind() {
            IncidentKind::AtLimit => log::Level::Info,
            _ => log::Level::Warn,
        };
        log::log!(
            target: "bellwire",
            level,
            "[INCIDENT] service={service} kind={} user={} pid={} session={} suppressed={}: {self}",
            cause.kind(), OrNone(user), OrNone(pid), OrNone(session), self.suppressed,
        );
    }
}

/// Formats what the system may not report.
#[cfg(feature = "log")]
struct OrNone<T>(Option<T>);

#[cfg(feature = "log")]
impl<T: fmt::Display> fmt::Display for OrNone<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => write!(f, "\"{value}\""),
            None => f.write_str("-"),
        }
    }
}

impl IncidentCause {
    pub(super) const fn over_quota(over: &OverQuota) -> Self {
        Self::Short(Shortage { resource: Resource::Quota, bytes: over.bytes, code: 0 })
    }

    /// Returns the kind that it counts as.
    pub const fn kind(&self) -> IncidentKind {
        match self {
            Self::ProtocolViolation(_) => IncidentKind::Poisoned,
            #[cfg(feature = "netipc")]
            Self::NetipcViolation(_) => IncidentKind::Poisoned,
            Self::Stalled => IncidentKind::Stalled,
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
    /// Returns each kind with its count, in the order of [`IncidentKind::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (IncidentKind, u64)> + '_ {
        IncidentKind::ALL.into_iter().zip(self.0)
    }

    /// Returns the count of one kind.
    pub fn of(&self, kind: IncidentKind) -> u64 {
        self.0.get(kind as usize).copied().unwrap_or(0)
    }

    /// Returns the count of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Builds the counts from values in order; missing ones are 0.
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
    /// Keeps and counts an incident. Returns it if it is to be reported now.
    pub(super) fn add(
        &mut self,
        service: ServiceName,
        caller: Option<Caller>,
        cause: IncidentCause,
    ) -> Option<Incident> {
        let (number, at, kind) = (self.total, SystemTime::now(), cause.kind());
        let user = caller.as_ref().map(|caller| caller.user);
        let incident = Incident { number, at, service, caller, cause, suppressed: 0 };
        if self.latest.len() == MAX_KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(incident.clone());
        self.total += 1;
        let row = self.row(user)?;
        row.count.counts.add(kind);
        row.allowances.get_mut(kind as usize)?.admit(Os::now(), incident)
    }

    pub(super) fn latest(&self) -> Vec<Incident> {
        self.latest.iter().cloned().collect()
    }

    /// Returns the users with the most incidents in descending order, then all others.
    pub(super) fn by_user(&self) -> Vec<UserIncidents> {
        let mut users: Vec<_> = self.rows.iter().map(|row| row.count).collect();
        users.retain(|row| row.counts.total() > 0);
        users.sort_by_key(|row| (row.user.is_none(), u64::MAX - row.counts.total()));
        users
    }

    /// Returns the incidents still suppressed at the end.
    pub(super) fn take_held(&mut self) -> Vec<Incident> {
        let allowances = self.rows.iter_mut().flat_map(|row| &mut row.allowances);
        allowances.filter_map(|allowance| allowance.held.take()).collect()
    }

    fn row(&mut self, user: Option<User>) -> Option<&mut Row> {
        if let Some(at) = self.rows.iter().position(|row| row.count.user == user) {
            return self.rows.get_mut(at);
        }
        if self.rows.len() <= MAX_USERS {
            self.rows.push(Row::new(user));
            return self.rows.last_mut();
        }
        let (others, users) = self.rows.split_first_mut()?;
        let least = users.iter_mut().min_by_key(|row| row.count.counts.total())?;
        others.count.counts.add_all(&least.count.counts);
        least.count = UserIncidents { user, counts: IncidentCounts::default() };
        Some(least)
    }
}

impl Default for Incidents {
    fn default() -> Self {
        Self { total: 0, latest: VecDeque::new(), rows: vec![Row::new(None)] }
    }
}

impl Row {
    fn new(user: Option<User>) -> Self {
        let count = UserIncidents { user, counts: IncidentCounts::default() };
        Self { count, allowances: Default::default() }
    }
}

impl Allowance {
    /// Returns the incident if it is to be reported now, with the number suppressed before it.
    fn admit(&mut self, now: Instant, mut incident: Incident) -> Option<Incident> {
        if self.reported == 0 || now.since(self.window) >= WINDOW {
            (self.window, self.reported) = (now, 0);
        }
        incident.suppressed = self.held.take().map_or(0, |held| held.suppressed + 1);
        if self.reported == MAX_REPORTED {
            self.held = Some(incident);
            return None;
        }
        self.reported += 1;
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
        let Self { service, caller, cause, suppressed, .. } = self;
        write!(f, "{service}: ")?;
        match caller {
            Some(Caller { pid: Some(pid), user, session, .. }) => {
                write!(f, "session {session} of {user}, process {pid}, {cause}")?;
            }
            Some(Caller { pid: None, user, session, .. }) => {
                write!(f, "session {session} of {user} {cause}")?;
            }
            None if matches!(cause, IncidentCause::Displaced { .. }) => write!(f, "{cause}")?,
            None => write!(f, "a client {cause}")?,
        }
        match suppressed {
            0 => Ok(()),
            more => write!(f, " … and {more} more of this kind before it"),
        }
    }
}

impl fmt::Display for IncidentCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProtocolViolation(fault) => write!(f, "was closed: {fault}"),
            #[cfg(feature = "netipc")]
            Self::NetipcViolation(violation) => {
                write!(f, "was closed: it violated netipc: {violation}")
            }
            Self::Stalled => f.write_str("was closed: it stopped reading its answers"),
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
                write!(
                    f,
                    "is delayed or denied a resource: {shortage}; {}",
                    Os::hint(shortage.resource)
                )
            }
            Self::AtLimit { bytes } => write!(
                f,
                "has a lane of answers of the maximum size, {bytes} bytes: raise max_lane of both ends if it is often full"
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
            let _ = incidents.add(service, caller(session), IncidentCause::Stalled);
        }
        let latest = incidents.latest();
        assert_eq!(latest.len(), MAX_KEPT);
        let (first, last) = (latest.first().unwrap(), latest.last().unwrap());
        assert_eq!((first.number, &first.caller), (36, &caller(36)));
        assert_eq!((last.number, &last.caller), (99, &caller(99)));
    }

    #[test]
    fn an_incident_names_service_session_process_and_cause() {
        let service = ServiceName::constant("echo");
        let mut incidents = Incidents::default();
        let fault = PeerFault::TailWentBack { seen: 32, now: 16 };
        let _ = incidents.add(service, caller(3), IncidentCause::ProtocolViolation(fault));
        let text = incidents.latest().remove(0).to_string();
        for part in ["echo", "session 3", "process 7", "went back from 32 to 16"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn an_incident_is_one_in_the_counters_of_its_service() {
        for kind in IncidentKind::ALL {
            assert_eq!(kind.one().values().iter().sum::<u64>(), 1, "{kind}");
        }
    }

    #[test]
    fn a_flood_of_one_kind_is_reported_in_part_and_the_rest_with_the_next() {
        let mut allowance = Allowance::default();
        let mut incidents = Incidents::default();
        let mut make = |session| {
            let service = ServiceName::constant("echo");
            let _ = incidents.add(service, caller(session), IncidentCause::Stalled);
            incidents.latest().pop().unwrap()
        };
        let start = Instant::from_nanos(0);
        let reported = (0..100).filter(|session| allowance.admit(start, make(*session)).is_some());
        assert_eq!(reported.count(), MAX_REPORTED as usize);
        let next = allowance.admit(start.after(WINDOW), make(100)).unwrap();
        assert_eq!((next.number, next.suppressed), (100, 95));
        assert!(next.to_string().contains("95 more"), "{next}");
        assert!(allowance.held.is_none());
    }

    /// Returns some user, on any system.
    fn user(number: u32) -> User {
        let sid = || format!("S-1-5-{number}").parse().unwrap();
        number.to_string().parse().unwrap_or_else(|_| sid())
    }

    #[test]
    fn many_users_neither_lengthen_the_table_nor_hide_a_busy_one_nor_cause_more_reports() {
        let service = ServiceName::constant("echo");
        let mut incidents = Incidents::default();
        let mut reported = 0;
        let mut add = |uid: u32| {
            let caller = Caller { user: user(uid), ..caller(1).unwrap() };
            reported +=
                u64::from(incidents.add(service, Some(caller), IncidentCause::Stalled).is_some());
        };
        for uid in 1..10_000 {
            add(uid);
            if uid % 100 == 0 {
                add(0);
                add(0);
            }
        }
        let users = incidents.by_user();
        assert_eq!(users.len(), 1 + MAX_USERS);
        let (first, last) = (users.first().unwrap(), users.last().unwrap());
        assert_eq!((first.user, first.counts.total()), (Some(user(0)), 198));
        assert_eq!(last.user, None);
        let total: u64 = users.iter().map(|row| row.counts.of(IncidentKind::Stalled)).sum();
        assert_eq!(total, 9999 + 198);
        let most = (1 + MAX_USERS as u64) * u64::from(MAX_REPORTED);
        // One window, or two if the machine stopped in between.
        assert!(reported <= 2 * most, "{reported} were reported");
        let held: u64 = incidents.take_held().iter().map(|last| last.suppressed + 1).sum();
        assert!(
            held > 0 && reported <= total - held,
            "{reported} reported, {held} held of {total}"
        );
    }
}
