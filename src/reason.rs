//! Why a request failed, as the bytes of its answer: text, preceded by the code that the handler gave it, if any.

/// The most bytes of a text that are sent.
const MAX_SENT: usize = 1024;
/// The most bytes of a text that are read.
const MAX_READ: usize = 4096;
/// What no text begins with: a code of 4 bytes follows.
const CODED: u8 = 0;

/// Appends a reason.
pub(crate) fn write(code: Option<u32>, text: &str, into: &mut Vec<u8>) {
    if let Some(code) = code {
        into.push(CODED);
        into.extend_from_slice(&code.to_le_bytes());
    }
    let text = text.trim_start_matches('\0');
    let cut = (0..=text.len().min(MAX_SENT)).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    into.extend_from_slice(text.get(..cut).unwrap_or_default().as_bytes());
}

/// Reads a reason that another process wrote.
pub(crate) fn read(bytes: &[u8]) -> (Option<u32>, Box<str>) {
    let coded = bytes.strip_prefix(&[CODED]).and_then(|coded| coded.split_first_chunk());
    let (code, text) = match coded {
        Some((code, text)) => (Some(u32::from_le_bytes(*code)), text),
        None => (None, bytes),
    };
    let text = text.get(..MAX_READ).unwrap_or(text);
    // It is shown to people: replace another process's control characters, which a terminal would interpret.
    (code, String::from_utf8_lossy(text).replace(char::is_control, " ").into())
}

#[cfg(test)]
mod tests {
    use super::{read, write};

    #[test]
    fn codes_and_texts_round_trip_and_a_text_alone_has_no_code() {
        for code in [None, Some(0), Some(404), Some(u32::MAX)] {
            for text in ["", "out of paper", "é"] {
                let mut bytes = Vec::new();
                write(code, text, &mut bytes);
                assert_eq!(read(&bytes), (code, text.into()));
            }
        }
    }

    #[test]
    fn a_text_is_never_taken_for_a_code_and_half_a_code_is_text() {
        let mut bytes = Vec::new();
        write(None, "\0\x01\x02\x03\x04of its own", &mut bytes);
        assert_eq!(read(&bytes), (None, "    of its own".into()));
        assert_eq!(read(&[0, 1, 2, 3]), (None, "    ".into()));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut bytes = Vec::new();
        write(Some(7), &"é".repeat(2000).replacen('é', "e", 1), &mut bytes);
        assert_eq!(read(&bytes).1.len(), 1023);
    }
}
