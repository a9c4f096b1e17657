//! The semaphore of a probe: a word in a process in which the kernel counts the attached tracers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile, SectionHeader};
use object::{Endianness, Object};

/// A probe's semaphore, and the nop of the probe.
pub(crate) struct Semaphore {
    memory: File,
    address: u64,
    nop: u64,
}

/// Finds the semaphore of a probe in a process that runs this file.
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

    /// Whether a breakpoint has replaced the nop, which may happen some time after the increment of the semaphore.
    pub(crate) fn is_armed(&self) -> bool {
        let mut first = [0];
        self.memory.read_exact_at(&mut first, self.nop).unwrap();
        // The first byte of a nop on x86-64 and on aarch64.
        ![0x90, 0x1f].contains(&first[0])
    }
}

/// The address at which the file is loaded: that of its first map.
fn base(pid: u32, file: &Path) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let first = maps.lines().find(|line| line.ends_with(file.to_str().unwrap())).unwrap();
    u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap()
}

/// The addresses of the nop and of the semaphore.
fn linked_at(file: &Path, probe: &str) -> [u64; 2] {
    let bytes = std::fs::read(file).unwrap();
    let file = ElfFile::parse(bytes.as_slice()).unwrap();
    let found = notes(&file).into_iter().find(|(name, _)| name == probe);
    found.unwrap_or_else(|| panic!("no probe {probe}")).1
}

/// The names of a file's probes, and the addresses of the nop and of the semaphore: the first and the third word of a note.
pub(crate) fn notes(file: &ElfFile<'_, FileHeader64<Endianness>>) -> Vec<(String, [u64; 2])> {
    let Some(section) = file.section_by_name(".note.stapsdt") else { return Vec::new() };
    let notes = section.elf_section_header().notes(file.endian(), file.data());
    let mut notes = notes.unwrap().unwrap();
    let mut found = Vec::new();
    while let Some(note) = notes.next().unwrap() {
        let desc = note.desc();
        let mut texts = desc[24..].split(|&byte| byte == 0);
        // Of glibc, in a static program.
        if texts.next() != Some(b"bellwire") {
            continue;
        }
        let name = String::from_utf8(texts.next().unwrap().to_vec()).unwrap();
        let word = |at: usize| u64::from_le_bytes(desc[at..at + 8].try_into().unwrap());
        found.push((name, [0, 16].map(word)));
    }
    found
}
