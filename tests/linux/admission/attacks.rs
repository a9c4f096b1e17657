#![allow(unsafe_code, reason = "the attacks map memory by hand")]
//! Everything that a process can try in order to change a page, lane or board that it was passed. It runs in a
//! process of its own: one that died of a SIGBUS, for example, could not report.

use std::fs::{self, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use bellwire::{Client, RunDir, ServerConfig, User};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect, munmap};

use super::{NOBODY, is_root, says, set_mode};
use crate::support::child::{Parent, Process};
use crate::support::rogue::Rogue;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, TestServer};

/// The outcome of an attack: an error, or no visible effect.
type Outcome = io::Result<()>;

/// By name.
type Attack = (&'static str, fn(&Target) -> Outcome);

const ATTACKS: [Attack; 32] = [
    ("map it for writing", |it| it.map(it.fd(), MapFlags::SHARED)),
    ("map it for writing, validated", |it| it.map(it.fd(), MapFlags::SHARED_VALIDATE)),
    ("write", |it| Ok(rustix::io::write(it.fd(), b"evil").map(drop)?)),
    ("pwrite", |it| Ok(rustix::io::pwrite(it.fd(), b"evil", 8).map(drop)?)),
    ("pwritev", |it| Ok(rustix::io::pwritev(it.fd(), &[IoSlice::new(b"evil")], 8).map(drop)?)),
    ("append", |it| {
        rustix::fs::fcntl_setfl(it.fd(), OFlags::RDWR | OFlags::APPEND)?;
        let written = rustix::io::write(it.fd(), b"evil").map(drop);
        rustix::fs::fcntl_setfl(it.fd(), OFlags::RDWR)?;
        Ok(written?)
    }),
    ("shrink", |it| Ok(rustix::fs::ftruncate(it.fd(), 0)?)),
    ("shrink by a byte", |it| Ok(rustix::fs::ftruncate(it.fd(), it.len as u64 - 1)?)),
    ("grow", |it| Ok(rustix::fs::ftruncate(it.fd(), 2 * it.len as u64)?)),
    ("shrink by its path", |it| OpenOptions::new().write(true).open(it.path())?.set_len(0)),
    ("truncate when it is opened", |it| {
        OpenOptions::new().write(true).truncate(true).open(it.path()).map(drop)
    }),
    ("punch a hole", |it| it.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0)),
    ("zero a range", |it| it.allocate(FallocateFlags::ZERO_RANGE, 0)),
    ("collapse a range", |it| it.allocate(FallocateFlags::COLLAPSE_RANGE, 0)),
    ("insert a range", |it| it.allocate(FallocateFlags::INSERT_RANGE, 0)),
    ("grow by allocating", |it| it.allocate(FallocateFlags::empty(), it.len as u64)),
    ("lock its owner out", |it| Ok(rustix::fs::fcntl_add_seals(it.fd(), SealFlags::WRITE)?)),
    ("open it again and map it", |it| it.map(it.reopened()?.as_fd(), MapFlags::SHARED)),
    ("open it again and write", |it| Ok(rustix::io::pwrite(it.reopened()?, b"evil", 0).map(drop)?)),
    ("open it again and shrink it", |it| Ok(rustix::fs::ftruncate(it.reopened()?, 0)?)),
    ("open it by its mapping and map it", |it| {
        it.map(it.opened_by_mapping()?.as_fd(), MapFlags::SHARED)
    }),
    ("open it by its mapping and write", |it| {
        Ok(rustix::io::pwrite(it.opened_by_mapping()?, b"evil", 0).map(drop)?)
    }),
    ("make its mapping writable", |it| {
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the mapping of the target, which nobody writes through here.
        Ok(unsafe { mprotect(it.mapping, it.len, flags) }?)
    }),
    ("remove its pages", |it| it.advise(Advice::LinuxRemove)),
    ("do not need its pages", |it| it.advise(Advice::LinuxDontNeed)),
    ("free its pages", |it| it.advise(Advice::LinuxFree)),
    ("write through /proc/self/mem", |it| {
        let mut memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
        memory.seek(SeekFrom::Start(it.mapping as u64))?;
        memory.write_all(b"evil")
    }),
    ("process_vm_writev", Target::write_by_another_process),
    ("copy into it", |it| {
        // On the same file system, or it would fail for that.
        let source = rustix::fs::memfd_create("source", MemfdFlags::CLOEXEC)?;
        rustix::io::pwrite(&source, b"evil", 0)?;
        Ok(rustix::fs::copy_file_range(&source, Some(&mut 0), it.fd(), None, 4).map(drop)?)
    }),
    ("send a file into it", |it| {
        let source = fs::File::open("/proc/self/exe")?;
        Ok(rustix::fs::sendfile(it.fd(), &source, None, 64).map(drop)?)
    }),
    ("splice a pipe into it", |it| {
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(b"evil")?;
        let flags = rustix::pipe::SpliceFlags::empty();
        Ok(rustix::pipe::splice(&reader, None, it.fd(), Some(&mut 0), 4, flags).map(drop)?)
    }),
    ("fill it by userfaultfd", Target::fill_by_userfaultfd),
];

