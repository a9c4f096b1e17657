use std::fmt;

use super::{Credentials, Platform};

/// Which users an endpoint admits besides its own user and the system (on Linux, root), who are always admitted. The endpoint
/// checks the credentials that the system recorded for the peer; the access rights of the socket or pipe also keep others out
/// where they can.
///
/// A user or group that the server's user namespace does not map has no number there: only [`Admission::Any`] admits it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission<P: Platform> {
    /// Nobody else. On Linux the socket has mode 0600, and a newly created run dir has mode 0700.
    #[default]
    SameUser,
    /// Users whose group this is, or who have it as a supplementary group (`SO_PEERGROUPS`,
    /// [`socket(7)`](https://man7.org/linux/man-pages/man7/socket.7.html)). The socket belongs to the group and has mode
    /// 0660; a newly created run dir belongs to it and has mode 0750. The server must be in that group or run as root. Not
    /// supported on Windows: no endpoint is created.
    Group(P::Group),
    /// These users. On Linux the socket has mode 0666 and a newly created run dir mode 0755: other users reach the socket and
    /// are refused.
    Users(Vec<P::User>),
    /// Anybody who reaches the socket or pipe: every user of the machine, and, on Linux, of each container that sees the run
    /// dir. Modes as with `Users`.
    Any,
}

impl<P: Platform> Admission<P> {
    /// Returns whether the peer of the channel is admitted.
    pub fn admits(&self, credentials: &P::Credentials, channel: &P::Channel) -> bool {
        match self {
            Self::Any => true,
            _ if credentials.is_among(&[]) => true,
            Self::SameUser => false,
            Self::Users(users) => credentials.is_among(users),
            Self::Group(group) => credentials.is_in(*group, channel),
        }
    }
}

impl<P: Platform<Group: fmt::Display>> fmt::Display for Admission<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameUser => f.write_str("nobody else"),
            Self::Group(group) => write!(f, "members of {group}"),
            Self::Users(users) => users.iter().enumerate().try_for_each(|(at, user)| {
                let gap = if at == 0 { "" } else { ", " };
                write!(f, "{gap}{user}")
            }),
            Self::Any => f.write_str("anybody"),
        }
    }
}
