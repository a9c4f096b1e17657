//! Output for people and programs: colors, tables, numbers.

mod number;
mod table;
mod wrap;

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use colorchoice::ColorChoice;
use serde::Serialize;
use terminal_size::Width;

pub use number::{bytes, count, nanos, rate, span, whole_bytes};
pub use table::{Align, Cell, Column, Rows, Table};
pub use wrap::wrapped;

/// Something holds.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Something failed.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Something needs attention.
pub const WARN: Style = AnsiColor::Yellow.on_default();
/// Less important.
pub const FAINT: Style = Style::new().dimmed();
/// A heading.
pub const TITLE: Style = Style::new().bold();

/// When to use colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Even in a file or a pipe
    Always,
    /// Not at all
    Never,
}

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns, for people
    #[default]
    Table,
    /// For programs
    Json,
}

impl Color {
    /// Applies the setting to this process.
    pub fn apply(self) {
        let choice = match self {
            Self::Auto => ColorChoice::Auto,
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// Returns standard output, buffered, without colors unless they are enabled. Flush it.
pub fn stdout() -> BufWriter<AutoStream<StdoutLock<'static>>> {
    BufWriter::new(AutoStream::auto(io::stdout().lock()))
}

/// Returns bytes as text, if they are some, and printable.
pub fn printable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes bytes unchanged.
pub fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Writes a value as one line of JSON, unbuffered.
pub fn json_line(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    write_all(&line)
}

/// Returns the columns of the terminal on standard output; `None` if it is not a terminal.
pub fn width() -> Option<usize> {
    // A terminal may not know its size.
    let (Width(columns), _) = terminal_size::terminal_size_of(io::stdout())?;
    (columns > 0).then_some(usize::from(columns))
}

/// Returns whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}
