//! `ci/budget.toml`.

use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, value};

use super::counts::{Counted, Tools};
use crate::error::Error;

const FILE: &str = "ci/budget.toml";

/// What may be spent.
#[derive(Debug)]
pub(crate) struct Budget {
    path: PathBuf,
    document: DocumentMut,
    /// What the counts were taken with.
    pub(crate) tools: Tools,
    /// By how many percent a count may exceed its budget, taken with the same tools and with others.
    pub(crate) margin: f64,
    pub(crate) margin_of_other_tools: f64,
    /// Instructions of one operation, by name.
    pub(crate) counts: Vec<(String, f64)>,
    pub(crate) ratios: Vec<Allowed>,
}

/// A ratio's budget.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Allowed {
    pub(crate) name: String,
    /// The median, at most.
    pub(crate) most: f64,
    /// With fewer rounds than this it is not judged.
    pub(crate) rounds: u64,
}

impl Budget {
    pub(crate) fn read(root: &Path) -> Result<Self, Error> {
        let path = root.join(FILE);
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        Self::parse(path, &text)
    }

    fn parse(path: PathBuf, text: &str) -> Result<Self, Error> {
        let fault = |what: &str| Error::Budget { path: path.clone(), what: what.to_owned() };
        let document: DocumentMut =
            text.parse().map_err(|error: toml_edit::TomlError| fault(&error.to_string()))?;
        let table = |name: &str| document.get(name).and_then(Item::as_table);
        let taken = table("taken-with").ok_or_else(|| fault("no table taken-with"))?;
        let word = |name: &str| {
            let word = taken.get(name).and_then(Item::as_str);
            word.map(str::to_owned).ok_or_else(|| fault("a tool is missing in taken-with"))
        };
        let tools =
            Tools { rustc: word("rustc")?, valgrind: word("valgrind")?, libc: word("libc")? };
        let margins = table("margin-percent").ok_or_else(|| fault("no table margin-percent"))?;
        let margin = |name: &str| number(margins, name).ok_or_else(|| fault("a margin is missing"));
        let (margin, margin_of_other_tools) = (margin("same-tools")?, margin("other-tools")?);
        let instructions = table("instructions").ok_or_else(|| fault("no table instructions"))?;
        let mut counts = Vec::new();
        for (name, _) in instructions {
            let count = number(instructions, name).filter(|count| *count > 0.0);
            counts.push((name.to_owned(), count.ok_or_else(|| fault(name))?));
        }
        let mut ratios = Vec::new();
        for (name, item) in table("ratios").ok_or_else(|| fault("no table ratios"))? {
            let allowed = item.as_table().and_then(|table| {
                let rounds = table.get("rounds")?.as_integer()?;
                let (most, rounds) = (number(table, "most")?, u64::try_from(rounds).ok()?);
                Some(Allowed { name: name.to_owned(), most, rounds: rounds.max(1) })
            });
            ratios.push(allowed.ok_or_else(|| fault(name))?);
        }
        Ok(Self { path, document, tools, margin, margin_of_other_tools, counts, ratios })
    }

    /// Replaces the counts and what they were taken with; comments and ratios stay.
    pub(crate) fn update(&mut self, tools: &Tools, counted: &[Counted]) -> Result<(), Error> {
        let text = self.updated(tools, counted);
        for Counted { name, instructions } in counted {
            let old = self.counts.iter().find(|(known, _)| known == name);
            let old = old.map_or_else(|| "new".to_owned(), |(_, old)| format!("was {old:.0}"));
            println!("{name:<24} {:.0} ({old})", instructions.round());
        }
        fs::write(&self.path, text).map_err(Error::file("write", &self.path))?;
        println!("summary: {} written: commit it, and say why", self.path.display());
        Ok(())
    }

