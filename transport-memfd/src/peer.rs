#![allow(
    unsafe_code,
    reason = "getsockopt: rustix's SO_PEERCRED cannot express a pid of 0; getauxval: rustix has no AT_SECURE"
)]
//! The process at the other end of a socket.

use std::fmt;
use std::fs;
use std::mem::size_of;
use std::num::ParseIntError;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::str::FromStr;
use std::sync::OnceLock;

use bellwire_shm::platform;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Linux;
use crate::pass::Channel;
use crate::{clock, poll};

/// `SO_PEERPIDFD` on all architectures that Bellwire supports (Linux 6.5).
const SO_PEERPIDFD: libc::c_int = 77;
/// `SO_PEERGROUPS` on the same architectures (Linux 4.13).
const SO_PEERGROUPS: libc::c_int = 59;

/// A user, by number.
///
/// ```
/// use bellwire_memfd::peer::User;
///
/// assert!(User::own().is_own() && User::from(0).is_system());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct User(u32);

/// A group of users, by number.
///
/// ```
/// use bellwire_memfd::peer::Group;
///
/// assert_eq!(Group::from(100).gid(), 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(u32);

/// A pidfd with which to wait for the end of a process.
#[derive(Debug)]
pub struct Process(OwnedFd);

/// Who connected, as the kernel recorded it at connect time (`SO_PEERCRED`,
/// [`unix(7)`](https://man7.org/linux/man-pages/man7/unix.7.html)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The process; `None` if it is in a pid namespace that this process cannot see.
    pub pid: Option<u32>,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The uid is the one that the kernel shows for every user outside this user namespace. It identifies nobody, and equal
    /// values mean nothing. Refuse such a peer.
    pub overflow: bool,
}

/// Returns the user that this process acts as ([`geteuid(2)`](https://man7.org/linux/man-pages/man2/geteuid.2.html)).
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl User {
    /// Returns the user that this process acts as.
    pub fn own() -> Self {
        Self(own_uid())
    }

    /// Returns the number.
    pub const fn uid(self) -> u32 {
        self.0
    }

    /// Returns whether this process acts as that user.
    pub fn is_own(self) -> bool {
        self == Self::own()
    }

    /// Returns whether this is root, who may do anything on this machine.
    pub const fn is_system(self) -> bool {
        self.0 == 0
    }
}

impl Group {
    /// Returns the number.
    pub const fn gid(self) -> u32 {
        self.0
    }
}

/// Numbers that are given and shown as such.
macro_rules! numbers {
    ($($number:ident: $shown:literal),*) => {$(
        impl From<u32> for $number {
            fn from(number: u32) -> Self {
                Self(number)
            }
        }

        impl FromStr for $number {
            type Err = ParseIntError;

            fn from_str(number: &str) -> Result<Self, ParseIntError> {
                number.parse().map(Self)
            }
        }

        impl fmt::Display for $number {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($shown, " {}"), self.0)
            }
        }
    )*};
}

numbers!(User: "uid", Group: "gid");

impl platform::Credentials<Linux> for Credentials {
    type ConfirmError = Errno;

    fn of(channel: &Channel) -> Result<Self, Errno> {
        credentials(channel)
    }

    fn pid(&self) -> Option<u32> {
        self.pid
    }

    fn user(&self) -> User {
        User(self.uid)
    }

    fn is_among(&self, users: &[User]) -> bool {
        let user = self.user();
        !self.overflow && (user.is_own() || user.is_system() || users.contains(&user))
    }

    /// As its group or as a supplementary group. Returns `false` if that number stands for every group outside this user
    /// namespace.
    fn is_in(&self, group: Group, channel: &Channel) -> bool {
        !self.overflow
            && !is_overflow_group(group.0)
            && (self.gid == group.0
                || supplementary(channel.as_fd()).is_ok_and(|groups| groups.contains(&group.0)))
    }

    fn confirm(self, _: &mut Channel) -> Result<Self, Errno> {
        Ok(self)
    }
}

impl platform::Process<Linux> for Process {
    fn watch(channel: &Channel) -> Option<Self> {
        peer_pidfd(channel.as_fd())
    }

    fn has_exited(&self) -> bool {
        let mut ended = [poll::readable(self.as_fd())];
        poll::wait(&mut ended, Some(clock::now())).is_ok_and(poll::Ready::any)
    }
}

