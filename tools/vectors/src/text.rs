//! The format of the files: cases of `key value` lines, with an empty line behind each.

use std::fmt::{Debug, Display, Write};

/// Bytes of a line.
const PER_LINE: usize = 32;

/// Lines that belong together; the first one is `case NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    pub lines: Vec<(String, String)>,
}

impl Case {
    pub fn new(name: impl Display) -> Self {
        Self { name: name.to_string(), lines: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: impl Display) -> Self {
        self.push(key, value);
        self
    }

    pub fn push(&mut self, key: &str, value: impl Display) {
        self.lines.push((key.to_owned(), value.to_string()));
    }

    /// Adds bytes, in as many lines as it takes: their values belong together.
    #[must_use]
    pub fn bytes(mut self, key: &str, bytes: &[u8]) -> Self {
        bytes.chunks(PER_LINE).for_each(|bytes| self.push(key, hex(bytes)));
        self
    }

    /// Adds the bytes of a memory that are not as `before`, which has as many or none: zeroes then. Each line has its offset.
    pub fn memory(&mut self, key: &str, bytes: &[u8], before: &[u8]) {
        for (nth, line) in bytes.chunks(PER_LINE).enumerate() {
            let at = nth * PER_LINE;
            let before = before.get(at..at + line.len()).unwrap_or(&[0; PER_LINE]);
            if *line != before[..line.len()] {
                self.push(key, format_args!("{at:#06x} {}", hex(line)));
            }
        }
    }

    /// The value of the first line with this key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.lines.iter().find(|(of, _)| of == key).map(|(_, value)| value.as_str())
    }

    pub fn number(&self, key: &str) -> u64 {
        number(self.get(key).unwrap_or("0"))
    }

    /// What all lines with this key have together.
    pub fn all(&self, key: &str) -> Vec<u8> {
        let lines = self.lines.iter().filter(|(of, _)| of == key);
        lines.flat_map(|(_, value)| unhex(value)).collect()
    }
}

/// A number as the files have it: decimal, or hexadecimal after `0x`.
pub fn number(text: &str) -> u64 {
    let hexadecimal = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    hexadecimal.unwrap_or_else(|| text.parse()).unwrap_or_else(|_| panic!("{text:?}: no number"))
}

/// The name of an enum's variant, as `Debug` has it.
pub fn variant(value: impl Debug) -> String {
    let text = format!("{value:?}");
    text.split([' ', '(']).next().unwrap_or_default().to_owned()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn unhex(text: &str) -> Vec<u8> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty(), "{text:?}: half a byte");
    let digits = |pair: &[u8; 2]| str::from_utf8(pair).unwrap().to_owned();
    pairs.iter().map(|pair| u8::from_str_radix(&digits(pair), 16).unwrap()).collect()
}

pub fn write(about: &str, cases: &[Case]) -> String {
    let mut text =
        format!("# {about} Written by bellwire-vectors; README.md says how to read it.\n");
    for case in cases {
        let _ = write!(text, "\ncase {}\n", case.name);
        for (key, value) in &case.lines {
            let _ = writeln!(text, "{key} {value}");
        }
    }
    text
}

/// Reads what [`write`] wrote.
pub fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        match (key, cases.last_mut()) {
            ("case", _) => cases.push(Case::new(value)),
            (key, Some(case)) => case.push(key, value),
            (key, None) => panic!("{key:?} before the first case"),
        }
    }
    cases
}
