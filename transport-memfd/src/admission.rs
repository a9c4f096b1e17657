//! Which users an endpoint admits besides its own user and root, by the socket's mode and the peer's credentials.

use rustix::fs::{Gid, Mode};

use crate::Linux;

/// Which users an endpoint admits.
///
/// ```
/// use bellwire_memfd::admission::Admission;
/// use bellwire_memfd::peer::User;
///
/// let two = Admission::Users(vec![User::from(1000), User::from(1001)]);
/// assert_ne!(two, Admission::default());
/// ```
pub type Admission = bellwire_shm::platform::Admission<Linux>;

/// Returns the modes of the socket, to which users with write permission may connect, and of a newly created run dir.
pub(crate) const fn modes(admission: &Admission) -> [Mode; 2] {
    let [socket, run_dir] = match admission {
        Admission::SameUser => [0o600, 0o700],
        Admission::Group(_) => [0o660, 0o750],
        _ => [0o666, 0o755],
    };
    [Mode::from_raw_mode(socket), Mode::from_raw_mode(run_dir)]
}

/// Returns the group of both.
pub(crate) fn group(admission: &Admission) -> Option<Gid> {
    match admission {
        Admission::Group(group) => Some(Gid::from_raw(group.gid())),
        _ => None,
    }
}
