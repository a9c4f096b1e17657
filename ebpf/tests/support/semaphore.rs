//! The word of a process in which the kernel counts who is attached.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile, SectionHeader};
use object::{Endianness, Object};

/// A probe's semaphore, and its nop.
pub(crate) struct Semaphore {
    memory: File,
    address: u64,
    nop: u64,
}

/// That of this probe in this process, which runs this file.
pub(crate) fn of(pid: u32, file: &Path, probe: &str) -> Semaphore {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let base = base(pid, file);
    let [nop, address] = linked_at(file, probe).map(|linked| base + linked);
    Semaphore { memory, address, nop }
}

impl Semaphore {
    pub(crate) fn count(&self) -> u16 {
        let mut word = [0; 2];
        self.memory.read_exact_at(&mut word, self.address).unwrap();
        u16::from_le_bytes(word)
    }

    /// Whether the nop is a breakpoint: a tracer may hold the semaphore for a while before.
    pub(crate) fn is_armed(&self) -> bool {
        let mut first = [0];
        self.memory.read_exact_at(&mut first, self.nop).unwrap();
        // The first byte of a nop on x86-64 and on aarch64.
        ![0x90, 0x1f].contains(&first[0])
    }
}

/// Where the file is loaded: its first map.
fn base(pid: u32, file: &Path) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let first = maps.lines().find(|line| line.ends_with(file.to_str().unwrap())).unwrap();
    u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap()
}

/// The first word of the note, and the third.
fn linked_at(file: &Path, probe: &str) -> [u64; 2] {
    let names = format!("bellwire\0{probe}\0");
    let bytes = std::fs::read(file).unwrap();
    let file = ElfFile::<FileHeader64<Endianness>>::parse(bytes.as_slice()).unwrap();
    let section = file.section_by_name(".note.stapsdt").unwrap();
    let notes = section.elf_section_header().notes(file.endian(), bytes.as_slice());
    let mut notes = notes.unwrap().unwrap();
    while let Some(note) = notes.next().unwrap() {
        let desc = note.desc();
        if desc[24..].starts_with(names.as_bytes()) {
            return [0, 16].map(|at| u64::from_le_bytes(desc[at..at + 8].try_into().unwrap()));
        }
    }
    panic!("no probe {probe}");
}
