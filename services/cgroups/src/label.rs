use core::hash::{Hash, Hasher};
use core::{fmt, iter};

use super::layout::{MAX_NAME, MAX_VALUE, Pair};
use super::row::Row;
use super::text::{TextFault, check_control, check_len, is_suspect};
use super::{CgroupEntry, Index};

/// The labels of a cgroup: pairs of a name and a value, in the provider's order. A name may occur more than once.
#[derive(Clone, Copy)]
pub struct Labels<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Entry(&'a CgroupEntry),
    /// Of a snapshot. Found when they are asked for: most look-ups do not.
    Row(&'a Index, &'a Row),
}

impl<'a> Labels<'a> {
    pub(super) fn of_entry(entry: &'a CgroupEntry) -> Self {
        Self(Source::Entry(entry))
    }

    pub(super) fn of_row(index: &'a Index, row: &'a Row) -> Self {
        Self(Source::Row(index, row))
    }

    /// Returns the names and values.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (entry, (pairs, texts)) = match self.0 {
            Source::Entry(entry) => (&entry.labels[..], (&[][..], "")),
            Source::Row(index, row) => (&[][..], index.labels(row)),
        };
        let entry = entry.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        entry.chain(texts_of(pairs, texts))
    }

    /// Returns the value of the first label of this name.
    pub fn value(self, name: &str) -> Option<&'a str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns how many there are.
    pub fn len(self) -> usize {
        match self.0 {
            Source::Entry(entry) => entry.labels.len(),
            Source::Row(_, row) => row.labels.into(),
        }
    }

    /// Returns whether there is none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl PartialEq for Labels<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Labels<'_> {}

impl Hash for Labels<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.iter().for_each(|label| label.hash(state));
        self.len().hash(state);
    }
}

impl fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Returns the texts of pairs, which follow one another from the start of `texts`. Each span was checked when the index was built.
pub(super) fn texts_of<'a>(
    mut pairs: &'a [Pair],
    mut texts: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    iter::from_fn(move || {
        let (pair, rest) = pairs.split_first()?;
        let (name, after) = texts.split_at_checked(pair.name_len.get().into())?;
        let (value, after) = after.split_at_checked(pair.value_len.get().into())?;
        (pairs, texts) = (rest, after);
        Some((name, value))
    })
}

/// Checks that two texts can be a label in a snapshot: its name has 1 to [`MAX_NAME`] bytes, its value at most [`MAX_VALUE`], and
/// neither has a control character.
///
/// # Errors
/// [`TextFault::Empty`], [`TextFault::TooLong`] or [`TextFault::Control`].
pub fn check_label(name: &str, value: &str) -> Result<(), TextFault> {
    check_len(name, MAX_NAME)?;
    if !value.is_empty() {
        check_len(value, MAX_VALUE)?;
    }
    for text in [name, value] {
        if is_suspect(text.as_bytes()) {
            check_control(text)?;
        }
    }
    Ok(())
}
