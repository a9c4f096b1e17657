//! Which orderings a source file names, and how each can be weakened. Text in, text out.
//!
//! All mutants of a file are built into it at once, each behind `crate::is_mutant(NUMBER)`: a run activates one.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

use proc_macro2::LexError;

use super::code::tokens;

/// One weakened ordering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutation {
    /// Counted from 1.
    pub(crate) line: usize,
    /// Counted from 1, in bytes.
    pub(crate) column: usize,
    pub(crate) change: Change,
    /// Why the author says that no test can tell the difference; from a comment at the line.
    pub(crate) equivalent: Option<String>,
    /// What the mutant has in place of the original, or nothing.
    span: Range<usize>,
    weaker: Option<&'static str>,
}

/// What is weakened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The fence is gone.
    FenceRemoved,
    /// `fence(SeqCst)` is `fence(AcqRel)`.
    FenceWeakened,
    /// An access has a weaker ordering.
    Access { from: &'static str, to: &'static str },
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::FenceRemoved => f.pad("fence removed"),
            Self::FenceWeakened => f.pad("fence SeqCst -> AcqRel"),
            Self::Access { from, to } => f.pad(&format!("{from} -> {to}")),
        }
    }
}

/// The comment that opts a line out, at its end or right above it.
const EQUIVALENT: &str = "// mutant: equivalent because ";

/// From which ordering to which, for an access.
const WEAKER: [(&str, &str); 5] = [
    ("Acquire", "Relaxed"),
    ("Release", "Relaxed"),
    ("AcqRel", "Acquire"),
    ("AcqRel", "Release"),
    ("SeqCst", "Relaxed"),
];

/// Every mutation of `source`, in the order of the text.
pub(crate) fn find(source: &str) -> Result<Vec<Mutation>, LexError> {
    let tokens = tokens(source)?;
    let text = |at: usize| tokens.get(at).and_then(|place| source.get(place.clone()));
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(place) = tokens.get(at).cloned() {
        let word = text(at).unwrap_or_default();
        let is_defined = at.checked_sub(1).and_then(text) == Some("fn");
        if word == "fence" && text(at + 1) == Some("(") && !is_defined {
            let mut depth = 0;
            let is_last = |at: &usize| {
                depth += i32::from(text(*at) == Some("(")) - i32::from(text(*at) == Some(")"));
                depth == 0
            };
            let end = (at + 1..tokens.len()).find(is_last).unwrap_or(tokens.len() - 1);
            let arguments = tokens.get(at + 2..end).unwrap_or_default();
            let end_of_call = tokens.get(end).map_or(source.len(), |last| last.end);
            add_fence(&mut found, source, place.start..end_of_call, arguments);
            at = end;
        } else if is_ordering(source, tokens.get(at..).unwrap_or_default()).unwrap_or(false) {
            for (from, to) in WEAKER.into_iter().filter(|(from, _)| *from == word) {
                let change = Change::Access { from, to };
                found.push(Mutation::new(source, change, place.clone(), Some(to)));
            }
        }
        at += 1;
    }
    Ok(found)
}

/// `source` with these mutations, each behind the switch of its number. The lines keep their numbers.
pub(crate) fn switched(source: &str, mutations: &[(usize, &Mutation)]) -> String {
    let mut inserts = Vec::new();
    for (number, Mutation { span, weaker, .. }) in mutations {
        let (before, after) = match weaker {
            Some(to) => {
                let weaker = format!("crate::sync::Ordering::{to}");
                (format!("(if crate::is_mutant({number}) {{ {weaker} }} else {{ "), " })")
            }
            None => (format!("if !crate::is_mutant({number}) {{ "), " }"),
        };
        inserts.extend([(span.start, before), (span.end, after.to_owned())]);
    }
    // What begins at the same place is in the order of the mutations, the outer one first.
    inserts.sort_by_key(|(at, _)| *at);
    let (mut text, mut from) = (String::new(), 0);
    for (at, insert) in inserts {
        text += source.get(from..at).unwrap_or_default();
        text += &insert;
        from = at;
    }
    text + source.get(from..).unwrap_or_default()
}

impl Mutation {
    /// Of the path that ends with the word at `place`.
    fn new(
        source: &str,
        change: Change,
        place: Range<usize>,
        weaker: Option<&'static str>,
    ) -> Self {
        let before = source.get(..place.start).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let span = before.trim_end_matches(is_of_path).len()..place.end;
        let equivalent = reason(source, line);
        Self { line: line + 1, column: column + 1, change, equivalent, span, weaker }
    }
}

