//! The word of a process in which the kernel counts who is attached.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile, SectionHeader};
use object::{Endianness, Object};

/// The semaphore of `message` and `reply`.
pub(crate) struct Semaphore {
    memory: File,
    address: u64,
}

/// That of this process, which runs this file.
pub(crate) fn of(pid: u32, file: &Path) -> Semaphore {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    Semaphore { memory, address: base(pid, file) + linked_at(file) }
}

impl Semaphore {
    pub(crate) fn count(&self) -> u16 {
        let mut word = [0; 2];
        self.memory.read_exact_at(&mut word, self.address).unwrap();
        u16::from_le_bytes(word)
    }
}

/// Where the file is loaded: its first map.
fn base(pid: u32, file: &Path) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let first = maps.lines().find(|line| line.ends_with(file.to_str().unwrap())).unwrap();
    u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap()
}

/// The third word of the note.
fn linked_at(file: &Path) -> u64 {
    let bytes = std::fs::read(file).unwrap();
    let file = ElfFile::<FileHeader64<Endianness>>::parse(bytes.as_slice()).unwrap();
    let section = file.section_by_name(".note.stapsdt").unwrap();
    let notes = section.elf_section_header().notes(file.endian(), bytes.as_slice());
    let mut notes = notes.unwrap().unwrap();
    while let Some(note) = notes.next().unwrap() {
        let desc = note.desc();
        if desc[24..].starts_with(b"bellwire\0message\0") {
            return u64::from_le_bytes(desc[16..24].try_into().unwrap());
        }
    }
    panic!("no probe `message`");
}
