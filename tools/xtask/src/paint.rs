//! Colors, when a person looks: on a terminal, unless `NO_COLOR` is set.

use std::io::stdout;
use std::sync::LazyLock;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

/// Whether colors are on.
pub(crate) static IS_ON: LazyLock<bool> =
    LazyLock::new(|| AutoStream::choice(&stdout()) != ColorChoice::Never);

pub(crate) fn red(text: &str) -> String {
    paint(AnsiColor::Red.on_default(), text)
}

pub(crate) fn green(text: &str) -> String {
    paint(AnsiColor::Green.on_default(), text)
}

pub(crate) fn yellow(text: &str) -> String {
    paint(AnsiColor::Yellow.on_default(), text)
}

pub(crate) fn bold(text: &str) -> String {
    paint(Style::new().bold(), text)
}

fn paint(style: Style, text: &str) -> String {
    if *IS_ON { format!("{style}{text}{style:#}") } else { text.to_owned() }
}
