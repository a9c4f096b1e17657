//! `top`: shows the sessions, busiest first, until `q` or SIGINT.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use bellwire_trace_core::{CALL_STAGES, Counts, DELIVERY_STAGES, Key, Options, Pattern, Stage};
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use serde::Serialize;

use crate::args::{Schedule, Sort, TopArgs};
use crate::error::Error;
use crate::hist::{each_interval, sample_note};
use crate::out::outln;
use crate::signal::Waiter;
use crate::tracer::{self, report_losses};

/// The default interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Enters the alternate screen and hides the cursor; and the reverse.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

#[derive(Debug, Serialize)]
struct Row {
    service: String,
    pattern: Pattern,
    session: u64,
    server: u32,
    client: u32,
    /// All calls; `samples` of them were sampled.
    calls: u64,
    samples: u64,
    calls_per_second: f64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    /// The stage that took most of the time, and its share from 0 to 1.
    stage: Option<Stage>,
    share: f64,
}

pub(crate) fn run(args: &TopArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let interval = args.schedule.interval.unwrap_or(INTERVAL);
    let schedule = Schedule { interval: Some(interval), ..args.schedule };
    let options = Options { by_session: true, ..Options::default() };
    tracer::trace(&args.scope, options, |tracer| {
        let is_terminal = !args.scope.json && io::stdout().is_terminal();
        let mut screen = is_terminal.then(Screen::enter).transpose()?;
        if screen.as_ref().is_some_and(|screen| screen.keys.is_some()) {
            waiter.on_key()?;
        }
        let shown = each_interval(tracer, &schedule, &waiter, |counts| {
            let rows = rows(counts, interval, args.sort);
            match &mut screen {
                _ if args.scope.json => {
                    for row in &rows {
                        outln!("{}", serde_json::to_string(row)?);
                    }
                }
                Some(screen) => screen.draw(&table(&rows))?,
                None => outln!("{}", table(&rows)),
            }
            Ok(())
        });
        drop(screen);
        shown?;
        report_losses(&tracer.losses());
        Ok(())
    })
}

fn rows(counts: &BTreeMap<Key, Counts>, interval: Duration, sort: Sort) -> Vec<Row> {
    let mut rows: Vec<Row> =
        counts.iter().map(|(key, counts)| Row::of(key, counts, interval)).collect();
    rows.sort_by_key(|row| {
        std::cmp::Reverse(match sort {
            Sort::Calls => row.calls,
            Sort::P50 => row.p50_ns,
            Sort::P99 => row.p99_ns,
            Sort::Max => row.max_ns,
        })
    });
    rows
}

impl Row {
    #[expect(clippy::cast_precision_loss, reason = "figures of a few digits")]
    fn of(key: &Key, counts: &Counts, interval: Duration) -> Self {
        let of = |stage: Stage| counts.stage(stage);
        let call = of(Stage::Call);
        let stages = CALL_STAGES.into_iter().chain(DELIVERY_STAGES);
        let slowest = stages.max_by_key(|stage| of(*stage).sum);
        let share = slowest.map_or(0, |stage| of(stage).sum) as f64 / call.sum.max(1) as f64;
        Self {
            service: key.service.clone(),
            pattern: key.pattern,
            session: key.session.map_or(0, |(number, _)| number),
            server: counts.server,
            client: counts.client,
            calls: call.count,
            samples: counts.samples,
            calls_per_second: call.count as f64 / interval.as_secs_f64(),
            p50_ns: call.quantile(0.5),
            p99_ns: call.quantile(0.99),
            max_ns: call.max,
            stage: slowest,
            share,
        }
    }
}

fn table(rows: &[Row]) -> String {
    let calls: u64 = rows.iter().map(|row| row.calls).sum();
    let samples = rows.iter().map(|row| row.samples).sum();
    let sample_note = sample_note(calls, samples, "messages");
    let mut text = format!("{} sessions, {sample_note}; times in microseconds\n", rows.len());
    let _ = writeln!(
        text,
        "{:<24} {:<10} {:>7} {:>8} {:>8} {:>9} {:>10} {:>10} {:>10}  MOST OF IT",
        "SERVICE", "OF", "SESSION", "SERVER", "CLIENT", "/s", "P50", "P99", "MAX"
    );
    for row in rows {
        #[expect(clippy::cast_precision_loss, reason = "times to four digits")]
        let [p50, p99, max] = [row.p50_ns, row.p99_ns, row.max_ns].map(|nanos| nanos as f64 / 1e3);
        let _ = writeln!(
            text,
            "{:<24} {:<10} {:>7} {:>8} {:>8} {:>9.1} {p50:>10.1} {p99:>10.1} {max:>10.1}  {} {:.0}%",
            row.service,
            row.pattern.plural(),
            row.session,
            row.server,
            row.client,
            row.calls_per_second,
            row.stage.map_or("-", Stage::name),
            row.share * 100.0
        );
    }
    text
}

/// The terminal in the alternate screen; dropping this restores it.
struct Screen {
    /// The terminal's original key settings; `None` if the input is not a terminal.
    keys: Option<Termios>,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let keys = termios::tcgetattr(io::stdin()).ok();
        if let Some(before) = &keys {
            let mut now = before.clone();
            // Keys arrive immediately and are not echoed; Ctrl-C still raises a signal.
            now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            termios::tcsetattr(io::stdin(), OptionalActions::Now, &now)?;
        }
        let screen = Self { keys };
        write(ENTER)?;
        screen.draw("waiting for samples; q or Ctrl-C ends it")?;
        Ok(screen)
    }

    /// Draws as many lines and columns as fit on the terminal.
    fn draw(&self, text: &str) -> io::Result<()> {
        // A terminal that does not know its size reports 0.
        let size = termios::tcgetwinsize(io::stdout())
            .ok()
            .filter(|size| size.ws_row > 1 && size.ws_col > 0);
        let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
        let mut frame = "\x1b[H".to_owned();
        for line in text.lines().take(usize::from(rows) - 1) {
            frame.extend(line.chars().take(columns.into()));
            frame.push_str("\x1b[K\r\n");
        }
        frame.push_str("\x1b[J");
        write(&frame)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that was closed need not be restored.
        let _ = write(LEAVE);
        if let Some(before) = &self.keys {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