impl From<OwnedFd> for Process {
    fn from(pidfd: OwnedFd) -> Self {
        Self(pidfd)
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads the credentials of a connected socket's peer.
///
/// # Errors
/// None on a connected Unix socket.
pub fn credentials(sock: impl AsFd) -> Result<Credentials, Errno> {
    let mut raw = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let fields = <*mut libc::ucred>::cast(&mut raw);
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(|_| Errno::INVAL)?;
    socket_option(sock.as_fd(), libc::SO_PEERCRED, fields, &mut len)?;
    Ok(Credentials {
        pid: u32::try_from(raw.pid).ok().filter(|pid| *pid > 0),
        uid: raw.uid,
        gid: raw.gid,
        overflow: is_overflow(raw.uid),
    })
}

fn supplementary(sock: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let mut groups = vec![0_u32; 64];
    loop {
        let room = groups.len();
        let mut len =
            libc::socklen_t::try_from(room * size_of::<u32>()).map_err(|_| Errno::INVAL)?;
        let field = groups.as_mut_ptr().cast();
        // The kernel returns the required size in `len`.
        match socket_option(sock, SO_PEERGROUPS, field, &mut len) {
            Ok(()) => {
                groups.truncate(len as usize / size_of::<u32>());
                return Ok(groups);
            }
            // Only while it asks for more.
            Err(Errno::RANGE) if len as usize > room * size_of::<u32>() => {
                groups.resize(len as usize / size_of::<u32>(), 0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns a pidfd of the peer's process, with which to wait for its end; `CLOEXEC`.
///
/// `SO_PEERPIDFD` where the kernel has it (Linux 6.5); else
/// [`pidfd_open(2)`](https://man7.org/linux/man-pages/man2/pidfd_open.2.html) of the pid (Linux 5.3), which is another
/// process if the peer has ended and its pid was reused. Returns `None` if neither works, for instance in a sandbox: then
/// only the socket reports the peer's end.
pub fn peer_pidfd(sock: BorrowedFd<'_>) -> Option<Process> {
    if let Ok(pidfd) = socket_pidfd(sock) {
        return Some(pidfd);
    }
    let pid = i32::try_from(credentials(sock).ok()?.pid?).ok()?;
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok().map(Process)
}

/// Returns a pidfd that is certain to be the peer's: `SO_PEERPIDFD` (Linux 6.5).
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel.
pub fn socket_pidfd(sock: BorrowedFd<'_>) -> Result<Process, Errno> {
    let mut raw: libc::c_int = -1;
    let field = <*mut libc::c_int>::cast(&mut raw);
    let mut len = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(|_| Errno::INVAL)?;
    socket_option(sock, SO_PEERPIDFD, field, &mut len)?;
    if raw < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the kernel has just made this descriptor for the caller; nobody else knows it.
    Ok(Process(unsafe { OwnedFd::from_raw_fd(raw) }))
}

fn socket_option(
    sock: BorrowedFd<'_>,
    option: libc::c_int,
    value: *mut libc::c_void,
    len: &mut libc::socklen_t,
) -> Result<(), Errno> {
    // SAFETY: all callers pass the address of a live local, or of a live vector's items, of `len` bytes, for which any
    // bits are valid, and the kernel writes at most `len` bytes there.
    let result =
        unsafe { libc::getsockopt(sock.as_raw_fd(), libc::SOL_SOCKET, option, value, len) };
    if result == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

/// Returns whether this process has rights that whoever started it lacks: its program is setuid or setgid, or has file capabilities.
/// [`AT_SECURE`](https://man7.org/linux/man-pages/man3/getauxval.3.html)
pub(crate) fn is_privileged_by_its_file() -> bool {
    // SAFETY: reads what the kernel passed at the start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns whether a uid stands for every user outside this user namespace.
pub(crate) fn is_overflow(uid: u32) -> bool {
    static OVERFLOW: OnceLock<u32> = OnceLock::new();
    is_of_all(uid, &OVERFLOW, "/proc/sys/kernel/overflowuid", "/proc/self/uid_map")
}

/// Same as [`is_overflow`], for groups.
fn is_overflow_group(gid: u32) -> bool {
    static OVERFLOW: OnceLock<u32> = OnceLock::new();
    is_of_all(gid, &OVERFLOW, "/proc/sys/kernel/overflowgid", "/proc/self/gid_map")
}

/// Returns whether a number is the one shown for all numbers outside this user namespace, and there are any.
fn is_of_all(number: u32, overflow: &OnceLock<u32>, setting: &str, map: &str) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let overflow = overflow.get_or_init(|| read(setting).trim().parse().unwrap_or(65534));
    number == u32::MAX || (number == *overflow && !maps_all(&read(map)))
}

/// Returns whether a `uid_map` maps the whole range of user ids
/// ([`user_namespaces(7)`](https://man7.org/linux/man-pages/man7/user_namespaces.7.html)).
fn maps_all(map: &str) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u32>);
        matches!(
            (fields.next(), fields.next(), fields.next()),
            (Some(Ok(0)), Some(_), Some(Ok(u32::MAX)))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::maps_all;

    #[test]
    fn only_a_whole_map_sees_all_users() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(!maps_all(""));
        assert!(!maps_all("0 1000 1\n"));
        assert!(!maps_all("0 100000 65536\n"));
    }
}
