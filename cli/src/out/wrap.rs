use unicode_width::UnicodeWidthStr;

/// Wraps a text to lines of `width` columns, all indented by `indent` columns; the first line is already at that column.
pub fn wrapped(text: &str, width: Option<usize>, indent: usize) -> String {
    let Some(room) = width.map(|width| width.saturating_sub(indent)) else { return text.into() };
    let (mut lines, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let len = word.width();
        if used > 0 && used + 1 + len > room {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            used = 0;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += len;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_wrapped_with_an_indent() {
        assert_eq!(wrapped("all 4 lanes are back", Some(14), 4), "all 4\n    lanes are\n    back");
        assert_eq!(wrapped("all 4 lanes", None, 4), "all 4 lanes");
        assert_eq!(wrapped("unbreakable", Some(3), 4), "unbreakable");
    }
}