    fn updated(&mut self, tools: &Tools, counted: &[Counted]) -> String {
        for (name, text) in
            [("rustc", &tools.rustc), ("valgrind", &tools.valgrind), ("libc", &tools.libc)]
        {
            set(&mut self.document, "taken-with", name, value(text));
        }
        for Counted { name, instructions } in counted {
            #[expect(clippy::cast_possible_truncation, reason = "a count fits")]
            let rounded = instructions.round() as i64;
            set(&mut self.document, "instructions", name, value(rounded));
        }
        if let Some(table) = self.document.get_mut("instructions").and_then(Item::as_table_mut) {
            table.retain(|name, _| counted.iter().any(|one| one.name == name));
        }
        self.document.to_string()
    }

    /// For tests.
    #[cfg(test)]
    pub(crate) fn of(tools: Tools, margin: f64, other: f64, counts: &[(&str, f64)]) -> Self {
        Self {
            path: PathBuf::new(),
            document: DocumentMut::new(),
            tools,
            margin,
            margin_of_other_tools: other,
            counts: counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect(),
            ratios: Vec::new(),
        }
    }
}

/// Sets a value and keeps the comment beside it.
fn set(document: &mut DocumentMut, table: &str, name: &str, new: Item) {
    let Some(table) = document.get_mut(table).and_then(Item::as_table_mut) else { return };
    let old = table.get(name).and_then(Item::as_value).map(|old| old.decor().clone());
    table.insert(name, new);
    if let (Some(decor), Some(new)) = (old, table.get_mut(name).and_then(Item::as_value_mut)) {
        *new.decor_mut() = decor;
    }
}

fn number(table: &Table, name: &str) -> Option<f64> {
    let item = table.get(name)?;
    #[expect(clippy::cast_precision_loss, reason = "no budget is as large as that")]
    item.as_float().or_else(|| item.as_integer().map(|whole| whole as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
        # Kept.\n\
        [taken-with]\nrustc = \"rustc 1\"\nvalgrind = \"valgrind-1\"\nlibc = \"libc 1\"\n\n\
        [margin-percent]\nsame-tools = 3\nother-tools = 10.5\n\n\
        [instructions]\ncall = 1000 # of 64 B\nold = 5\n\n\
        [ratios.hot-call]\nmost = 2.0\nrounds = 8\n";

    fn budget(text: &str) -> Result<Budget, Error> {
        Budget::parse(PathBuf::from(FILE), text)
    }

    #[test]
    fn all_of_it_is_read() {
        let budget = budget(TEXT).unwrap();
        assert_eq!((budget.margin, budget.margin_of_other_tools), (3.0, 10.5));
        assert_eq!(budget.counts, [("call".to_owned(), 1000.0), ("old".to_owned(), 5.0)]);
        let hot = Allowed { name: "hot-call".to_owned(), most: 2.0, rounds: 8 };
        assert_eq!(budget.ratios, [hot]);
    }

    #[test]
    fn a_file_with_a_fault_is_refused() {
        for (part, other) in [
            ("most = 2.0", "most = \"much\""),
            ("rounds = 8", "rounds = -8"),
            ("call = 1000", "call = 0"),
            ("[instructions]", "[instruction]"),
            ("same-tools = 3", "same = 3"),
            ("libc = ", "glibc = "),
        ] {
            assert!(TEXT.contains(part));
            assert!(budget(&TEXT.replace(part, other)).is_err(), "{other}");
        }
    }

    #[test]
    fn an_update_keeps_comments_and_ratios_and_drops_what_is_gone() {
        let mut budget = budget(TEXT).unwrap();
        let tools = Tools { rustc: "rustc 2".to_owned(), ..budget.tools.clone() };
        let counted = [("call", 1100.4), ("new", 7.0)]
            .map(|(name, instructions)| Counted { name: name.to_owned(), instructions });
        let text = budget.updated(&tools, &counted);
        let expected = TEXT
            .replace("rustc 1", "rustc 2")
            .replace("1000 # of", "1100 # of")
            .replace("old = 5", "new = 7");
        assert_eq!(text, expected);
    }
}
