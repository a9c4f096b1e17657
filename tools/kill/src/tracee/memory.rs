use std::fs;
use std::io::IoSliceMut;

use bellwire_core::Word;
use bellwire_core::sync::AtomicU64;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::error::{Result, io, system};

/// The page that a victim writes, at its address in the victim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pid: Pid,
    at: usize,
}

/// The words of a page that show the victim's progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) tail: u64,
    pub(crate) head: u64,
    pub(crate) rings: u64,
}

impl Words {
    /// How far they have moved.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            tail: self.tail.wrapping_sub(before.tail),
            head: self.head.wrapping_sub(before.head),
            rings: self.rings.wrapping_sub(before.rings),
        }
    }
}

const FIRST: usize = Word::Tail.offset();
const LEN: usize = Word::Rings.offset() + 8 - FIRST;

impl Page {
    /// The page of the session with this service, if it is open.
    pub(crate) fn find(pid: Pid, service: &str) -> Result<Option<Self>> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
        let maps = maps.map_err(io("read a victim's maps"))?;
        let is_page = |line: &&str| {
            line.contains("/memfd:bellwire-page-")
                && line.contains(service)
                && line.contains(" rw-s ")
        };
        let start = maps.lines().find(is_page).and_then(|line| line.split_once('-'));
        let at = start.and_then(|(start, _)| usize::from_str_radix(start, 16).ok());
        Ok(at.map(|at| Self { pid, at }))
    }

    /// Reads its words. The victim must be stopped.
    pub(crate) fn read(self) -> Result<Words> {
        let mut bytes = [0; LEN];
        read(self.pid, self.at + FIRST, &mut bytes)?;
        let word = |word: Word| {
            let at = word.offset() - FIRST;
            let (words, _) = bytes.get(at..).unwrap_or_default().as_chunks::<8>();
            words.first().map_or(0, |word| u64::from_le_bytes(*word))
        };
        Ok(Words { tail: word(Word::Tail), head: word(Word::Head), rings: word(Word::Rings) })
    }
}

/// Reads a variable of a victim, which is a fork of this process and has it at the same address.
pub(crate) fn read_static(pid: Pid, variable: &'static AtomicU64) -> Result<u64> {
    let mut bytes = [0; 8];
    read(pid, std::ptr::from_ref(variable).addr(), &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read(pid: Pid, at: usize, into: &mut [u8]) -> Result<()> {
    let from = RemoteIoVec { base: at, len: into.len() };
    let read = process_vm_readv(pid, &mut [IoSliceMut::new(into)], &[from]);
    read.map(drop).map_err(system("read a victim's memory"))
}
