use super::layout::{MAX_NAME, MAX_PATH};

/// Why a text cannot be a cgroup's name or path in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextFault {
    /// It has no characters.
    #[error("it is empty")]
    Empty,
    /// It is longer than its limit.
    #[error("it has {len} bytes, above the limit of {limit}")]
    TooLong {
        /// Its length, in bytes.
        len: usize,
        /// [`MAX_NAME`] or [`MAX_PATH`].
        limit: usize,
    },
    /// It contains a control character (Unicode category Cc), which could drive a terminal.
    #[error("it has a control character at byte {at}")]
    Control {
        /// The character's offset in the text, in bytes.
        at: usize,
    },
    /// A path does not start with `/`.
    #[error("it does not start with '/'")]
    NotAbsolute,
    /// A path has an empty, `.` or `..` component, or ends in `/`, and so could lead elsewhere.
    #[error("it has an empty, '.' or '..' component at byte {at}")]
    Component {
        /// The component's offset in the path, in bytes.
        at: usize,
    },
}

/// Checks that a text can be a cgroup's name.
///
/// # Errors
/// [`TextFault::Empty`], [`TextFault::TooLong`] or [`TextFault::Control`].
pub fn check_name(name: &str) -> Result<(), TextFault> {
    check_len(name, MAX_NAME)?;
    if is_suspect(name.as_bytes()) { check_control(name) } else { Ok(()) }
}

/// Checks that a text can be a cgroup's path.
///
/// # Errors
/// Any [`TextFault`].
pub fn check_path(path: &str) -> Result<(), TextFault> {
    check_len(path, MAX_PATH)?;
    check_path_ends(path)?;
    if is_suspect(path.as_bytes()) { check_inside(path) } else { Ok(()) }
}

pub(super) fn check_len(text: &str, limit: usize) -> Result<(), TextFault> {
    match text.len() {
        0 => Err(TextFault::Empty),
        len if len > limit => Err(TextFault::TooLong { len, limit }),
        _ => Ok(()),
    }
}

/// Checks the two ends of a path, which [`is_suspect`] cannot see.
pub(super) fn check_path_ends(path: &str) -> Result<(), TextFault> {
    match path.as_bytes() {
        [b'/'] => Ok(()),
        [b'/', .., b'/'] => Err(TextFault::Component { at: path.len() }),
        [b'/', ..] => Ok(()),
        _ => Err(TextFault::NotAbsolute),
    }
}

pub(super) fn check_inside(path: &str) -> Result<(), TextFault> {
    check_control(path)?;
    let Some(components) = path.strip_prefix('/').filter(|rest| !rest.is_empty()) else {
        return Ok(());
    };
    let mut at = 1;
    for component in components.split('/') {
        if matches!(component, "" | "." | "..") {
            return Err(TextFault::Component { at });
        }
        at += component.len() + 1;
    }
    Ok(())
}

pub(super) fn check_control(text: &str) -> Result<(), TextFault> {
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(TextFault::Control { at }),
        None => Ok(()),
    }
}

/// Returns whether texts must be checked one by one: false proves that none contains a control character, and that no path
/// contains a bad component except at its ends.
///
/// One pass over the whole string area, which the compiler vectorizes. 0xc2 leads U+0080 to U+009F, and every bad component
/// is a `/` followed by `/` or `.`.
pub(super) fn is_suspect(text: &[u8]) -> bool {
    let control = text
        .iter()
        .fold(false, |found, byte| found | (*byte < 0x20) | (*byte == 0x7f) | (*byte == 0xc2));
    let next = text.get(1..).unwrap_or(&[]);
    text.iter().zip(next).fold(control, |found, (byte, next)| {
        found | ((*byte == b'/') & ((*next == b'/') | (*next == b'.')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_lead_elsewhere_are_refused() {
        for (path, fault) in [
            ("", TextFault::Empty),
            ("a/b", TextFault::NotAbsolute),
            ("/a/", TextFault::Component { at: 3 }),
            ("//", TextFault::Component { at: 2 }),
            ("/a//b", TextFault::Component { at: 3 }),
            ("/a/../b", TextFault::Component { at: 3 }),
            ("/..", TextFault::Component { at: 1 }),
            ("/.", TextFault::Component { at: 1 }),
            ("/a\nb", TextFault::Control { at: 2 }),
            ("/a\u{9b}31m", TextFault::Control { at: 2 }),
            ("/a\x7f", TextFault::Control { at: 2 }),
        ] {
            assert_eq!(check_path(path), Err(fault), "{path:?}");
        }
        for path in ["/", "/a", "/.hidden", "/..a/b..", "/...", "/machine-qemu\\x2d1.scope", "/©/ü"]
        {
            assert_eq!(check_path(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn limits_are_exact() {
        assert_eq!(check_name(&"n".repeat(MAX_NAME)), Ok(()));
        let fault = TextFault::TooLong { len: MAX_NAME + 1, limit: MAX_NAME };
        assert_eq!(check_name(&"n".repeat(MAX_NAME + 1)), Err(fault));
        assert_eq!(check_path(&format!("/{}", "p".repeat(MAX_PATH - 1))), Ok(()));
        let fault = TextFault::TooLong { len: MAX_PATH + 1, limit: MAX_PATH };
        assert_eq!(check_path(&format!("/{}", "p".repeat(MAX_PATH))), Err(fault));
    }
}
