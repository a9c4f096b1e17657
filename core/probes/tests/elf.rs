//! What is in an ELF file about its probes.

use std::path::Path;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection};

/// One note of type `stapsdt`, and what its addresses mean in the file.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) provider: String,
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    /// Where the nop is in the file.
    pub(crate) nop: u64,
    /// Where the semaphore is in the file.
    pub(crate) semaphore: u64,
    /// The semaphore's address in memory.
    pub(crate) semaphore_address: u64,
    /// Segments that map the file's page on which the semaphore stands.
    pub(crate) maps: usize,
}

const PAGE: u64 = 4096;
/// The type of a note about a probe.
const STAPSDT: u32 = 3;

/// The probes of the file, and its bytes.
pub(crate) fn read(path: &Path) -> (Vec<Note>, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    let file = ElfFile::<FileHeader64<Endianness>>::parse(bytes.as_slice()).unwrap();
    let endian = file.endian();
    let section = file.section_by_name(".note.stapsdt").expect("no section .note.stapsdt");
    let mut found = Vec::new();
    let mut notes = section.elf_section_header().notes(endian, bytes.as_slice()).unwrap().unwrap();
    while let Some(note) = notes.next().unwrap() {
        assert_eq!((note.name(), note.n_type(endian)), (&b"stapsdt"[..], STAPSDT));
        let desc = note.desc();
        let word = |at: usize| u64::from_le_bytes(desc[at..at + 8].try_into().unwrap());
        let mut texts = desc[24..].split(|&byte| byte == 0);
        let mut text = || String::from_utf8(texts.next().unwrap().to_vec()).unwrap();
        let (provider, name, arguments) = (text(), text(), text());
        // The library's own section says whether something moved it after it was linked.
        let base = file.section_by_name(".stapsdt.base").unwrap().address();
        assert_eq!(word(8), base, "{name} was moved after linking");
        found.push(Note {
            provider,
            name,
            arguments: arguments.split(' ').map(str::to_owned).collect(),
            nop: in_file(&file, word(0)),
            semaphore: in_file(&file, word(16)),
            semaphore_address: word(16),
            maps: maps(&file, in_file(&file, word(16))),
        });
    }
    (found, bytes.clone())
}

/// Segments that are loaded: address, offset in the file, bytes in the file.
fn loads(file: &ElfFile<'_, FileHeader64<Endianness>>) -> Vec<(u64, u64, u64)> {
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, file.data()).unwrap();
    headers
        .iter()
        .filter(|header| header.p_type(endian) == object::elf::PT_LOAD)
        .map(|header| (header.p_vaddr(endian), header.p_offset(endian), header.p_filesz(endian)))
        .collect()
}

fn in_file(file: &ElfFile<'_, FileHeader64<Endianness>>, address: u64) -> u64 {
    let loads = loads(file);
    let inside = |&&(at, _, size): &&(u64, u64, u64)| (at..at + size).contains(&address);
    let (at, offset, _) = loads.iter().find(inside).expect("an address that no segment has");
    address - at + offset
}

fn maps(file: &ElfFile<'_, FileHeader64<Endianness>>, offset: u64) -> usize {
    let page = offset / PAGE;
    let covers = |&&(_, from, size): &&(u64, u64, u64)| {
        size > 0 && (from / PAGE..=(from + size - 1) / PAGE).contains(&page)
    };
    loads(file).iter().filter(covers).count()
}
