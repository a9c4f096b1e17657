//! Whom an endpoint admits besides its own user and root: by the mode of the socket, and by who connects.

use std::fmt;

use rustix::fs::{Gid, Mode};

use crate::pass::Channel;
use crate::peer::{self, Credentials, Group, User};

/// Whom an endpoint admits besides its own user and root, who always are. Looked at when somebody connects, by what the
/// kernel noted of it then; the socket's mode keeps off others where it can.
///
/// A user or a group that the server's user namespace does not map has no number there: [`Admission::Any`] alone admits it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// Nobody else. The socket has mode 0600, and a run dir that is made mode 0700.
    #[default]
    SameUser,
    /// Whose group this is, or one of whose supplementary groups
    /// (`SO_PEERGROUPS`, [`socket(7)`](https://man7.org/linux/man-pages/man7/socket.7.html)). The socket is the group's and
    /// has mode 0660; so is a run dir that is made, with mode 0750. The server must be in that group, or root's.
    Group(Group),
    /// These users. The socket has mode 0666, a run dir that is made mode 0755: others reach the socket and are refused.
    Users(Vec<User>),
    /// Anybody who reaches the socket: every user of the machine, and of each container that sees the run dir. Modes as
    /// with `Users`.
    Any,
}

impl Admission {
    /// Whether whoever is at the other end of the channel may come in.
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

    /// The mode of the socket: whoever may write it may connect.
    pub(crate) const fn socket_mode(&self) -> Mode {
        match self {
            Self::SameUser => Mode::from_raw_mode(0o600),
            Self::Group(_) => Mode::from_raw_mode(0o660),
            Self::Users(_) | Self::Any => Mode::from_raw_mode(0o666),
        }
    }

    /// The mode of a run dir that is made.
    pub(crate) const fn run_dir_mode(&self) -> Mode {
        match self {
            Self::SameUser => Mode::from_raw_mode(0o700),
            Self::Group(_) => Mode::from_raw_mode(0o750),
            Self::Users(_) | Self::Any => Mode::from_raw_mode(0o755),
        }
    }

    /// The group of both.
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
