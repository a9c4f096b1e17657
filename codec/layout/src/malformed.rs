/// Why bytes are not a message of the type expected.
///
/// ```
/// use bellwire::Message;
///
/// let malformed = u64::decode(b"short").unwrap_err();
/// assert_eq!(malformed.len, 5);
/// println!("{malformed}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message at byte {at} of {len}{}: {why}", field.map(|field| format!(", {field}")).unwrap_or_default())]
#[non_exhaustive]
pub struct Malformed {
    /// The position in bytes.
    pub at: usize,
    /// The length in bytes.
    pub len: usize,
    /// What is wrong.
    pub why: &'static str,
    /// The type and the field in it, if the type has a [layout](crate).
    pub field: Option<&'static str>,
}

impl Malformed {
    /// Creates an error about the byte `at` of `len`.
    pub const fn new(at: usize, len: usize, why: &'static str) -> Self {
        Self { at, len, why, field: None }
    }

    /// Adds the field, unless a field in it is known already.
    #[must_use]
    pub fn in_field(self, field: &'static str) -> Self {
        Self { field: self.field.or(Some(field)), ..self }
    }
}
