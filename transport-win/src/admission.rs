//! Which users an endpoint admits besides its own user and the system, by the pipe's access rights and the peer's
//! credentials.

use std::fmt;

use crate::pass::Channel;
use crate::peer::{Credentials, Group, User};
use crate::prelude::*;

/// Which users an endpoint admits besides its own user and the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// Nobody else.
    #[default]
    SameUser,
    /// Users whose group this is. Not supported on Windows: no endpoint is created.
    Group(Group),
    /// These users.
    Users(Vec<User>),
    /// Anybody on this machine.
    Any,
}

impl Admission {
    /// Returns whether the peer of the channel is admitted.
    pub fn admits(&self, credentials: &Credentials, _: &Channel) -> bool {
        match self {
            Self::Any => true,
            Self::Users(users) => credentials.is_among(users),
            Self::SameUser | Self::Group(_) => credentials.is_among(&[]),
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
