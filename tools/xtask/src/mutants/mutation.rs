//! Which orderings a source file names, and how each can be weakened. Text in, text out.

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
    span: Range<usize>,
    replacement: &'static str,
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

/// From which ordering to which, for an access. The bare replacement is for files that import the names of
/// the orderings: nothing says that they import the weaker name, too.
const WEAKER: [(&str, &str, &str); 5] = [
    ("Acquire", "Relaxed", "crate::sync::Ordering::Relaxed"),
    ("Release", "Relaxed", "crate::sync::Ordering::Relaxed"),
    ("AcqRel", "Acquire", "crate::sync::Ordering::Acquire"),
    ("AcqRel", "Release", "crate::sync::Ordering::Release"),
    ("SeqCst", "Relaxed", "crate::sync::Ordering::Relaxed"),
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
        } else if let Some(qualified) = ordering(source, tokens.get(at..).unwrap_or_default()) {
            for (from, to, bare) in WEAKER.into_iter().filter(|(from, ..)| *from == word) {
                let replacement = if qualified { to } else { bare };
                let change = Change::Access { from, to };
                found.push(Mutation::new(source, change, place.clone(), replacement));
            }
        }
        at += 1;
    }
    Ok(found)
}

/// `source` with `mutation` made. The lines keep their numbers.
pub(crate) fn apply(source: &str, mutation: &Mutation) -> String {
    let before = source.get(..mutation.span.start).unwrap_or_default();
    let after = source.get(mutation.span.end..).unwrap_or_default();
    let removed = source.get(mutation.span.clone()).unwrap_or_default();
    let lines = "\n".repeat(removed.matches('\n').count());
    format!("{before}{}{lines}{after}", mutation.replacement)
}

impl Mutation {
    fn new(source: &str, change: Change, span: Range<usize>, replacement: &'static str) -> Self {
        let before = source.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        let equivalent = reason(source, line);
        Self { line: line + 1, column: column + 1, change, equivalent, span, replacement }
    }
}

/// Adds the mutations of a call of `fence`, which has these arguments.
fn add_fence(
    found: &mut Vec<Mutation>,
    source: &str,
    call: Range<usize>,
    arguments: &[Range<usize>],
) {
    let whole = start_of_path(source, call.start)..call.end;
    found.push(Mutation::new(source, Change::FenceRemoved, whole, "()"));
    let is_strongest = |place: &&Range<usize>| source.get((*place).clone()) == Some("SeqCst");
    if let Some(place) = arguments.iter().find(is_strongest) {
        let before = source.get(..place.start).unwrap_or_default();
        let qualified = before.ends_with("::");
        let weaker = if qualified { "AcqRel" } else { "crate::sync::Ordering::AcqRel" };
        found.push(Mutation::new(source, Change::FenceWeakened, place.clone(), weaker));
    }
}

/// Where the path that ends with the name at `start` begins.
fn start_of_path(source: &str, start: usize) -> usize {
    let before = source.get(..start).unwrap_or_default();
    before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_' || c == ':').len()
}

