//! What a source of names says of a cgroup, and how a command or a file writes it.

use bellwire_cgroups::scan::{Labels, shortened};
use bellwire_cgroups::{MAX_LABELS, MAX_NAME, check_label, check_name};

/// What a source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Known(Name),
    /// It does not know this cgroup, and will not.
    Unknown,
    /// It does not know yet.
    Later,
    /// There is nothing to collect, whatever its name is.
    Excluded,
}

/// A cgroup's display name and labels; both fit a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: String,
    pub(super) labels: Labels,
}

impl Name {
    /// Returns a name of texts from outside: labels that do not fit are left out, and a name that does not is an error.
    pub(super) fn of(
        name: &str,
        labels: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let name = shortened(name.to_owned());
        check_name(&name).map_err(|fault| format!("the name {name:?} cannot be used: {fault}"))?;
        let fit = |(name, value): &(String, String)| {
            value.len() <= MAX_NAME && check_label(name, value).is_ok()
        };
        Ok(Self { name, labels: labels.filter(fit).take(MAX_LABELS).collect() })
    }

    /// Parses `NAME label="value",other="value"`; in a value `\"` and `\\` stand for `"` and `\`.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim();
        let (name, mut rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let mut labels = Labels::new();
        while !rest.trim().is_empty() {
            let (label, after) = rest.split_once("=\"").ok_or_else(|| malformed(line))?;
            let (value, after) = quoted(after).ok_or_else(|| malformed(line))?;
            labels.push((label.trim().to_owned(), value));
            rest = after.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        Self::of(name, labels.into_iter())
    }
}

fn malformed(line: &str) -> String {
    format!("{line:?} is not NAME label=\"value\",...")
}

/// Returns the text up to the closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_and_labels() {
        let parsed = |line| {
            Name::parse(line).map(|Name { name, labels }| {
                let labels: Vec<_> =
                    labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("{name}|{}", labels.join("|"))
            })
        };
        for (line, wanted) in [
            ("web", "web|"),
            ("  web  \n", "web|"),
            ("web image=\"a:1\"", "web|image=a:1"),
            ("web image=\"a b\",pod=\"x,y=\\\"z\\\\\"", "web|image=a b|pod=x,y=\"z\\"),
            ("web a=\"1\", b=\"\" c=\"3\"", "web|a=1|b=|c=3"),
        ] {
            assert_eq!(parsed(line).as_deref(), Ok(wanted), "{line}");
        }
        for line in ["", "web image", "web image=a", "web image=\"a", "web image=\"a\\"] {
            Name::parse(line).unwrap_err();
        }
        assert_eq!(
            parsed("web a\u{1b}=\"x\",b=\"y\"").as_deref(),
            Ok("web|b=y"),
            "what harms is left out"
        );
        assert_eq!(Name::parse(&"n".repeat(300)).unwrap().name.len(), MAX_NAME);
        Name::parse("a\u{1b}[31m").unwrap_err();
    }
}
