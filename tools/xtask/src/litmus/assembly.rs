//! The paths through functions in GNU assembly for AArch64.

use std::collections::{BTreeSet, HashMap};

use super::test::Instruction;

/// The functions of one file.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    functions: Vec<(String, Function)>,
}

/// A function's blocks, in the order of the file; the first is its start.
#[derive(Debug, Default)]
struct Function {
    blocks: Vec<Block>,
    labels: HashMap<String, usize>,
}

#[derive(Debug, Default)]
struct Block {
    instructions: Vec<Instruction>,
    /// Where it may jump to.
    targets: Vec<String>,
    /// Whether it goes on with the next block.
    falls_through: bool,
}

impl Assembly {
    pub(super) fn parse(text: &str) -> Self {
        let mut assembly = Self::default();
        // The addresses that registers hold, from `add x8, x9, #128`.
        let mut offsets: HashMap<String, u32> = HashMap::new();
        let mut is_inside = false;
        for line in text.lines() {
            if let Some(label) =
                line.strip_suffix(':').filter(|label| !label.starts_with(['\t', ' ']))
            {
                // Marks for debuggers end no block.
                if label.starts_with(".Ltmp") {
                    continue;
                }
                if label.starts_with("_ZN") || label.starts_with("_R") {
                    let mut function = Function::default();
                    function.blocks.push(Block::open());
                    assembly.functions.push((label.to_owned(), function));
                    is_inside = true;
                } else if let Some((_, function)) =
                    assembly.functions.last_mut().filter(|_| is_inside)
                {
                    function.labels.insert(label.to_owned(), function.blocks.len());
                    function.blocks.push(Block::open());
                }
                offsets.clear();
                continue;
            }
            is_inside &= !line.contains(".cfi_endproc");
            if let Some((_, function)) = assembly.functions.last_mut().filter(|_| is_inside) {
                function.line(line.trim(), &mut offsets);
            }
        }
        assembly
    }

    /// Compares a function with the instructions that it must have. On every path that has the first and, after it, the
    /// last of them, the others must be between, in order; and there must be such a path.
    pub(super) fn compare(&self, name: &str, wanted: &[Instruction]) -> Result<(), String> {
        // Mangled in either of rustc's ways, of which the older one adds a hash.
        let mangled = format!("9orderings{}{name}", name.len());
        let is_it = |label: &str| match label.split_once(&mangled) {
            Some((_, rest)) => rest.is_empty() || rest.starts_with("17h"),
            None => false,
        };
        let found = self.functions.iter().find(|(label, _)| is_it(label));
        let Some((_, function)) = found else { return Err("the assembly lacks it".to_owned()) };
        let ([first, ..], [.., last]) = (wanted, wanted) else {
            return Err("the test names no word that the function reaches".to_owned());
        };
        let mut is_found = false;
        for path in function.paths(wanted) {
            let Some(start) = path.iter().position(|one| one == first) else { continue };
            let from = path.get(start..).unwrap_or_default();
            // One that is last alone: a fence after a load must follow it on every path.
            let is_fence = matches!(last, Instruction::Full | Instruction::Loads);
            if !is_fence && !from.iter().skip(1).any(|one| one == last) && wanted.len() > 1 {
                continue;
            }
            is_found = true;
            let mut left = wanted.iter().peekable();
            for one in from {
                left.next_if_eq(&one);
                if one == last && left.peek().is_some() && !is_fence {
                    break;
                }
            }
            if left.peek().is_some() {
                return Err(format!("{path:x?} lacks part of {wanted:x?}"));
            }
        }
        if is_found { Ok(()) } else { Err(format!("no path has {wanted:x?}")) }
    }
}

impl Block {
    fn open() -> Self {
        Self { falls_through: true, ..Self::default() }
    }
}

