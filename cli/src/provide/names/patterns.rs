//! Lists of patterns that an operator writes.

use std::str::FromStr;

/// Patterns in order: the first that matches a text decides. `*` stands for any characters, also none; `!` before a pattern means
/// no. What none matches is not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patterns(Vec<(bool, String)>);

impl FromStr for Patterns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pattern = |word: &str| match word.strip_prefix('!') {
            Some(word) => (false, word.to_owned()),
            None => (true, word.to_owned()),
        };
        match text.split_whitespace().map(pattern).collect::<Vec<_>>() {
            patterns if patterns.is_empty() => {
                Err("there is no pattern; * matches everything".into())
            }
            patterns => Ok(Self(patterns)),
        }
    }
}

impl Patterns {
    /// Returns whether a text is meant.
    pub(crate) fn mean(&self, text: &str) -> bool {
        let first = self.0.iter().find(|(_, pattern)| matches(pattern, text));
        first.is_some_and(|(yes, _)| *yes)
    }
}

/// Each piece between two `*` is searched behind the one before: the earliest place leaves most for the others.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, pattern)) = pattern.split_once('*') else { return pattern == text };
    let (middle, end) = pattern.rsplit_once('*').unwrap_or(("", pattern));
    let inside = text.strip_prefix(start).and_then(|text| text.strip_suffix(end));
    let Some(mut rest) = inside else { return false };
    middle.split('*').all(|piece| match rest.split_once(piece) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_that_matches_decides() {
        for (patterns, text, wanted) in [
            ("*", "", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("*.mount", "/x.mount", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("a*a", "a", false),
            ("**", "x", true),
            ("/system.slice/*", "/system.slice/a/b", true),
            ("!*.mount *", "/x.mount", false),
            ("!*.mount *", "/x.service", true),
            ("/a !*", "/b", false),
            ("/a", "/b", false),
            ("!/a", "/b", false),
        ] {
            let parsed: Patterns = patterns.parse().unwrap();
            assert_eq!(parsed.mean(text), wanted, "{patterns}: {text}");
        }
        " ".parse::<Patterns>().unwrap_err();
    }
}
