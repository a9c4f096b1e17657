//! What clients did that this server did not put up with.

use std::collections::VecDeque;
use std::fmt;

use bellwire_core::wire::RefuseCode;
use bellwire_core::{PeerFault, ServiceName};

use super::Caller;

/// Incidents that are kept: a flood of them needs no more memory.
const MOST_KEPT: usize = 64;

/// A client that was not let in, or whose session was closed for what it did or left undone. See
/// [`Server::incidents`](crate::Server::incidents).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incident {
    /// How many there were before it, since the server started.
    pub number: u64,
    /// The service that the client connected to.
    pub service: ServiceName,
    /// Who it was; `None` when the system does not tell.
    pub caller: Option<Caller>,
    /// What it did.
    pub offence: Offence,
}

/// What a client did.
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
}

/// The latest incidents.
#[derive(Debug, Default)]
pub(super) struct Incidents {
    total: u64,
    latest: VecDeque<Incident>,
}

impl Incidents {
    pub(super) fn add(&mut self, service: ServiceName, caller: Option<Caller>, offence: Offence) {
        if self.latest.len() == MOST_KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(Incident { number: self.total, service, caller, offence });
        self.total += 1;
    }

    pub(super) fn latest(&self) -> Vec<Incident> {
        self.latest.iter().cloned().collect()
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, caller, offence, .. } = self;
        write!(f, "{service}: ")?;
        match caller {
            Some(Caller { pid: Some(pid), user, session, .. }) => {
                write!(f, "session {session} of {user}, process {pid}, {offence}")
            }
            Some(Caller { pid: None, user, session, .. }) => {
                write!(f, "session {session} of {user} {offence}")
            }
            None => write!(f, "a client {offence}"),
        }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lied(fault) => write!(f, "was closed: {fault}"),
            Self::Unread => f.write_str("was closed: it left its answers unread for too long"),
            Self::Refused { code, reason } => write!(f, "was refused ({code:?}): {reason}"),
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
            incidents.add(service, caller(session), Offence::Unread);
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
        incidents.add(service, caller(3), Offence::Lied(fault));
        let told = incidents.latest().remove(0).to_string();
        for part in ["echo", "session 3", "process 7", "went back from 32 to 16"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