impl Function {
    fn line(&mut self, line: &str, offsets: &mut HashMap<String, u32>) {
        let Some((mnemonic, operands)) = line.split_once('\t').or(Some((line, ""))) else { return };
        let Some(block) = self.blocks.last_mut() else { return };
        let operands: Vec<&str> = operands.split(',').map(str::trim).collect();
        let number = |text: &str| text.trim_start_matches('#').parse::<u32>().ok();
        let address = |offsets: &HashMap<String, u32>| {
            let at = operands.iter().position(|operand| operand.starts_with('['))?;
            let base = operands.get(at)?.trim_matches(['[', ']']);
            match operands.get(at + 1) {
                Some(offset) => number(offset.trim_end_matches(']')),
                None => offsets.get(base).copied(),
            }
        };
        let one = match mnemonic {
            "dmb" if operands == ["ishld"] => Some(Instruction::Loads),
            "dmb" => Some(Instruction::Full),
            "ldr" => address(offsets).map(Instruction::Load),
            "str" => address(offsets).map(Instruction::Store),
            "stlr" => address(offsets).map(Instruction::Release),
            _ => None,
        };
        block.instructions.extend(one);
        match (mnemonic, operands.as_slice()) {
            ("add", [to, _, offset]) if let Some(offset) = number(offset) => {
                offsets.insert((*to).to_owned(), offset);
            }
            (_, [to, ..]) if !mnemonic.starts_with("st") => drop(offsets.remove(*to)),
            _ => {}
        }
        let is_branch = mnemonic == "b"
            || mnemonic.starts_with("b.")
            || ["cbz", "cbnz", "tbz", "tbnz"].contains(&mnemonic);
        if is_branch {
            block.targets.extend(operands.last().map(|target| (*target).to_owned()));
        }
        if is_branch || ["ret", "br", "brk"].contains(&mnemonic) {
            block.falls_through = mnemonic != "b" && is_branch;
            self.blocks.push(Block::open());
        }
    }

    /// What of `wanted` each path through the function has; a path goes through a block once.
    fn paths(&self, wanted: &[Instruction]) -> BTreeSet<Vec<Instruction>> {
        let mut known = HashMap::new();
        self.paths_from(0, wanted, &mut known, &mut Vec::new())
    }

    fn paths_from(
        &self,
        at: usize,
        wanted: &[Instruction],
        known: &mut HashMap<usize, BTreeSet<Vec<Instruction>>>,
        open: &mut Vec<usize>,
    ) -> BTreeSet<Vec<Instruction>> {
        let Some(block) = self.blocks.get(at).filter(|_| !open.contains(&at)) else {
            return BTreeSet::from([Vec::new()]);
        };
        if let Some(paths) = known.get(&at) {
            return paths.clone();
        }
        open.push(at);
        let jumps = block.targets.iter().filter_map(|target| self.labels.get(target).copied());
        let next: Vec<usize> = jumps.chain(block.falls_through.then_some(at + 1)).collect();
        let mut ends = BTreeSet::new();
        for to in next {
            ends.extend(self.paths_from(to, wanted, known, open));
        }
        if ends.is_empty() {
            ends.insert(Vec::new());
        }
        open.pop();
        let own = block.instructions.iter().filter(|one| wanted.contains(one));
        let own: Vec<Instruction> = own.cloned().collect();
        let paths: BTreeSet<_> =
            ends.into_iter().map(|end| own.iter().cloned().chain(end).collect()).collect();
        known.insert(at, paths.clone());
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::Assembly;
    use crate::litmus::test::Instruction::{Full, Load, Release};

    const COMMIT: &str = "_ZN9orderings6commit17h00E:\n\tadd\tx8, x9, #128\n\tstlr\tx1, [x8]\n\tcbz\tx3, .LBB0_2\n\
        \tdmb\tish\n.LBB0_2:\n\tldr\tx0, [x2, #384]\n\tret\n\t.cfi_endproc\n";

    #[test]
    fn a_fence_on_every_path_is_found() {
        let text = COMMIT.replace("\tcbz\tx3, .LBB0_2\n", "");
        let wanted = [Release(128), Full, Load(384)];
        assert_eq!(Assembly::parse(&text).compare("commit", &wanted), Ok(()));
    }

    #[test]
    fn a_path_around_the_fence_is_a_fault() {
        let wanted = [Release(128), Full, Load(384)];
        let fault = Assembly::parse(COMMIT).compare("commit", &wanted).unwrap_err();
        assert!(fault.contains("lacks part"), "{fault}");
    }

    #[test]
    fn a_plain_store_where_a_release_was_is_a_fault() {
        let text = COMMIT.replace("stlr", "str");
        let fault = Assembly::parse(&text).compare("commit", &[Release(128)]).unwrap_err();
        assert!(fault.contains("no path"), "{fault}");
    }
}
