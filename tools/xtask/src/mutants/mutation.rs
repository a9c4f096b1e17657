//! Which orderings a source file names, and how each can be weakened. Text in, text out.
//!
//! All mutants of a file are built into it at once, each behind `crate::is_mutant(NUMBER)`: a run activates one.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprCall, ExprPath, ImplItemFn, ItemFn, ItemMod, ItemUse, Macro, Pat, Path,
    Token,
};

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
pub(crate) fn find(source: &str) -> syn::Result<Vec<Mutation>> {
    let mut finder = Finder { source, imports_orderings: false, found: Vec::new() };
    finder.visit_file(&syn::parse_file(source)?);
    Ok(finder.found)
}

/// Visits what runs: no import, pattern or item for tests.
struct Finder<'a> {
    source: &'a str,
    /// Whether names of orderings were imported so far.
    imports_orderings: bool,
    found: Vec<Mutation>,
}

impl Finder<'_> {
    fn add(&mut self, change: Change, place: &impl Spanned, weaker: Option<&'static str>) {
        let place = place.span().byte_range();
        self.found.push(Mutation::new(self.source, change, place, weaker));
    }

    /// The ordering that a path names by itself, or by a name that is imported.
    fn ordering(&self, path: &Path) -> Option<String> {
        let mut names = path.segments.iter().rev().map(|segment| segment.ident.to_string());
        let (name, of) = (names.next()?, names.next());
        let is_one = of.map_or(self.imports_orderings, |of| of == "Ordering");
        is_one.then_some(name)
    }
}

impl Visit<'_> for Finder<'_> {
    fn visit_expr_call(&mut self, call: &ExprCall) {
        let Expr::Path(ExprPath { path, .. }) = &*call.func else {
            return visit::visit_expr_call(self, call);
        };
        if path.segments.last().is_none_or(|name| name.ident != "fence") {
            return visit::visit_expr_call(self, call);
        }
        self.add(Change::FenceRemoved, call, None);
        for argument in &call.args {
            if let Expr::Path(ExprPath { path, .. }) = argument
                && self.ordering(path).is_some_and(|name| name == "SeqCst")
            {
                self.add(Change::FenceWeakened, argument, Some("AcqRel"));
            }
        }
    }

    fn visit_expr_path(&mut self, place: &ExprPath) {
        let Some(name) = self.ordering(&place.path) else { return };
        for (from, to) in WEAKER.into_iter().filter(|(from, _)| *from == name) {
            self.add(Change::Access { from, to }, place, Some(to));
        }
    }

    /// Of a macro that has expressions.
    fn visit_macro(&mut self, call: &Macro) {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        if let Ok(arguments) = parser.parse2(call.tokens.clone()) {
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        }
    }

    fn visit_pat(&mut self, _: &Pat) {}

    fn visit_item_use(&mut self, item: &ItemUse) {
        let text = self.source.get(item.span().byte_range());
        self.imports_orderings |= text.is_some_and(|text| text.contains("Ordering::"));
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &ItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_impl_item_fn(self, item);
        }
    }
}

/// Whether an attribute is `[cfg(test)]`, also in the company of others but not negated.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Ok(list) = attribute.meta.require_list() else { return false };
    let text = list.tokens.to_string();
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    list.path.is_ident("cfg")
        && words.clone().any(|word| word == "test")
        && words.all(|word| word != "not")
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
    fn new(source: &str, change: Change, span: Range<usize>, weaker: Option<&'static str>) -> Self {
        let before = source.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        let equivalent = reason(source, line);
        Self { line: line + 1, column: column + 1, change, equivalent, span, weaker }
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

    /// A body of a function and its mutations: of each its line, what changes, and that line of the mutant.
    type Row = (&'static str, &'static [(usize, &'static str, &'static str)]);

    const MUTANTS: [Row; 20] = [
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
        ("trait A { fn store(&self, word: Word, order: Ordering); }", &[]),
        ("a.load(Ordering::Relaxed)", &[]),
        // Imports, comments and patterns.
        ("use a::Ordering::Release; /* fence(SeqCst) */ a(\"fence(o)\");\n// fence(SeqCst);", &[]),
        ("match o { Ordering::Release | Ordering::Acquire => 1, _ => 2 }", &[]),
        (
            "match o { x => a.load(Ordering::Acquire) }",
            &[(1, "Acquire -> Relaxed", "match o { x => a.load(Ordering::Relaxed) }")],
        ),
        // The arguments of a macro.
        ("assert!(fence(o), 1);", &[(1, "fence removed", "assert!((), 1);")]),
        // Tests.
        (
            "fence(o);\n#[cfg(test)]\nmod tests { fn a() { fence(o); } }",
            &[(1, "fence removed", "();")],
        ),
        ("#[cfg(any(test, feature = \"sim\"))]\n#[x]\nfn a() { fence(o) }", &[]),
        ("impl A { #[cfg(test)] fn a() { fence(o) } }", &[]),
        ("#[cfg(not(test))]\nfn a() { fence(o) }", &[(2, "fence removed", "fn a() { () }")]),
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
        for (body, expected) in MUTANTS {
            let source = &format!("fn f() {{ {body}\n}}");
            let mutant = |mutation: &Mutation| {
                let text = switched(source, &[(7, mutation)]);
                assert_eq!(text.lines().count(), source.lines().count(), "{source}");
                let line = on(&text).lines().nth(mutation.line - 1).unwrap().to_owned();
                let line = line.trim_start_matches("fn f() {").trim().to_owned();
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
            all("fn f() { fence(Ordering::SeqCst); }"),
            "fn f() { if !is_mutant(1) { fence((if is_mutant(2) { sync::Ordering::AcqRel } else { Ordering::SeqCst })) }; }"
        );
        assert_eq!(
            all("const A: B = s(Ordering::AcqRel);"),
            "const A: B = s((if is_mutant(1) { sync::Ordering::Acquire } else { (if is_mutant(2) { sync::Ordering::Release } \
             else { Ordering::AcqRel }) }));"
        );
    }

    fn reasons(source: &str) -> Vec<Option<String>> {
        let found = find(&format!("fn f() {{\n{source}\n}}"));
        found.into_iter().map(|mutation| mutation.equivalent).collect()
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
        let found = find("fn f() {\n  fence(o);\n  a.load(Ordering::Acquire); }");
        let places: Vec<_> =
            found.iter().map(|mutation| (mutation.line, mutation.column)).collect();
        assert_eq!(places, [(2, 3), (3, 10)]);
    }
}
