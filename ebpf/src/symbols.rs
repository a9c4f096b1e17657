//! The names of functions at addresses of processes and of the kernel.

use std::collections::HashMap;
use std::fs;

use bellwire_trace_core::processes;
use object::{Object, ObjectSymbol, SymbolKind};

/// The functions of a file or of the kernel: addresses, ascending, sizes (0 if not known), and names.
type Functions = Vec<(u64, u64, String)>;

/// Names that were looked up, since many stacks have the same functions.
#[derive(Default)]
pub(crate) struct Symbols {
    kernel: Option<Functions>,
    files: HashMap<(String, u64), ElfFunctions>,
    user: HashMap<(u32, u64), String>,
}

#[derive(Default)]
struct ElfFunctions {
    functions: Functions,
    /// Segments: offset in the file, size, address.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    /// Returns the name of a function of the kernel.
    pub(crate) fn kernel(&mut self, at: u64) -> String {
        name(self.kernel.get_or_insert_with(kernel_functions), at, "[kernel]")
    }

    /// Returns the name of a function of a process, or of its file where it has no symbols.
    pub(crate) fn user(&mut self, pid: u32, at: u64) -> String {
        if let Some(known) = self.user.get(&(pid, at)) {
            return known.clone();
        }
        let found = self.find(pid, at).unwrap_or_else(|| "[unknown]".to_owned());
        self.user.insert((pid, at), found.clone());
        found
    }

    fn find(&mut self, pid: u32, at: u64) -> Option<String> {
        let (map, offset) = processes::map_at(pid, at)?;
        let file = self.files.entry(map.file.clone()).or_insert_with(|| {
            let file = processes::open_mapped(pid, &map);
            file.and_then(|mut file| read(&mut file)).unwrap_or_default()
        });
        let short = map.name.rsplit('/').next().unwrap_or(&map.name).to_owned();
        let inside = |(from, size, _): &&(u64, u64, u64)| (*from..*from + *size).contains(&offset);
        let Some((from, _, address)) = file.segments.iter().find(inside) else {
            return Some(short);
        };
        Some(name(&file.functions, offset - from + address, &short))
    }
}

fn name(functions: &Functions, at: u64, otherwise: &str) -> String {
    let next = functions.partition_point(|(from, ..)| *from <= at);
    let found = next.checked_sub(1).and_then(|index| functions.get(index));
    let found = found.filter(|(from, size, _)| *size == 0 || at - from < *size);
    found.map_or_else(|| otherwise.to_owned(), |(.., name)| name.clone())
}

fn kernel_functions() -> Functions {
    let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut all: Functions = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let at = u64::from_str_radix(words.next()?, 16).ok().filter(|at| *at > 0)?;
            let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
            // Without the module.
            let name = words.next().unwrap_or_default().split('\t').next().unwrap_or_default();
            is_code.then(|| (at, 0, name.to_owned()))
        })
        .collect();
    all.sort_unstable();
    all
}

fn read(file: &mut fs::File) -> Option<ElfFunctions> {
    use object::ObjectSegment;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(file, &mut bytes).ok()?;
    let elf = object::File::parse(bytes.as_slice()).ok()?;
    let symbols = elf.symbols().chain(elf.dynamic_symbols());
    let code = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() > 0);
    let mut functions: Functions = code
        .filter_map(|symbol| {
            let name = rustc_demangle::demangle(symbol.name().ok()?);
            Some((symbol.address(), symbol.size(), format!("{name:#}")))
        })
        .collect();
    functions.sort_unstable();
    let segments = elf.segments().map(|segment| {
        let (offset, size) = segment.file_range();
        (offset, size, segment.address())
    });
    Some(ElfFunctions { functions, segments: segments.collect() })
}
