//! The tokens of a source file, without what does not run.

use std::ops::Range;

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

/// Where the words, marks and brackets of `source` are, without `use` items and items for tests.
pub(crate) fn tokens(source: &str) -> Result<Vec<Range<usize>>, LexError> {
    let mut places = Vec::new();
    add(source.parse()?, &mut places);
    Ok(places)
}

fn add(stream: TokenStream, places: &mut Vec<Range<usize>>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            // But not the `use<…>` of a type.
            TokenTree::Ident(word)
                if word == "use" && !trees.peek().is_some_and(|next| is_mark(next, '<')) =>
            {
                trees.by_ref().find(|tree| is_mark(tree, ';'));
            }
            TokenTree::Punct(mark)
                if mark.as_char() == '#' && trees.peek().is_some_and(is_for_tests) =>
            {
                // Up to the `;` or the body of the item, or the end of what it is in.
                let is_body = |tree: &TokenTree| matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
                trees.by_ref().find(|tree| is_mark(tree, ';') || is_body(tree));
            }
            TokenTree::Group(group) => {
                places.push(group.span_open().byte_range());
                add(group.stream(), places);
                places.push(group.span_close().byte_range());
            }
            TokenTree::Literal(_) => {}
            tree => places.push(tree.span().byte_range()),
        }
    }
}

fn is_mark(tree: &TokenTree, mark: char) -> bool {
    matches!(tree, TokenTree::Punct(found) if found.as_char() == mark)
}

/// Whether an attribute is `[cfg(test)]`, also in the company of others but not negated.
fn is_for_tests(attribute: &TokenTree) -> bool {
    let text = attribute.to_string();
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.first() == Some(&"cfg") && words.contains(&"test") && !words.contains(&"not")
}

#[cfg(test)]
mod tests {
    use super::tokens;

    /// What is left of `source`, with single spaces.
    fn left(source: &str) -> String {
        let places = tokens(source).unwrap();
        places.into_iter().map(|place| &source[place]).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_left_out() {
        assert_eq!(left("a // fence(SeqCst)\nb /* c /* nested */ d */ e"), "a b e");
        assert_eq!(left("é \"x // \\\" y\" b r#\"x \" y\"# '\"' 'é' 7 c"), "é b c");
    }

    #[test]
    fn imports_are_left_out() {
        assert_eq!(left("pub use a::{\n  Ordering::Release,\n  fence};\nx"), "pub x");
        assert_eq!(left("fn a() -> B + use<'_> { c }"), "fn a ( ) - > B + use < ' _ > { c }");
    }

    #[test]
    fn items_for_tests_are_left_out() {
        assert_eq!(left("a\n#[cfg(test)]\nmod tests { fn b() { c } }\nd"), "a d");
        let several = "#[cfg(any(test, feature = \"sim\"))]\n#[x]\nfn b(c: [u8; 2]) { d }\ne";
        assert_eq!(left(several), "e");
        assert_eq!(left("#[cfg(test)] mod tests; a"), "a");
        assert_eq!(left("struct A { #[cfg(test)] b: u8 } c"), "struct A { } c");
    }

    #[test]
    fn items_for_other_configurations_are_code() {
        assert_eq!(left("#[cfg(not(test))] a"), "# [ cfg ( not ( test ) ) ] a");
        assert_eq!(left("#[cfg(loom)] a"), "# [ cfg ( loom ) ] a");
    }
}