/// Adds the mutations of a call of `fence`, which has these arguments.
fn add_fence(
    found: &mut Vec<Mutation>,
    source: &str,
    call: Range<usize>,
    arguments: &[Range<usize>],
) {
    found.push(Mutation::new(source, Change::FenceRemoved, call, None));
    let is_strongest = |place: &&Range<usize>| source.get((*place).clone()) == Some("SeqCst");
    if let Some(place) = arguments.iter().find(is_strongest) {
        found.push(Mutation::new(source, Change::FenceWeakened, place.clone(), Some("AcqRel")));
    }
}

/// Whether the first of these tokens is the ordering of an access.
fn is_ordering(source: &str, tokens: &[Range<usize>]) -> Option<bool> {
    let start = tokens.first()?.start;
    let word = source.get(tokens.first()?.clone())?;
    if !WEAKER.iter().any(|(from, _)| *from == word) {
        return Some(false);
    }
    let (before, after) = source.split_at_checked(start)?;
    let qualified = before.ends_with("Ordering::");
    let imported = !before.ends_with("::") && imports_orderings(source);
    // The pattern of a match arm orders nothing.
    let end_of_line = start + after.find('\n').unwrap_or(after.len());
    let mut line = tokens.iter().take_while(|place| place.end <= end_of_line);
    let is_pattern = line.any(|place| source.get(place.start..place.start + 2) == Some("=>"));
    Some((qualified || imported) && !is_pattern)
}

fn imports_orderings(source: &str) -> bool {
    source.contains("Ordering::{") || source.contains("Ordering::*") || {
        let mut lines = source.lines().map(str::trim);
        lines.any(|line| line.starts_with("use ") && line.contains("Ordering::"))
    }
}

