//! Which users an endpoint admits besides its own user and root, by the socket's mode and the peer's credentials.

use std::fmt;

use rustix::fs::{Gid, Mode};

use crate::pass::Channel;
use crate::peer::{self, Credentials, Group, User};
use crate::prelude::*;

/// Which users an endpoint admits besides its own user and root, who are always admitted. The endpoint checks the credentials
/// that the kernel recorded at connect time; the socket's mode also keeps others out where it can.
///
/// A user or group that the server's user namespace does not map has no number there: only [`Admission::Any`] admits it.
///
/// ```
/// use bellwire_memfd::admission::Admission;
/// use bellwire_memfd::peer::User;
///
/// let two = Admission::Users(vec![User::from(1000), User::from(1001)]);
/// assert_ne!(two, Admission::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// Nobody else. The socket has mode 0600, and a newly created run dir has mode 0700.
    #[default]
    SameUser,
    /// Users whose group this is, or who have it as a supplementary group (`SO_PEERGROUPS`,
    /// [`socket(7)`](https://man7.org/linux/man-pages/man7/socket.7.html)). The socket belongs to the group and has mode
    /// 0660; a newly created run dir belongs to it and has mode 0750. The server must be in that group or run as root.
    Group(Group),
    /// These users. The socket has mode 0666 and a newly created run dir mode 0755: other users reach the socket and are
    /// refused.
    Users(Vec<User>),
    /// Anybody who reaches the socket: every user of the machine, and of each container that sees the run dir. Modes as with
    /// `Users`.
    Any,
}

impl Admission {
    /// Returns whether the peer of the channel is admitted.
    pub fn admits(&self, credentials: &Credentials, channel: &Channel) -> bool {
        match self {
            Self::Any => true,
            _ if credentials.is_among(&[]) => true,
            Self::SameUser => false,
            Self::Users(users) => credentials.is_among(users),
            Self::Group(group) => {
                !credentials.overflow && peer::is_in(*group, credentials, channel)
            }
        }
    }

    /// Returns the mode of the socket: users with write permission may connect.
    pub(crate) const fn socket_mode(&self) -> Mode {
        match self {
            Self::SameUser => Mode::from_raw_mode(0o600),
            Self::Group(_) => Mode::from_raw_mode(0o660),
            Self::Users(_) | Self::Any => Mode::from_raw_mode(0o666),
        }
    }

    /// Returns the mode of a newly created run dir.
    pub(crate) const fn run_dir_mode(&self) -> Mode {
        match self {
            Self::SameUser => Mode::from_raw_mode(0o700),
            Self::Group(_) => Mode::from_raw_mode(0o750),
            Self::Users(_) | Self::Any => Mode::from_raw_mode(0o755),
        }
    }

    /// Returns the group of both.
    pub(crate) fn group(&self) -> Option<Gid> {
        match self {
            Self::Group(group) => Some(Gid::from_raw(group.gid())),
            _ => None,
        }
    }
}

impl fmt::Display for Admission {
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