/// What the attacker was passed, and its read-only mapping of it.
struct Target {
    name: &'static str,
    fd: OwnedFd,
    mapping: *mut libc::c_void,
    len: usize,
}

impl Target {
    fn new(name: &'static str, fd: OwnedFd) -> Self {
        let len = usize::try_from(rustix::fs::fstat(&fd).unwrap().st_size).unwrap();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapping =
            unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &fd, 0) };
        Self { name, fd, mapping: mapping.unwrap(), len }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        assert_eq!(rustix::io::pread(&self.fd, &mut bytes, 0).unwrap(), self.len);
        // SAFETY: the mapping has `len` bytes. Its owner changes none while it waits for JOIN.
        let mapped = unsafe { std::slice::from_raw_parts(self.mapping.cast::<u8>(), self.len) };
        assert_eq!(mapped, bytes, "what is mapped is what is read");
        bytes
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    fn reopened(&self) -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(self.path(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn opened_by_mapping(&self) -> io::Result<OwnedFd> {
        let (start, end) = (self.mapping as usize, self.mapping as usize + self.len);
        let path = format!("/proc/self/map_files/{start:x}-{end:x}");
        Ok(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Maps it for writing, and writes.
    fn map(&self, fd: BorrowedFd<'_>, flags: MapFlags) -> Outcome {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { mmap(ptr::null_mut(), self.len, prot, flags, fd, 0) }?;
        // SAFETY: just mapped for writing.
        unsafe { at.cast::<u8>().write_volatile(b'!') };
        // SAFETY: just mapped, and nothing refers to it.
        Ok(unsafe { munmap(at, self.len) }?)
    }

    fn allocate(&self, mode: FallocateFlags, at: u64) -> Outcome {
        Ok(rustix::fs::fallocate(&self.fd, mode, at, 4096)?)
    }

    fn advise(&self, advice: Advice) -> Outcome {
        // SAFETY: the target's own mapping, which is only ever read.
        Ok(unsafe { madvise(self.mapping, self.len, advice) }?)
    }

    fn write_by_another_process(&self) -> Outcome {
        let evil = libc::iovec { iov_base: b"evil".as_ptr() as *mut _, iov_len: 4 };
        let target = libc::iovec { iov_base: self.mapping, iov_len: 4 };
        let own = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: both vectors live past the call, and the kernel checks what they point to.
        let done = unsafe { libc::process_vm_writev(own, &evil, 1, &target, 1, 0) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Registers the mapping for missing pages, and for write protection.
    fn fill_by_userfaultfd(&self) -> Outcome {
        const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
        const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
        // SAFETY: makes a descriptor.
        let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else knows it.
        let fd = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(raw as i32) };
        let mut api = [0xaa_u64, 0, 0];
        // SAFETY: the call takes three words.
        if unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API as _, api.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut register = [self.mapping as u64, self.len as u64, 1, 0];
        // SAFETY: the call takes four words.
        if unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER as _, register.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Gets as far as WELCOME, and attacks what it was passed: all of it, or what the line names.
pub(super) fn play(mut parent: Parent) {
    parent.send_line("ready");
    let rogue = Rogue::connect(&RunDir::from_environment(), "echo");
    let (_welcome, fds) = rogue.enter();
    let names = ["page", "lane", "board"];
    let targets: Vec<_> =
        names.into_iter().zip(fds).map(|(name, fd)| Target::new(name, fd)).collect();
    while let Some(line) = parent.next_line() {
        if let Some(pid) = line.strip_prefix("owner ") {
            parent.send_line(&attack_by_the_owners_mappings(pid));
            continue;
        }
        for target in &targets {
            for (attack, run) in ATTACKS {
                let before = target.bytes();
                let outcome = match run(target) {
                    Ok(()) => "did nothing".to_owned(),
                    Err(error) => error.to_string(),
                };
                let changed = target.bytes().iter().zip(before).filter(|(a, b)| **a != *b).count();
                parent.send_line(&format!(
                    "{}: {attack}: {changed} bytes changed: {outcome}",
                    target.name
                ));
            }
        }
        parent.send_line("done");
    }
}

/// Opens each of Bellwire's mappings in the process that owns the memory, and tries to write there.
fn attack_by_the_owners_mappings(pid: &str) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let (mut opened, mut written) = (0, 0);
    for line in maps.lines().filter(|line| line.contains("/memfd:bellwire-")) {
        let range = line.split(' ').next().unwrap();
        let path = format!("/proc/{pid}/map_files/{range}");
        let Ok(fd) = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        opened += 1;
        let target = Target::new("its owner's", fd);
        let tries: [fn(&Target) -> Outcome; 4] = [
            |it| it.map(it.fd(), MapFlags::SHARED),
            |it| Ok(rustix::io::pwrite(it.fd(), b"evil", 0).map(drop)?),
            |it| Ok(rustix::fs::ftruncate(it.fd(), 0)?),
            |it| it.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0),
        ];
        written += tries.iter().filter(|attempt| attempt(&target).is_ok()).count();
    }
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    for link in links.filter_map(Result::ok) {
        let is_ours = fs::read_link(link.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:bellwire-"));
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(fd) = rustix::fs::open(link.path(), flags, Mode::empty())
            && is_ours
        {
            opened += 1;
            let target = Target::new("its owner's", fd);
            written += usize::from(target.map(target.fd(), MapFlags::SHARED).is_ok());
            written += usize::from(rustix::io::pwrite(&target.fd, b"evil", 0).is_ok());
        }
    }
    format!("opened {opened} written {written}")
}

/// Each attack, with its name.
#[track_caller]
fn attack(fixture: &TestServer, role: &str) -> Process {
    let mut good: Client<Echo> = fixture.client();
    let mut attacker = Process::start(role, fixture.run_dir());
    attacker.send_line("attack");
    let mut attacks = 0;
    loop {
        let reply = attacker.try_next_line().expect("the attacker died of its attack");
        if reply == "done" {
            break;
        }
        println!("{reply}");
        says(&reply, &[": 0 bytes changed: "]);
        attacks += 1;
        assert_eq!(good.call(&vec![attacks as u8]).unwrap(), [attacks as u8]);
    }
    assert_eq!(attacks, 3 * ATTACKS.len());
    attacker
}

#[test]
fn no_attack_on_a_page_a_lane_or_a_board_changes_a_byte() {
    let fixture = TestServer::open();
    drop(attack(&fixture, "admission attacker"));
    assert_eq!(fixture.close().poisoned, 0);
}

#[test]
fn no_attack_of_another_user_changes_a_byte_either() {
    if !is_root() {
        return;
    }
    let admission = bellwire::Admission::Users(vec![User::from(NOBODY)]);
    let dir = Dir::new();
    set_mode(dir.run_dir.path(), 0o711);
    let fixture = TestServer::in_dir(dir, ServerConfig::default().admission(admission));
    drop(attack(&fixture, "admission attacker nobody"));
}

/// The owner's mappings and descriptors as `/proc` shows them, to a process that may open them for writing.
#[test]
fn memory_that_is_opened_again_through_its_owners_proc_cannot_be_written() {
    let dir = Dir::new();
    let mut owner = Process::start("server", &dir.run_dir);
    let mut good =
        Client::<Echo>::with_config(&dir.run_dir, crate::support::test_server::client_config());
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    let mut attacker = Process::start("admission attacker", &dir.run_dir);
    let reply = attacker.ask(&format!("owner {}", owner.pid()));
    println!("{reply}");
    let words: Vec<_> = reply.split(' ').collect();
    assert_eq!(words[3], "0", "{reply}");
    if is_root() {
        assert_ne!(words[1], "0", "{reply}");
    }
    for byte in 0..100 {
        assert_eq!(good.call(&vec![byte]).unwrap(), [byte]);
    }
    drop((good, attacker));
    owner.ask("stop");
}