/// The reason given at the line with this index, or in the comment that stands right above it.
fn reason(source: &str, line: usize) -> Option<String> {
    let lines: Vec<&str> = source.lines().collect();
    let (_, trailing) = lines.get(line)?.split_once(EQUIVALENT).unwrap_or_default();
    if !trailing.trim().is_empty() {
        return Some(trailing.trim().to_owned());
    }
    let above = lines.get(..line)?.iter().rev().map(|line| line.trim());
    let mut comment: Vec<&str> = above.take_while(|line| line.starts_with("// ")).collect();
    comment.reverse();
    let marked = comment.iter().position(|line| line.starts_with(EQUIVALENT))?;
    let mut text = comment.into_iter().skip(marked);
    let first = text.next()?.strip_prefix(EQUIVALENT)?;
    let rest = text.filter_map(|line| line.strip_prefix("// "));
    Some(std::iter::once(first).chain(rest).map(str::trim).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::{Mutation, switched};

    fn find(source: &str) -> Vec<Mutation> {
        super::find(source).unwrap()
    }

    /// A source and its mutations: of each its line, what changes, and that line of the mutant.
    type Row = (&'static str, &'static [(usize, &'static str, &'static str)]);

    const MUTANTS: [Row; 16] = [
        // A fence is removed and weakened.
        (
            "fn a() {\n    fence(Ordering::SeqCst);\n}\n",
            &[
                (2, "fence removed", "();"),
                (2, "fence SeqCst -> AcqRel", "fence(Ordering::AcqRel);"),
            ],
        ),
        // With its path, and with all of its lines, which keep their numbers.
        ("crate::sync::fence(Ordering::Release);", &[(1, "fence removed", "();")]),
        ("fence(\n    Ordering::Acquire,\n);\nx", &[(1, "fence removed", "();")]),
        (
            "fence(\n    Ordering::SeqCst,\n);\nx",
            &[(1, "fence removed", "();"), (2, "fence SeqCst -> AcqRel", "Ordering::AcqRel,")],
        ),
        // These only look like one.
        ("fn fence(order: Ordering) {}\nlet fence = 1;\ncompiler_fence(x);", &[]),
        // An access is weakened.
        (
            "peer.load(Word::Tail, Ordering::Acquire)",
            &[(1, "Acquire -> Relaxed", "peer.load(Word::Tail, Ordering::Relaxed)")],
        ),
        (
            "own.store(\n    Word::Tail,\n    Ordering::Release,\n);",
            &[(3, "Release -> Relaxed", "Ordering::Relaxed,")],
        ),
        // One with two orderings is, by one at a time.
        (
            "a.swap(1, Ordering::AcqRel, Ordering::Acquire);",
            &[
                (1, "AcqRel -> Acquire", "a.swap(1, Ordering::Acquire, Ordering::Acquire);"),
                (1, "AcqRel -> Release", "a.swap(1, Ordering::Release, Ordering::Acquire);"),
                (1, "Acquire -> Relaxed", "a.swap(1, Ordering::AcqRel, Ordering::Relaxed);"),
            ],
        ),
        // An imported name is, to a full path.
        (
            "use crate::sync::Ordering::{Release, SeqCst};\na.store(1, Release);\nfence(SeqCst);",
            &[
                (2, "Release -> Relaxed", "a.store(1, Ordering::Relaxed);"),
                (3, "fence removed", "();"),
                (3, "fence SeqCst -> AcqRel", "fence(Ordering::AcqRel);"),
            ],
        ),
        // Names that are no orderings, or that nothing is weaker than.
        ("Step::Release; Release; Acquire::new(); AcquireError", &[]),
        ("fn store(&self, word: Word, order: Ordering);", &[]),
        ("a.load(Ordering::Relaxed)", &[]),
        // Imports, comments and patterns.
        ("use a::Ordering::Release;\n/// [`Ordering::Release`]\n// fence(SeqCst);", &[]),
        ("match o { Ordering::Release | Ordering::Acquire => 1, _ => 2 }", &[]),
        (
            "x => a.load(Ordering::Acquire),",
            &[(1, "Acquire -> Relaxed", "x => a.load(Ordering::Relaxed),")],
        ),
        // Tests.
        (
            "fence(o);\n#[cfg(test)]\nmod tests { fn a() { fence(o); } }",
            &[(1, "fence removed", "();")],
        ),
    ];

    /// What is compiled where the switch of mutant 7 is on.
    fn on(text: &str) -> String {
        let text = text.replace("crate::is_mutant(7)", "ON").replace("crate::sync::", "");
        if let Some((before, rest)) = text.split_once("if !ON { ") {
            return format!("{before}(){}", rest.split_once(" }").unwrap().1);
        }
        let (before, rest) = text.split_once("(if ON { ").unwrap();
        let (weaker, rest) = rest.split_once(" } else { ").unwrap();
        format!("{before}{weaker}{}", rest.split_once(" })").unwrap().1)
    }

    #[test]
    fn every_ordering_and_fence_is_weakened_and_nothing_else() {
        for (source, expected) in MUTANTS {
            let mutant = |mutation: &Mutation| {
                let text = switched(source, &[(7, mutation)]);
                assert_eq!(text.lines().count(), source.lines().count(), "{source}");
                let line = on(&text).lines().nth(mutation.line - 1).unwrap().trim().to_owned();
                (mutation.line, mutation.change.to_string(), line)
            };
            let found: Vec<_> = find(source).iter().map(mutant).collect();
            let expected = expected
                .iter()
                .map(|(line, change, text)| (*line, (*change).to_owned(), (*text).to_owned()));
            assert_eq!(found, expected.collect::<Vec<_>>(), "{source}");
        }
    }

    #[test]
    fn all_mutants_of_a_place_are_built_into_it() {
        let all = |source: &str| {
            let found = find(source);
            switched(source, &(1..).zip(&found).collect::<Vec<_>>()).replace("crate::", "")
        };
        assert_eq!(
            all("fence(Ordering::SeqCst);"),
            "if !is_mutant(1) { fence((if is_mutant(2) { sync::Ordering::AcqRel } else { Ordering::SeqCst })) };"
        );
        assert_eq!(
            all("s(Ordering::AcqRel)"),
            "s((if is_mutant(1) { sync::Ordering::Acquire } else { (if is_mutant(2) { sync::Ordering::Release } \
             else { Ordering::AcqRel }) }))"
        );
    }

    fn reasons(source: &str) -> Vec<Option<String>> {
        find(source).into_iter().map(|mutation| mutation.equivalent).collect()
    }

    #[test]
    fn a_line_opts_out_with_a_reason() {
        let trailing =
            "x.load(Ordering::Acquire); // mutant: equivalent because the fence orders it";
        assert_eq!(reasons(trailing), [Some("the fence orders it".to_owned())]);
        let above = "// Pairs with b.\n// mutant: equivalent because the\n// fence does\nfence(o);\nfence(o);";
        assert_eq!(reasons(above), [Some("the fence does".to_owned()), None]);
    }

    #[test]
    fn an_opt_out_without_a_reason_does_not_count() {
        assert_eq!(reasons("fence(o); // mutant: equivalent"), [None]);
        assert_eq!(reasons("fence(o); // mutant: equivalent because "), [None]);
    }

    #[test]
    fn lines_and_columns_count_from_one() {
        let found = find("fence(o);\n  a.load(Ordering::Acquire);");
        let places: Vec<_> =
            found.iter().map(|mutation| (mutation.line, mutation.column)).collect();
        assert_eq!(places, [(1, 1), (2, 20)]);
    }
}
