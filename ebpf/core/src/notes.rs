//! Finds the probes of an ELF file, in its `stapsdt` notes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// The owner name of a probe's note.
const OWNER: &[u8] = b"stapsdt";
/// The size of the three addresses that precede the texts.
const ADDRESSES: usize = 24;

/// A probe of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) name: String,
    /// Whether its address is in code. A linker that drops an unused function may leave the probe's note behind.
    pub(crate) is_there: bool,
}

/// Returns this provider's probes, in file order; none if it is not a 64-bit ELF file.
pub(crate) fn probes(mut file: &File, provider: &str) -> io::Result<Vec<Probe>> {
    let mut magic = [0; 4];
    file.seek(SeekFrom::Start(0))?;
    if file.read_exact(&mut magic).is_err() || magic != *b"\x7fELF" {
        return Ok(Vec::new());
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(read(file, provider).unwrap_or_default())
}

fn read(file: &File, provider: &str) -> object::Result<Vec<Probe>> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, &cache)?;
    let mut found = Vec::new();
    let Some((_, section)) = sections.section_by_name(endian, b".note.stapsdt") else {
        return Ok(found);
    };
    let code = header
        .program_headers(endian, &cache)?
        .iter()
        .filter(|segment| segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X != 0);
    let code: Vec<_> = code
        .map(|segment| {
            let from = segment.p_vaddr(endian);
            from..from.saturating_add(segment.p_memsz(endian))
        })
        .collect();
    let Some(mut notes) = section.notes(endian, &cache)? else { return Ok(found) };
    while let Some(note) = notes.next()? {
        let Some((addresses, texts)) = note.desc().split_at_checked(ADDRESSES) else { continue };
        let mut texts = texts.split(|byte| *byte == 0);
        if note.name() != OWNER || texts.next() != Some(provider.as_bytes()) {
            continue;
        }
        let name = String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned();
        let at = addresses.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        found.push(Probe { name, is_there: code.iter().any(|range| range.contains(&at)) });
    }
    Ok(found)
}
