//! `ci/budget.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml_edit::{DocumentMut, Item, de, value};

use super::counts::{Counted, Tools};
use crate::error::Error;

const FILE: &str = "ci/budget.toml";

/// What may be spent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Budget {
    #[serde(skip)]
    path: PathBuf,
    #[serde(skip)]
    document: DocumentMut,
    pub(crate) taken_with: Tools,
    pub(crate) margin_percent: Margins,
    /// Instructions of one operation, by name.
    pub(crate) instructions: BTreeMap<String, f64>,
    pub(crate) ratios: BTreeMap<String, Allowed>,
}

/// By how many percent a count may exceed its budget, taken with the same tools and with others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Margins {
    pub(crate) same_tools: f64,
    pub(crate) other_tools: f64,
}

/// A ratio's budget.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Allowed {
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

    pub(super) fn parse(path: PathBuf, text: &str) -> Result<Self, Error> {
        let fault = |what: String| Error::Budget { path: path.clone(), what };
        let document: DocumentMut =
            text.parse().map_err(|error: toml_edit::TomlError| fault(error.to_string()))?;
        let budget: Self =
            de::from_document(document.clone()).map_err(|error| fault(error.to_string()))?;
        match budget.instructions.iter().find(|(_, count)| **count <= 0.0) {
            Some((name, _)) => Err(fault(name.clone())),
            None => Ok(Self { path, document, ..budget }),
        }
    }

    /// Replaces the counts and what they were taken with; comments and ratios stay.
    pub(crate) fn update(&mut self, tools: &Tools, counted: &[Counted]) -> Result<(), Error> {
        let text = self.updated(tools, counted);
        for Counted { name, instructions } in counted {
            let old = self.instructions.get(name);
            let old = old.map_or_else(|| "new".to_owned(), |old| format!("was {old:.0}"));
            match instructions {
                Some(new) => println!("{name:<24} {:.0} ({old})", new.round()),
                None => println!("{name:<24} kept: too few samples ({old})"),
            }
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
            let Some(instructions) = instructions else { continue };
            #[expect(clippy::cast_possible_truncation, reason = "a count fits")]
            let rounded = instructions.round() as i64;
            set(&mut self.document, "instructions", name, value(rounded));
        }
        if let Some(table) = self.document.get_mut("instructions").and_then(Item::as_table_mut) {
            table.retain(|name, _| counted.iter().any(|one| one.name == name));
        }
        self.document.to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
        # Kept.\n\
        [taken-with]\nrustc = \"rustc 1\"\nvalgrind = \"valgrind-1\"\nlibc = \"libc 1\"\n\n\
        [margin-percent]\nsame-tools = 3\nother-tools = 10.5\n\n\
        [instructions]\ncall = 1000 # of 64 B\nkept = 3\nold = 5\n\n\
        [ratios.hot-call]\nmost = 2.0\nrounds = 8\n";

    fn budget(text: &str) -> Result<Budget, Error> {
        Budget::parse(PathBuf::from(FILE), text)
    }

    #[test]
    fn a_budget_file_is_read_whole() {
        let budget = budget(TEXT).unwrap();
        let margins = &budget.margin_percent;
        assert_eq!((margins.same_tools, margins.other_tools), (3.0, 10.5));
        let counts =
            [("call".to_owned(), 1000.0), ("kept".to_owned(), 3.0), ("old".to_owned(), 5.0)];
        assert_eq!(budget.instructions, counts.into());
        let hot = Allowed { most: 2.0, rounds: 8 };
        assert_eq!(budget.ratios, [("hot-call".to_owned(), hot)].into());
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
    fn an_update_keeps_comments_ratios_and_uncounted_figures_and_drops_the_others() {
        let mut budget = budget(TEXT).unwrap();
        let tools = Tools { rustc: "rustc 2".to_owned(), ..budget.taken_with.clone() };
        let counted = [("call", Some(1100.4)), ("kept", None), ("new", Some(7.0))]
            .map(|(name, instructions)| Counted { name: name.to_owned(), instructions });
        let text = budget.updated(&tools, &counted);
        let expected = TEXT
            .replace("rustc 1", "rustc 2")
            .replace("1000 # of", "1100 # of")
            .replace("old = 5", "new = 7");
        assert_eq!(text, expected);
    }
}