/// Whether the first of these tokens is the ordering of an access, and then, whether it is written `Ordering::word`.
fn ordering(source: &str, tokens: &[Range<usize>]) -> Option<bool> {
    let start = tokens.first()?.start;
    let word = source.get(tokens.first()?.clone())?;
    if !WEAKER.iter().any(|(from, ..)| *from == word) {
        return None;
    }
    let (before, after) = source.split_at_checked(start)?;
    let qualified = before.ends_with("Ordering::");
    let imported = !before.ends_with("::") && imports_orderings(source);
    // The pattern of a match arm orders nothing.
    let end_of_line = start + after.find('\n').unwrap_or(after.len());
    let mut line = tokens.iter().take_while(|place| place.end <= end_of_line);
    let is_pattern = line.any(|place| source.get(place.start..place.start + 2) == Some("=>"));
    ((qualified || imported) && !is_pattern).then_some(qualified)
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
    use super::{Mutation, apply};

    fn find(source: &str) -> Vec<Mutation> {
        super::find(source).unwrap()
    }

    /// Each mutation: its line, what changes, and that line of the mutant.
    fn mutants(source: &str) -> Vec<(usize, String, String)> {
        let mutant = |mutation| {
            let text = apply(source, mutation);
            assert_eq!(text.lines().count(), source.lines().count(), "lines keep their numbers");
            let line = text.lines().nth(mutation.line - 1).unwrap().trim().to_owned();
            (mutation.line, mutation.change.to_string(), line)
        };
        find(source).iter().map(mutant).collect()
    }

    fn changes(source: &str) -> Vec<String> {
        find(source).iter().map(|mutation| mutation.change.to_string()).collect()
    }

    fn reasons(source: &str) -> Vec<Option<String>> {
        find(source).into_iter().map(|mutation| mutation.equivalent).collect()
    }

    fn row(line: usize, change: &str, text: &str) -> (usize, String, String) {
        (line, change.to_owned(), text.to_owned())
    }

    #[test]
    fn a_fence_is_removed_and_weakened() {
        assert_eq!(
            mutants("fn a() {\n    fence(Ordering::SeqCst);\n}\n"),
            [
                row(2, "fence removed", "();"),
                row(2, "fence SeqCst -> AcqRel", "fence(Ordering::AcqRel);"),
            ]
        );
    }

    #[test]
    fn a_fence_goes_with_its_path() {
        assert_eq!(
            mutants("crate::sync::fence(Ordering::Release);"),
            [row(1, "fence removed", "();")]
        );
    }

    #[test]
    fn a_fence_over_several_lines_is_found() {
        assert_eq!(
            changes("fence(\n    Ordering::SeqCst,\n);\nx"),
            ["fence removed", "fence SeqCst -> AcqRel"]
        );
        assert_eq!(
            mutants("fence(\n    Ordering::Acquire,\n);\nx"),
            [row(1, "fence removed", "()")]
        );
    }

    #[test]
    fn what_only_looks_like_a_fence_is_left_alone() {
        assert!(
            find("fn fence(order: Ordering) {}\nlet fence = 1;\ncompiler_fence(x);").is_empty()
        );
    }

    #[test]
    fn accesses_are_weakened() {
        assert_eq!(
            mutants("peer.load(Word::Tail, Ordering::Acquire)"),
            [row(1, "Acquire -> Relaxed", "peer.load(Word::Tail, Ordering::Relaxed)")]
        );
        assert_eq!(
            mutants("own.store(\n    Word::Tail,\n    Ordering::Release,\n);"),
            [row(3, "Release -> Relaxed", "Ordering::Relaxed,")]
        );
    }

    #[test]
    fn a_line_with_two_orderings_gives_one_mutant_at_a_time() {
        assert_eq!(
            mutants("a.swap(1, Ordering::AcqRel, Ordering::Acquire);"),
            [
                row(1, "AcqRel -> Acquire", "a.swap(1, Ordering::Acquire, Ordering::Acquire);"),
                row(1, "AcqRel -> Release", "a.swap(1, Ordering::Release, Ordering::Acquire);"),
                row(1, "Acquire -> Relaxed", "a.swap(1, Ordering::AcqRel, Ordering::Relaxed);"),
            ]
        );
    }

    #[test]
    fn imported_names_are_weakened_to_a_full_path() {
        assert_eq!(
            mutants(
                "use crate::sync::Ordering::{Release, SeqCst};\na.store(1, Release);\nfence(SeqCst);"
            ),
            [
                row(2, "Release -> Relaxed", "a.store(1, crate::sync::Ordering::Relaxed);"),
                row(3, "fence removed", "();"),
                row(3, "fence SeqCst -> AcqRel", "fence(crate::sync::Ordering::AcqRel);"),
            ]
        );
    }

    #[test]
    fn names_that_are_no_orderings_are_left_alone() {
        assert!(find("Step::Release; Release; Acquire::new(); AcquireError").is_empty());
        assert!(find("fn store(&self, word: Word, order: Ordering);").is_empty());
        assert!(find("a.load(Ordering::Relaxed)").is_empty());
    }

    #[test]
    fn imports_comments_and_patterns_are_left_alone() {
        assert!(
            find("use a::Ordering::Release;\n/// [`Ordering::Release`]\n// fence(SeqCst);")
                .is_empty()
        );
        assert!(find("match o { Ordering::Release | Ordering::Acquire => 1, _ => 2 }").is_empty());
        assert_eq!(changes("x => a.load(Ordering::Acquire),"), ["Acquire -> Relaxed"]);
    }

    #[test]
    fn tests_are_left_alone() {
        assert_eq!(
            changes("fence(o);\n#[cfg(test)]\nmod tests { fn a() { fence(o); } }"),
            ["fence removed"]
        );
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
