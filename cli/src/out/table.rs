use std::io::{self, Write};

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::TITLE;

/// The number of blanks between two columns.
const GAP: usize = 2;

/// Aligned rows below a header.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    align: Align,
    /// The minimum width to which cells may be cut, in the middle, so that the table fits.
    narrowest: Option<usize>,
}

/// Items, each of which becomes a row, while its columns are added.
#[derive(Debug)]
pub struct Rows<T> {
    items: Vec<T>,
    table: Table,
}

/// How cells are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// A cell.
#[derive(Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Column {
    /// Creates a column that is never narrowed.
    pub fn new(title: &'static str, align: Align) -> Self {
        Self { title, align, narrowest: None }
    }

    /// Returns the same column, which may be narrowed to this width.
    #[must_use]
    pub fn narrowest(self, narrowest: usize) -> Self {
        Self { narrowest: Some(narrowest), ..self }
    }
}

impl<T> Rows<T> {
    /// Adds a column of texts.
    #[must_use]
    pub fn left<C: Into<Cell>>(self, title: &'static str, cell: impl Fn(&T) -> C) -> Self {
        self.column(Column::new(title, Align::Left), cell)
    }

    /// Adds a column of numbers.
    #[must_use]
    pub fn right<C: Into<Cell>>(self, title: &'static str, cell: impl Fn(&T) -> C) -> Self {
        self.column(Column::new(title, Align::Right), cell)
    }

    /// Adds a column.
    #[must_use]
    pub fn column<C: Into<Cell>>(mut self, column: Column, cell: impl Fn(&T) -> C) -> Self {
        self.table.columns.push(column);
        let rows = self.table.rows.iter_mut().zip(&self.items);
        rows.for_each(|(row, item)| row.push(cell(item).into()));
        self
    }

    /// Returns the table.
    pub fn table(self) -> Table {
        self.table
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl Cell {
    /// Creates a cell without a style.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: Style::new() }
    }

    /// Returns the same cell in a style.
    #[must_use]
    pub fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

impl Table {
    /// Creates a table without rows.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// Begins a table with a row for each item.
    pub fn of<T>(items: impl IntoIterator<Item = T>) -> Rows<T> {
        let items: Vec<T> = items.into_iter().collect();
        let rows = items.iter().map(|_| Vec::new()).collect();
        Rows { items, table: Self { columns: Vec::new(), rows } }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    /// Prints the table, no wider than `width` if possible.
    pub fn print(&self, to: &mut impl Write, width: Option<usize>) -> io::Result<()> {
        let widths = self.widths(width);
        let titles = self.columns.iter().map(|column| Cell::new(column.title).style(TITLE));
        self.line(to, &titles.collect::<Vec<_>>(), &widths)?;
        self.rows.iter().try_for_each(|row| self.line(to, row, &widths))
    }

    /// Prints the table on standard output.
    pub fn show(&self) -> io::Result<()> {
        let mut stdout = super::stdout();
        self.print(&mut stdout, super::width())?;
        stdout.flush()
    }

    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let widest = |(at, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| cell.text.width()).max().unwrap_or(0).max(column.title.width())
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(widest).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        let Some(limit) = limit else { return widths };
        // The last column is narrowed first.
        for at in (0..widths.len()).rev() {
            let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(limit);
            let narrowest = self.columns.get(at).and_then(|column| column.narrowest);
            if let (Some(width), Some(narrowest)) = (widths.get_mut(at), narrowest) {
                *width = width.saturating_sub(excess).max(narrowest.min(*width));
            }
        }
        widths
    }

    fn line(&self, to: &mut impl Write, cells: &[Cell], widths: &[usize]) -> io::Result<()> {
        let last = cells.len().saturating_sub(1);
        for (at, ((cell, width), column)) in cells.iter().zip(widths).zip(&self.columns).enumerate()
        {
            let text = shortened(&cell.text, *width);
            let pad = width.saturating_sub(text.width());
            let style = cell.style;
            if column.align == Align::Right {
                write!(to, "{:pad$}", "")?;
            }
            write!(to, "{style}{text}{style:#}")?;
            if at == last {
                break;
            }
            let pad = if column.align == Align::Left { pad + GAP } else { GAP };
            write!(to, "{:pad$}", "")?;
        }
        writeln!(to)
    }
}

/// Shortens a text that is wider than `width` by cutting out its middle: both ends of a path are the most informative.
fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let start = take_width(text.chars(), room / 2);
    let end: String = take_width(text.chars().rev(), room - room / 2);
    format!("{start}…{}", end.chars().rev().collect::<String>())
}

fn take_width(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|char| {
            used += char.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(width: Option<usize>) -> String {
        let columns =
            [Column::new("N", Align::Right), Column::new("PATH", Align::Left).narrowest(8)];
        let mut table = Table::new(columns);
        table.row([Cell::new("7"), Cell::new("/system.slice/cron.service")]);
        table.row([Cell::new("12"), Cell::new("/")]);
        let mut bytes = Vec::new();
        table.print(&mut bytes, width).unwrap();
        let mut plain = anstream::StripStream::new(Vec::new());
        plain.write_all(&bytes).unwrap();
        String::from_utf8(plain.into_inner()).unwrap()
    }

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        assert_eq!(printed(None), " N  PATH\n 7  /system.slice/cron.service\n12  /\n");
    }

    #[test]
    fn a_cell_that_is_too_wide_is_cut_in_the_middle() {
        assert_eq!(printed(Some(16)), " N  PATH\n 7  /syst…ervice\n12  /\n");
        assert_eq!(printed(Some(3)), " N  PATH\n 7  /sy…vice\n12  /\n");
    }

    #[test]
    fn wide_characters_count_double() {
        assert_eq!(shortened("日本語日本語", 7), "日…語");
    }
}
