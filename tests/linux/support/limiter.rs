#![allow(unsafe_code, reason = "a seccomp filter is installed by a bare system call")]
//! Takes resources from a process, and returns them.

use std::io::IoSlice;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::{BPF_ABS, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// What was taken.
#[derive(Default)]
pub(crate) struct ResourceLimiter {
    files: Option<Rlimit>,
    size: Option<Rlimit>,
    space: Option<Rlimit>,
    /// Descriptors in flight, which are never received.
    in_flight: Option<(OwnedFd, OwnedFd)>,
}

impl ResourceLimiter {
    /// Does what a line says.
    pub(crate) fn apply(&mut self, words: &[&str]) {
        match *words {
            ["no-files"] => self.take_files(),
            ["files"] => give_back(Resource::Nofile, &mut self.files),
            ["file-size", most] => {
                take(Resource::Fsize, &mut self.size, most.parse().unwrap());
            }
            ["file-sizes"] => give_back(Resource::Fsize, &mut self.size),
            ["space", more] => {
                let more: u64 = more.parse().unwrap();
                take(Resource::As, &mut self.space, address_space() + more);
            }
            ["spaces"] => give_back(Resource::As, &mut self.space),
            ["no-space", above] => refuse_to_allocate(above.parse().unwrap()),
            ["in-flight"] => self.fill_in_flight(),
            ["nothing-in-flight"] => {
                self.in_flight = None;
                give_back(Resource::Nofile, &mut self.files);
            }
            _ => panic!("what is {words:?}?"),
        }
    }

    /// No descriptor more can be had.
    fn take_files(&mut self) {
        // It may be so already.
        let Ok(free) = std::io::stdin().as_fd().try_clone_to_owned() else { return };
        take(Resource::Nofile, &mut self.files, u64::try_from(free.as_raw_fd()).unwrap());
    }

    /// No descriptor more can be sent. It is the user's descriptors that count, those of other tests among them: there
    /// are too many in flight without theirs.
    fn fill_in_flight(&mut self) {
        const MOST: u64 = 300;
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None).unwrap();
        let fds = [pair.0.as_fd(); 100];
        for _ in 0..=MOST / 100 {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(100))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            sendmsg(&pair.0, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        }
        take(Resource::Nofile, &mut self.files, MOST);
        self.in_flight = Some(pair);
    }
}

/// Limits hold for this thread, and for those that it starts, from now on.
pub(crate) fn drop_limit_capabilities() {
    let mut set = capabilities(None).unwrap();
    let above_limits = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_RESOURCE;
    set.effective -= above_limits;
    set.permitted -= above_limits;
    set_capabilities(None, set).unwrap();
}

/// Lowers a limit.
fn take(resource: Resource, before: &mut Option<Rlimit>, to: u64) {
    let limit = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), maximum: limit.maximum }).unwrap();
    before.get_or_insert(limit);
}

fn give_back(resource: Resource, before: &mut Option<Rlimit>) {
    setrlimit(resource, before.take().unwrap()).unwrap();
}

/// Bytes of address space that this process uses.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// From now on `fallocate(2)` of more bytes fails with `ENOSPC`, in this process and for ever. The kernel's own mount
/// for memfds has no size limit to set.
fn refuse_to_allocate(above: u32) {
    let more = BPF_JMP | BPF_JGT | BPF_K;
    let len = offset_of!(libc::seccomp_data, args) + 3 * size_of::<u64>();
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSPC as u32;
    let filter = [
        step(LOAD, offset_of!(libc::seccomp_data, nr) as u32, 0, 0),
        step(IS, libc::SYS_fallocate as u32, 0, 3),
        step(LOAD, len as u32, 0, 0),
        step(more, above, 0, 1),
        step(END, refuse, 0, 0),
        step(END, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    install(filter, libc::SECCOMP_FILTER_FLAG_TSYNC);
}

/// From now on this system call fails with `EPERM`, in this thread and for ever.
pub(crate) fn forbid_here(call: libc::c_long) {
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let filter = [
        step(LOAD, offset_of!(libc::seccomp_data, nr) as u32, 0, 0),
        step(IS, call.try_into().unwrap(), 0, 1),
        step(END, refuse, 0, 0),
        step(END, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    install(filter, 0);
}

/// From now on there is no `SO_PASSRIGHTS`, in this thread, in those that it starts, and for ever. Clients of a server that it starts can
/// send descriptors before they are admitted, as on a kernel before Linux 6.16.
pub(crate) fn hide_passrights_here() {
    const SO_PASSRIGHTS: u32 = 83;
    let option = offset_of!(libc::seccomp_data, args) + 2 * size_of::<u64>();
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT as u32;
    let filter = [
        step(LOAD, offset_of!(libc::seccomp_data, nr) as u32, 0, 0),
        step(IS, libc::SYS_setsockopt as u32, 0, 3),
        step(LOAD, option as u32, 0, 0),
        step(IS, SO_PASSRIGHTS, 0, 1),
        step(END, refuse, 0, 0),
        step(END, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    install(filter, 0);
}

const LOAD: u32 = BPF_LD | BPF_W | BPF_ABS;
const IS: u32 = BPF_JMP | BPF_JEQ | BPF_K;
const END: u32 = BPF_RET | BPF_K;

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

fn install<const N: usize>(mut filter: [sock_filter; N], flags: libc::c_ulong) {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: sets a flag of this thread.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(done, 0);
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `program` and the filter that it points to live past the call, which copies them.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
