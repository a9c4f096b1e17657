//! Flame graphs as SVG.

use std::collections::BTreeMap;
use std::fmt::Write as _;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 18.0;
const MARGIN: f64 = 30.0;
/// About the width of a character, in pixels.
const CHARACTER: f64 = 7.0;

/// A function, and those that it called.
#[derive(Default)]
struct Frame {
    total: u64,
    inside: BTreeMap<String, Frame>,
}

impl Frame {
    fn depth(&self) -> usize {
        1 + self.inside.values().map(Self::depth).max().unwrap_or(0)
    }
}

/// Draws stacks, the outermost function first, by their nanoseconds.
pub(crate) fn draw(title: &str, stacks: &BTreeMap<Vec<String>, u64>) -> String {
    let mut root = Frame::default();
    for (stack, nanos) in stacks {
        let mut frame = &mut root;
        frame.total += nanos;
        for name in stack {
            frame = frame.inside.entry(name.clone()).or_default();
            frame.total += nanos;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a few rows")]
    let height = root.depth() as f64 * HEIGHT + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"monospace\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"{}\" y=\"20\" \
         text-anchor=\"middle\" font-size=\"16\">{}</text>\n",
        WIDTH / 2.0,
        escape(title)
    );
    frame(&mut svg, "all", &root, 0.0, height - MARGIN, root.total.max(1));
    svg.push_str("</svg>\n");
    svg
}

/// Draws a frame with its lower edge at `bottom`, and above it those inside.
#[expect(clippy::cast_precision_loss, reason = "pixels")]
fn frame(svg: &mut String, name: &str, of: &Frame, left: f64, bottom: f64, all: u64) {
    let width = of.total as f64 / all as f64 * WIDTH;
    // Too narrow to be seen.
    if width < 0.3 {
        return;
    }
    let (top, micros) = (bottom - HEIGHT, of.total / 1000);
    let share = of.total as f64 / all as f64 * 100.0;
    // Warm colors that depend on the name alone.
    let hue = name.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31) ^ u32::from(byte)) % 45;
    let characters = name.chars().count() as f64;
    let room = width - 6.0;
    let label = if characters * CHARACTER <= room {
        name.to_owned()
    } else if room >= 3.0 * CHARACTER {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few characters"
        )]
        let fits = (room / CHARACTER) as usize - 2;
        name.chars().take(fits).chain("..".chars()).collect()
    } else {
        String::new()
    };
    let (name, label) = (escape(name), escape(&label));
    let _ = writeln!(
        svg,
        "<g><title>{name}: {micros} us, {share:.1} %</title><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
         height=\"{:.1}\" fill=\"hsl({hue},80%,65%)\" rx=\"2\"/><text x=\"{:.1}\" y=\"{:.1}\">{label}</text></g>",
        HEIGHT - 1.0,
        left + 3.0,
        bottom - 5.0
    );
    let mut at = left;
    for (name, inside) in &of.inside {
        frame(svg, name, inside, at, top, all);
        at += inside.total as f64 / all as f64 * WIDTH;
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_wide_as_its_share() {
        let stack = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let stacks = BTreeMap::from([(stack(&["a", "b<T>"]), 3000), (stack(&["a", "c"]), 1000)]);
        let svg = draw("t", &stacks);
        for (name, share) in
            [("all", "100.0"), ("a", "100.0"), ("b&lt;T&gt;", "75.0"), ("c", "25.0")]
        {
            let found =
                svg.contains(&format!("<title>{name}: ")) && svg.contains(&format!("{share} %"));
            assert!(found, "{name}: {svg}");
        }
        assert!(svg.contains("width=\"900.0\"") && svg.contains("x=\"900.0\""), "{svg}");
    }
}
