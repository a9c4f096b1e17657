//! Finds the probes of an ELF file, in its `stapsdt` notes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use object::Endianness;
use object::elf::FileHeader64;
use object::read::ReadCache;
use object::read::elf::{FileHeader, SectionHeader};

/// The owner name of a probe's note.
const OWNER: &[u8] = b"stapsdt";
/// The size of the three addresses that precede the texts.
const ADDRESSES: usize = 24;

/// Returns the names of this provider's probes, in file order; none if it is not a 64-bit ELF file.
pub(crate) fn probes(mut file: &File, provider: &str) -> io::Result<Vec<String>> {
    let mut magic = [0; 4];
    if file.read_exact(&mut magic).is_err() || magic != *b"\x7fELF" {
        return Ok(Vec::new());
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(read(file, provider).unwrap_or_default())
}

fn read(file: &File, provider: &str) -> object::Result<Vec<String>> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, &cache)?;
    let mut found = Vec::new();
    let Some((_, section)) = sections.section_by_name(endian, b".note.stapsdt") else {
        return Ok(found);
    };
    let Some(mut notes) = section.notes(endian, &cache)? else { return Ok(found) };
    while let Some(note) = notes.next()? {
        if note.name() != OWNER {
            continue;
        }
        let mut texts = note.desc().get(ADDRESSES..).unwrap_or_default().split(|byte| *byte == 0);
        if texts.next() == Some(provider.as_bytes()) {
            let name = texts.next().unwrap_or_default();
            found.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(found)
}
