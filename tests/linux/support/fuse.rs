//! A FUSE file whose server answers nothing once the file is open: every operation waits until the mount is gone.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec, read, write};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::mount::{fsconfig_create, fsconfig_set_string, fsmount, fsopen};

/// After this time every waiting operation continues, so that a failing test ends.
const LIMIT: Duration = Duration::from_secs(90);
/// No other descriptor of a test has a number like this.
const HIGH: i32 = 700;
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const REGULAR: u32 = 0o100_666;
const DIRECTORY: u32 = 0o040_755;

/// The file, for as long as this is held: dropped, the mount is gone.
pub(crate) struct Silent {
    // First: the server answers from then on.
    _gone: Sender<()>,
    file: OwnedFd,
    _mount: OwnedFd,
}

impl Silent {
    /// A file of this name, of one page. `None`, and says why, where this process may not mount FUSE.
    pub(crate) fn new(name: &CStr) -> Option<Self> {
        let (gone, until) = channel();
        match mount(until).and_then(|mount| {
            let opened = openat(&mount, name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            // After the server's descriptor: a killed process closes that first, and nothing waits any more.
            let file = fcntl_dupfd_cloexec(&opened, HIGH)?;
            drop(opened);
            Ok(Self { _gone: gone, file, _mount: mount })
        }) {
            Ok(silent) => Some(silent),
            Err(error) => {
                println!("nothing was tried: no FUSE here ({error})");
                None
            }
        }
    }

    /// The same file once more, to be given away: its close waits, too.
    #[allow(dead_code, reason = "some tests only lend it")]
    pub(crate) fn fd(&self) -> OwnedFd {
        fcntl_dupfd_cloexec(&self.file, HIGH).unwrap()
    }
}

impl AsFd for Silent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A mount that is in no directory.
fn mount(until: Receiver<()>) -> Result<OwnedFd, Errno> {
    let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let fs = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let (fd, uid) = (device.as_raw_fd().to_string(), rustix::process::getuid().as_raw());
    let (uid, gid) = (uid.to_string(), rustix::process::getgid().as_raw().to_string());
    for (key, value) in [("fd", &*fd), ("rootmode", "40000"), ("user_id", &uid), ("group_id", &gid)]
    {
        fsconfig_set_string(fs.as_fd(), key, value)?;
    }
    fsconfig_create(fs.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = fsmount(fs.as_fd(), flags, MountAttrFlags::empty())?;
    let device = File::from(device);
    thread::spawn(move || {
        serve(&device, false);
        let _ = until.recv_timeout(LIMIT);
        // Closing the device does not end what waits, if a child has it open, too.
        serve(&device, true);
    });
    Ok(mount)
}

/// Until the file was open and closed for the first time; or until the mount is gone, with errors alone.
fn serve(device: &File, refuses: bool) {
    let mut request = vec![0; 1 << 17];
    loop {
        let Ok(len @ 40..) = read(device, &mut request) else { return };
        let number = |at: usize| u32::from_le_bytes(*request[at..len].first_chunk().unwrap());
        let (opcode, node) = (number(4), u64::from(number(16)));
        let mut answer = vec![0; 16];
        answer[8..].copy_from_slice(&request[8..16]);
        match opcode {
            _ if refuses => {
                answer[4..8]
                    .copy_from_slice(&Errno::IO.raw_os_error().wrapping_neg().to_le_bytes());
            }
            FLUSH => {}
            // Version 7.31; a page at a time.
            INIT => answer.extend([7, 31, 4096, 0, 0, 4096].map(u32::to_le_bytes).concat()),
            LOOKUP => {
                answer.extend([2_u64, 0, 0, 0, 0].map(u64::to_le_bytes).concat());
                answer.extend(attributes(2, REGULAR));
            }
            GETATTR => {
                answer.extend([0; 16]);
                answer.extend(attributes(node, if node == 1 { DIRECTORY } else { REGULAR }));
            }
            OPEN => answer.extend([0; 16]),
            _ => continue,
        }
        answer.resize(if opcode == INIT && !refuses { 80 } else { answer.len() }, 0);
        let len = u32::try_from(answer.len()).unwrap();
        answer[..4].copy_from_slice(&len.to_le_bytes());
        // There are requests that have no answer.
        let _ = write(device, &answer);
        if opcode == FLUSH && !refuses {
            return;
        }
    }
}

fn attributes(node: u64, mode: u32) -> Vec<u8> {
    let mut bytes = [node, 4096, 8, 0, 0, 0].map(u64::to_le_bytes).concat();
    bytes.extend([0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_le_bytes).concat());
    bytes
}
