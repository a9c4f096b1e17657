use std::fs;
use std::io::IoSliceMut;

use bellwire_core::Word;
use bellwire_core::sync::AtomicU64;
use bellwire_core::wire::{BoardWord, BroadcastWord};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::error::{Result, io, system};
use crate::service::events_before;

/// The shared memory that shows what a victim has published.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    Page(Page),
    /// The board of a service: its generation is the tail.
    Board {
        pid: Pid,
        service: &'static str,
    },
    /// The broadcast ring of events: how many are in the first ring is the tail.
    Events {
        pid: Pid,
        service: &'static str,
    },
}

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
        let at = maps(pid, "page", service)?.first().copied();
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

impl Progress {
    /// Reads it. The victim must be stopped.
    pub(crate) fn read(self) -> Result<Words> {
        let tail = match self {
            Self::Page(page) => return page.read(),
            Self::Board { pid, service } => match maps(pid, "board", service)?.first() {
                Some(at) => read_word(pid, at + BoardWord::Generation.offset())?,
                None => 0,
            },
            Self::Events { pid, service } => {
                // The second ring is made before the first one is unmapped.
                let mut sequences = Vec::new();
                for at in maps(pid, "broadcast", service)? {
                    let number = read_word(pid, at + RING_NUMBER)?;
                    let before = read_word(pid, at + RING_FIRST)?.saturating_sub(1);
                    let tail = read_word(pid, at + BroadcastWord::Tail.offset())?;
                    sequences.push(if number == 1 { events_before(tail) } else { before });
                }
                sequences.into_iter().max().unwrap_or(0)
            }
        };
        Ok(Words { tail, ..Words::default() })
    }
}

/// Where a broadcast ring has its number, and the sequence of its first record.
const RING_NUMBER: usize = 0x10;
const RING_FIRST: usize = 0x18;

/// Where a victim has its own memory of this kind mapped.
fn maps(pid: Pid, kind: &str, service: &str) -> Result<Vec<usize>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
    let maps = maps.map_err(io("read a victim's maps"))?;
    let kind = format!("/memfd:bellwire-{kind}-");
    let is_wanted =
        |line: &&str| line.contains(&kind) && line.contains(service) && line.contains(" rw-s ");
    let starts = maps.lines().filter(is_wanted).filter_map(|line| line.split_once('-'));
    Ok(starts.filter_map(|(start, _)| usize::from_str_radix(start, 16).ok()).collect())
}

/// Reads a variable of a victim, which is a fork of this process and has it at the same address.
pub(crate) fn read_static(pid: Pid, variable: &'static AtomicU64) -> Result<u64> {
    read_word(pid, std::ptr::from_ref(variable).addr())
}

fn read_word(pid: Pid, at: usize) -> Result<u64> {
    let mut bytes = [0; 8];
    read(pid, at, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read(pid: Pid, at: usize, into: &mut [u8]) -> Result<()> {
    let from = RemoteIoVec { base: at, len: into.len() };
    let read = process_vm_readv(pid, &mut [IoSliceMut::new(into)], &[from]);
    read.map(drop).map_err(system("read a victim's memory"))
}
