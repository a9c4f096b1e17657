use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as Line_, Table, TableState};

use bellwire::Latency;
use bellwire_observe::SeenEnd;

use super::model::{Model, Row, Sort};
use crate::out::{count, nanos, rate};

/// The maximum number of services with a line of their own.
const MAX_SERVICES: usize = 4;
const KEYS: &str =
    " q quit  ? help  sort: c calls r p99 e errors u use p peer s service  i invert ";
const HELP: [&str; 9] = [
    "q, Esc  quit",
    "?       this help",
    "c  r    sort by calls/s, p99",
    "e  u    sort by errors, use",
    "p  s    sort by peer, service",
    "i       invert the order",
    "up, down, PgUp, PgDn, Home, End",
    "CALL/S, ERR: of the last interval",
    "USE: of the fuller lane; FLT: in flight",
];
/// The least columns of a terminal for all columns of a table, without those of one peer, and without those of both.
const WIDTHS: [u16; 3] = [80, 66, 52];

/// State of the screen only.
#[derive(Default)]
pub(super) struct View {
    pub(super) table: TableState,
    pub(super) is_plain: bool,
    pub(super) shows_help: bool,
}

impl View {
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, model: &Model) {
        if self.shows_help {
            let lines: Vec<Line<'_>> = HELP.into_iter().map(Line::from).collect();
            frame.render_widget(Paragraph::new(lines), frame.area());
            return;
        }
        let services = u16::try_from(model.services.len().min(MAX_SERVICES)).unwrap_or(0);
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(services + 1),
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(1),
        ]);
        let [summary, upper, _, lower, keys] = areas.areas(frame.area());
        frame.render_widget(self.summary(model), summary);
        frame.render_widget(self.services(model, upper.width), upper);
        self.sessions(frame, model, lower);
        let keys_line = match &model.note {
            Some(note) => Line::from(Span::styled(format!(" {note}"), self.style(Modifier::BOLD))),
            None => Line::from(Span::styled(KEYS, self.style(Modifier::REVERSED))),
        };
        frame.render_widget(keys_line, keys);
    }

    /// Moves the selection by `by` lines.
    pub(super) fn step(&mut self, by: isize, model: &Model) {
        let last = model.rows.len().saturating_sub(1);
        let at = self.table.selected().unwrap_or(0).saturating_add_signed(by);
        self.table.select(Some(at.min(last)));
    }

    fn style(&self, modifier: Modifier) -> Style {
        if self.is_plain { Style::new() } else { Style::new().add_modifier(modifier) }
    }

    fn summary(&self, model: &Model) -> Line<'static> {
        let text = format!("bellwire top  {}", summary(model));
        Line::from(Span::styled(text, self.style(Modifier::BOLD)))
    }

    fn services(&self, model: &Model, width: u16) -> Table<'static> {
        let shown: &[usize] = if width < 61 { &[0, 2, 4, 6] } else { &[0, 1, 2, 3, 4, 5, 6] };
        let rows = model.services.iter().take(MAX_SERVICES).map(|service| {
            let cells = [
                Cell::from(service.service.to_string()),
                right(count(service.sessions as u64), 8),
                right(short(rate(service.calls)), 7),
                right(quantile(&service.latency, 500), 6),
                right(quantile(&service.latency, 990), 6),
                right(count(service.in_flight), 6),
                right(short(rate(service.errors)), 6),
            ];
            Line_::new(pick(shown, cells))
        });
        let titles = ["SERVICE", "SESSIONS", "CALLS/S", "   P50", "   P99", "FLIGHT", " ERR/S"];
        let widths = [
            Constraint::Min(16),
            Constraint::Length(8),
            Constraint::Length(7),
            Constraint::Length(6),
            Constraint::Length(6),
            Constraint::Length(6),
            Constraint::Length(6),
        ];
        let titles = Line_::new(pick(shown, titles)).style(self.style(Modifier::BOLD));
        Table::new(rows, pick(shown, widths)).header(titles).column_spacing(1)
    }

    fn sessions(&mut self, frame: &mut Frame<'_>, model: &Model, area: Rect) {
        let mark = |title: &str, sort: Sort| {
            let arrow = if model.is_reversed { '^' } else { 'v' };
            if model.sort == sort { format!("{title}{arrow}") } else { title.to_owned() }
        };
        let shown = columns(area.width);
        let titles = [
            Cell::from(mark("SERVICE", Sort::Service)),
            Cell::from(mark("CLIENT", Sort::Peer)),
            Cell::from("SERVER"),
            right(mark("CALL/S", Sort::Calls), 7),
            right("P50", 6),
            right(mark("P99", Sort::P99), 6),
            right(mark("USE", Sort::Use), 4),
            right("FLT", 4),
            right(mark("ERR", Sort::Errors), 5),
        ];
        let titles = Line_::new(pick(shown, titles));
        let widths = [
            Constraint::Min(14),
            Constraint::Length(13),
            Constraint::Length(13),
            Constraint::Length(7),
            Constraint::Length(6),
            Constraint::Length(6),
            Constraint::Length(4),
            Constraint::Length(4),
            Constraint::Length(5),
        ];
        let rows = model.rows.iter().map(|row| Line_::new(pick(shown, session(row))));
        let table = Table::new(rows, pick(shown, widths))
            .header(titles.style(self.style(Modifier::BOLD)))
            .row_highlight_style(self.style(Modifier::REVERSED))
            .column_spacing(1);
        frame.render_stateful_widget(table, area, &mut self.table);
    }
}

