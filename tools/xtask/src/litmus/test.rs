//! The text of a litmus test.

/// A litmus test of AArch64 or C.
#[derive(Debug)]
pub(super) struct Litmus {
    pub(super) text: String,
}

/// An instruction that orders, or that reaches a word of a page or a board.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Instruction {
    /// `DMB ISH`: orders everything.
    Full,
    /// `DMB ISHLD`: orders loads before it with everything after.
    Loads,
    /// A load of the word at this offset.
    Load(u32),
    /// A store to it.
    Store(u32),
    /// A store with Release.
    Release(u32),
}

/// The words that a test may name, with their offsets in a page, a board or a broadcast ring.
const WORDS: [(&str, u32); 9] = [
    ("tail", 0x080),
    ("head", 0x100),
    ("want_data", 0x180),
    ("want_space", 0x200),
    ("generation", 0x080),
    ("state", 0x100),
    ("intent", 0x088),
    ("latest", 0x090),
    ("ring_tail", 0x098),
];

impl Litmus {
    pub(super) fn parse(text: &str) -> Self {
        Self { text: text.to_owned() }
    }

    /// The name in the first line.
    pub(super) fn name(&self) -> &str {
        self.text.lines().next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default()
    }

    /// The first sentence of the comment.
    pub(super) fn about(&self) -> &str {
        let comment = self.text.split_once("(* ").map_or("", |(_, rest)| rest);
        comment.lines().next().unwrap_or_default()
    }

    /// The words of the line of the comment that starts with `key`.
    fn list(&self, key: &str) -> &str {
        let line = self.text.lines().find_map(|line| line.trim().strip_prefix(key));
        line.unwrap_or_default().trim_end_matches("*)").trim()
    }

    /// The test without one of its barriers, and which: once for each that `weaken:` names.
    pub(super) fn twins(&self) -> Vec<(String, String)> {
        let mut twins = Vec::new();
        for kind in self.list("weaken:").split_whitespace() {
            // A number after the mnemonic: that one only, counted from the end of the text.
            let name = kind.trim_end_matches(char::is_numeric);
            let only = kind.strip_prefix(name).and_then(|number| number.parse::<usize>().ok());
            let (find, instead) = match name {
                "DMB" => ("DMB ", "NOP "),
                "STLR" => ("STLR ", "STR  "),
                "fence" => ("atomic_thread_fence(", "// ("),
                "release" => ("memory_order_release);", "memory_order_relaxed);"),
                _ => continue,
            };
            let body = self.text.find("*)").unwrap_or(0);
            let places: Vec<usize> = self
                .text
                .match_indices(find)
                .map(|(at, _)| at)
                .filter(|at| *at > body && !self.text[..*at].ends_with("fence("))
                .collect();
            for (place, at) in places.iter().enumerate() {
                if only.is_some_and(|only| only != place + 1) {
                    continue;
                }
                let (before, after) = self.text.split_at(*at);
                let after = after.strip_prefix(find).unwrap_or(after);
                // NOP has no operand.
                let after = match (name, after.strip_prefix("ISHLD"), after.strip_prefix("ISH")) {
                    ("DMB", Some(after), _) => format!("     {after}"),
                    ("DMB", None, Some(after)) => format!("   {after}"),
                    _ => after.to_owned(),
                };
                twins.push((format!("{name} {}", place + 1), format!("{before}{instead}{after}")));
            }
        }
        twins
    }

    /// The functions that `functions:` names, each with what its process does to words of a page or a board.
    pub(super) fn functions(&self) -> Vec<(String, Vec<Instruction>)> {
        let pairs = self.list("functions:").split(',').filter_map(|pair| {
            let (process, function) = pair.trim().strip_prefix('P')?.split_once(' ')?;
            Some((process.parse::<usize>().ok()?, function.to_owned()))
        });
        pairs.map(|(process, function)| (function, self.process(process))).collect()
    }

    fn process(&self, process: usize) -> Vec<Instruction> {
        let mut lines = self.text.lines().skip_while(|line| !line.starts_with(" P0"));
        lines.next();
        let rows = lines.take_while(|line| line.trim_end().ends_with(';'));
        let cells = rows.filter_map(|row| row.trim_end_matches([';', ' ']).split('|').nth(process));
        cells.filter_map(|cell| self.instruction(process, cell.trim())).collect()
    }

    fn instruction(&self, process: usize, text: &str) -> Option<Instruction> {
        let make = match text.split(' ').next()? {
            "DMB" if text.ends_with("ISHLD") => return Some(Instruction::Loads),
            "DMB" => return Some(Instruction::Full),
            "LDR" => Instruction::Load,
            "STR" => Instruction::Store,
            "STLR" => Instruction::Release,
            _ => return None,
        };
        let register = text.split_once('[')?.1.trim_end_matches(']');
        let names = self.text.split_once(&format!("{process}:{register}="))?.1;
        let name = names.split(';').next()?;
        WORDS.iter().find(|(word, _)| *word == name).map(|(_, offset)| make(*offset))
    }
}

#[cfg(test)]
mod tests {
    use super::{Instruction, Litmus};

    const TEST: &str = "AArch64 t\n(* About it.\n   functions: P0 publish, P1 arm\n   weaken: DMB STLR1 *)\n{\n\
        0:X1=tail; 0:X3=want_data;\n1:X1=tail; 1:X3=bytes;\n}\n P0 | P1 ;\n STLR X0,[X1] | DMB ISHLD ;\n \
        DMB ISH | LDR X2,[X3] ;\n LDR X4,[X3] | LDR X4,[X1] ;\nexists (0:X4=0)\n";

    #[test]
    fn each_barrier_is_left_out_once() {
        let twins = Litmus::parse(TEST).twins();
        let without: Vec<&str> = twins.iter().map(|(barrier, _)| barrier.as_str()).collect();
        assert_eq!(without, ["DMB 1", "DMB 2", "STLR 1"]);
        assert!(twins[0].1.contains("STLR X0,[X1] | NOP") && twins[0].1.contains("DMB ISH |"));
        assert!(twins[1].1.contains("NOP     | LDR X2"));
        assert!(twins[1].1.contains("DMB ISHLD") && !twins[1].1.contains("DMB ISH "));
        assert!(twins[2].1.contains(" STR  X0,[X1]"));
    }

    #[test]
    fn instructions_are_read_from_the_accesses_of_a_litmus_process() {
        use Instruction::{Full, Load, Loads, Release};
        let functions = Litmus::parse(TEST).functions();
        assert_eq!(functions[0], ("publish".to_owned(), vec![Release(0x80), Full, Load(0x180)]));
        assert_eq!(functions[1], ("arm".to_owned(), vec![Loads, Load(0x80)]));
    }
}
