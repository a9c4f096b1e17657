//! A source file without what does not run: enough of Rust's lexis to find orderings, and no more.

use std::ops::Range;

/// `source` with comments and literals, `use` items and items for tests blanked. Every remaining byte keeps its
/// position.
pub(crate) fn code_only(source: &str) -> String {
    let mut code = source.as_bytes().to_vec();
    let mut at = 0;
    while at < code.len() {
        let end = end_of_comment_or_literal(source.as_bytes(), at);
        blank(&mut code, at..end);
        at = end.max(at + 1);
    }
    for item in uses(&code) {
        blank(&mut code, item);
    }
    for item in test_items(&code) {
        blank(&mut code, item);
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// The identifiers and numbers of `code`, each with its place.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let tail = code.get(rest..)?;
        let start = rest + tail.find(is_word)?;
        let word = code.get(start..)?;
        let word = word.get(..word.find(|c| !is_word(c)).unwrap_or(word.len()))?;
        rest = start + word.len();
        Some((start, word))
    })
}

/// Just behind the bracket that closes the one at `open`; the end of the code if none does.
pub(crate) fn end_of_bracket(code: &[u8], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn byte(source: &[u8], at: usize) -> u8 {
    source.get(at).copied().unwrap_or(0)
}

fn blank(code: &mut [u8], range: Range<usize>) {
    for byte in code.get_mut(range).into_iter().flatten() {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// Where the comment or literal that begins at `at` ends; `at` if none begins there.
fn end_of_comment_or_literal(source: &[u8], at: usize) -> usize {
    match (byte(source, at), byte(source, at + 1)) {
        (b'/', b'/') => find(source, at, b"\n").unwrap_or(source.len()),
        (b'/', b'*') => end_of_block_comment(source, at),
        (b'"', _) => end_of_quoted(source, at, b'"'),
        (b'r', b'"' | b'#') => end_of_raw_string(source, at),
        // 'a' is a character, 'a without a closing quote is a lifetime.
        (b'\'', b'\\') => end_of_quoted(source, at, b'\''),
        (b'\'', first) => {
            let close = at + 1 + width(first);
            if byte(source, close) == b'\'' { close + 1 } else { at }
        }
        _ => at,
    }
}

fn find(source: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let tail = source.get(from..)?;
    tail.windows(what.len()).position(|window| window == what).map(|offset| from + offset)
}

/// Block comments nest.
fn end_of_block_comment(source: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < source.len() {
        match (byte(source, at), byte(source, at + 1)) {
            (b'/', b'*') => depth += 1,
            (b'*', b'/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    source.len()
}

fn end_of_quoted(source: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < source.len() {
        match byte(source, at) {
            b'\\' => at += 2,
            other if other == quote => return at + 1,
            _ => at += 1,
        }
    }
    source.len()
}

/// `r"…"` and `r#"…"#`; not `r#name`, and not the `r` at the end of a word.
fn end_of_raw_string(source: &[u8], start: usize) -> usize {
    let before = |back: usize| start.checked_sub(back).map_or(b' ', |at| byte(source, at));
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let prefixed = matches!(before(1), b'b' | b'c') && !is_word(before(2));
    if is_word(before(1)) && !prefixed {
        return start;
    }
    let hashes = source.iter().skip(start + 1).take_while(|&&byte| byte == b'#').count();
    if byte(source, start + 1 + hashes) != b'"' {
        return start;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    find(source, start + 2 + hashes, &close).map_or(source.len(), |at| at + close.len())
}

/// The length of the UTF-8 sequence that begins with `first`.
fn width(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

/// `use …;`, but not the `use<…>` of a type.
fn uses(code: &[u8]) -> Vec<Range<usize>> {
    let text = String::from_utf8_lossy(code);
    words(&text)
        .filter(|&(start, word)| word == "use" && next_is_not(code, start + 3, b'<'))
        .map(|(start, _)| start..find(code, start, b";").unwrap_or(code.len()))
        .collect()
}

fn next_is_not(code: &[u8], from: usize, what: u8) -> bool {
    code.iter().skip(from).find(|byte| !byte.is_ascii_whitespace()) != Some(&what)
}

/// Each `#[cfg(test)]`, also in the company of others but not negated, with the item below it.
fn test_items(code: &[u8]) -> Vec<Range<usize>> {
    let mut items = Vec::new();
    let mut at = 0;
    while let Some(start) = find(code, at, b"#[cfg(") {
        at = end_of_bracket(code, start + 1);
        let attribute =
            String::from_utf8_lossy(code.get(start..at).unwrap_or_default()).into_owned();
        let names = |what| words(&attribute).any(|(_, word)| word == what);
        if names("test") && !names("not") {
            let end = end_of_item(code, at);
            items.push(start..end);
            at = end;
        }
    }
    items
}

/// Behind the `;` or the body of the item at `start`, or before the bracket that closes what it is in.
fn end_of_item(code: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < code.len() {
        match byte(code, at) {
            b';' => return at + 1,
            b'{' => return end_of_bracket(code, at),
            b'(' | b'[' => at = end_of_bracket(code, at),
            b'}' | b')' | b']' => return at,
            _ => at += 1,
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::{code_only, words};

    /// What is left of `source`, with single spaces.
    fn left(source: &str) -> String {
        let code = code_only(source);
        assert_eq!(code.len(), source.len(), "every byte stays in place");
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blanked() {
        assert_eq!(left("a // fence(SeqCst)\nb /* c /* nested */ d */ e"), "a b e");
        assert_eq!(left("/// Ordering::Release\n//! more\nx"), "x");
    }

    #[test]
    fn literals_are_blanked() {
        assert_eq!(left(r#"a "x // \" y" b"#), "a b");
        assert_eq!(left(r##"a r#"x " y"# b"##), "a b");
        assert_eq!(left(r##"a br"x\" b"##), "a b b");
        assert_eq!(left("a '\"' b '\\'' c 'é' d"), "a b c d");
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        assert_eq!(
            left("fn a<'x>(y: &'x u8) { r#type; for_r\"s\" }"),
            "fn a<'x>(y: &'x u8) { r#type; for_r }"
        );
    }

    #[test]
    fn imports_are_blanked() {
        assert_eq!(left("pub use a::{\n  Ordering::Release,\n  fence};\nx"), "pub ; x");
        assert_eq!(left("fn a() -> impl B + use<'_> { c }"), "fn a() -> impl B + use<'_> { c }");
    }

    #[test]
    fn items_for_tests_are_blanked() {
        assert_eq!(left("a\n#[cfg(test)]\nmod tests { fn b() { c } }\nd"), "a d");
        assert_eq!(
            left("#[cfg(any(test, feature = \"sim\"))]\n#[x]\nfn b(c: [u8; 2]) { d }\ne"),
            "e"
        );
        assert_eq!(left("#[cfg(test)] mod tests; a"), "a");
        assert_eq!(left("struct A { #[cfg(test)] b: u8 } c"), "struct A { } c");
    }

    #[test]
    fn items_for_other_configurations_are_code() {
        assert_eq!(left("#[cfg(not(test))] fn a() {}"), "#[cfg(not(test))] fn a() {}");
        assert_eq!(left("#[cfg(loom)] fn a() {}"), "#[cfg(loom)] fn a() {}");
    }

    #[test]
    fn words_come_with_their_places() {
        let found: Vec<_> = words("a.b_1(éa)").collect();
        assert_eq!(found, [(0, "a"), (2, "b_1"), (6, "éa")]);
    }
}