fn session(row: &Row) -> [Cell<'static>; 9] {
    let per_second = |value: Option<f64>| value.map_or("-".into(), |value| short(rate(value)));
    [
        Cell::from(row.seen.service.to_string()),
        Cell::from(peer(row.seen.client.as_ref())),
        Cell::from(peer(row.seen.server.as_ref())),
        right(per_second(row.calls), 7),
        right(quantile(&row.latency, 500), 6),
        right(quantile(&row.latency, 990), 6),
        right(format!("{:.0}%", row.share() * 100.0), 4),
        right(row.in_flight.to_string(), 4),
        right(per_second(row.errors), 5),
    ]
}

/// Returns the columns with these indices.
fn pick<T, const N: usize>(shown: &[usize], columns: [T; N]) -> Vec<T> {
    let all = columns.into_iter().enumerate();
    all.filter(|(at, _)| shown.contains(at)).map(|(_, column)| column).collect()
}

/// Sums up all sessions in one line.
pub(super) fn summary(model: &Model) -> String {
    format!(
        "{} services  {} sessions  {} calls/s",
        count(model.services.len() as u64),
        count(model.rows.len() as u64),
        short(rate(model.calls())),
    )
}

/// Returns the indices of the columns that fit: figures are never cut, so columns go.
fn columns(width: u16) -> &'static [usize] {
    match WIDTHS.iter().position(|least| width >= *least) {
        Some(0) => &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        Some(1) => &[0, 1, 3, 4, 5, 6, 7, 8],
        Some(_) => &[0, 3, 4, 5, 6, 7, 8],
        None => &[0, 3, 5, 8],
    }
}

/// Returns a process's number and name, without characters with which the name could write elsewhere on the screen.
pub(super) fn peer(end: Option<&SeenEnd>) -> String {
    let Some(end) = end else { return "?".to_owned() };
    format!("{} {}", end.pid, end.command.replace(char::is_control, "?"))
}

pub(super) fn quantile(latency: &Latency, per_mille: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let text = latency.quantile(per_mille).map(|at_most| short(nanos(at_most as f64)));
    text.unwrap_or("-".into())
}

/// Returns a number and its unit without the space between them.
pub(super) fn short(text: impl AsRef<str>) -> String {
    text.as_ref().replace(' ', "")
}

fn right(text: impl Into<String>, width: usize) -> Cell<'static> {
    Cell::from(format!("{:>width$}", text.into()))
}
