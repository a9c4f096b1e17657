//! `bellwire top`: the sessions of all processes, live.

pub(crate) mod args;
mod model;
mod report;
#[cfg(test)]
mod tests;
mod view;

use std::io::Write;
use std::time::{Duration, Instant};

use bellwire::{EndpointInfo, Liveness, RunDir};
use bellwire_observe::{ObserveError, Scan, Scanner, SeenSession};
use colorchoice::ColorChoice;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::exit::{Exit, Failure};
use crate::ls::unlisted;
use crate::out;
use crate::stop::{Stop, StopReason};
use args::Top;
use model::{Model, Sort};
use view::View;

/// The maximum delay until a signal is handled.
const SLICE: Duration = Duration::from_millis(250);
/// The number of lines in a page.
const PAGE: isize = 10;

pub(crate) fn run(run_dir: Option<&RunDir>, args: &Top) -> Result<Exit, Failure> {
    let mut scanner = Scanner::default();
    let mut model = Model::new(args.service);
    scan(&mut scanner, run_dir, &mut model)?;
    if args.once || args.output.is_json() {
        let stop = Stop::on_signals()?;
        if stop.sleep_until(Instant::now() + args.interval) {
            return Ok(stop.requested().map_or(Exit::Ok, StopReason::exit));
        }
        let is_denied = scan(&mut scanner, run_dir, &mut model)?;
        if args.output.is_json() {
            out::json_line(&report::Report::of(&model, args.interval))?;
        } else {
            report::print(&model, args.limit)?;
        }
        // Nothing is seen where nothing may be looked at.
        let is_blind = model.rows.is_empty() && is_denied;
        return Ok(if is_blind { Exit::Failed } else { Exit::Ok });
    }
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if is_dumb || !out::is_terminal() {
        let what = "standard output is not a terminal with a cursor";
        return Err(Failure::new(Exit::Failed, what).next("use --once or --json"));
    }
    // Ctrl-C is a key in this mode, and SIGINT comes from another process.
    let stop = Stop::on_signals()?;
    let mut terminal = ratatui::try_init()?;
    let rescan = |model: &mut Model| scan(&mut scanner, run_dir, model).map(|_| ());
    let ended = show(&mut terminal, args.interval, rescan, &mut model, &stop);
    ratatui::try_restore()?;
    ended
}

/// Scans all sessions, or those of the providers that listen in a run dir. Returns whether any could not be read.
fn scan(
    scanner: &mut Scanner,
    run_dir: Option<&RunDir>,
    model: &mut Model,
) -> Result<bool, Failure> {
    let Scan { sessions, denied, hidden, .. } = scanner.scan().map_err(|error| {
        let failure = Failure::of(Exit::Failed, "cannot observe sessions", &error);
        match error {
            ObserveError::Unavailable => failure.next("ask the providers: bellwire stat"),
            _ => failure,
        }
    })?;
    let is_denied = denied.is_some();
    model.note = denied.map(|(pages, error)| format!("{pages} pages could not be read: {error}"));
    let sessions = match run_dir {
        None => sessions,
        Some(run_dir) => {
            let listed = run_dir.endpoints().map_err(|error| unlisted(run_dir, &error))?;
            let is_there = |session: &SeenSession| {
                let pid = session.server.as_ref().map(|end| end.pid);
                let is_its = |endpoint: &EndpointInfo| {
                    endpoint.service == session.service && endpoint.liveness == Liveness::Alive(pid)
                };
                listed.iter().any(is_its)
            };
            sessions.into_iter().filter(is_there).collect()
        }
    };
    if sessions.is_empty() && hidden > 0 && model.note.is_none() {
        model.note = Some(format!(
            "{hidden} processes could not be looked at, such as those of other users: root may"
        ));
    }
    model.update(sessions, Instant::now());
    Ok(is_denied)
}

fn show(
    terminal: &mut DefaultTerminal,
    interval: Duration,
    mut rescan: impl FnMut(&mut Model) -> Result<(), Failure>,
    model: &mut Model,
    stop: &Stop,
) -> Result<Exit, Failure> {
    let is_plain = ColorChoice::global() == ColorChoice::Never;
    let mut view = View { is_plain, ..View::default() };
    let mut due = Instant::now() + interval;
    loop {
        terminal.draw(|frame| view.draw(frame, model))?;
        let left = due.saturating_duration_since(Instant::now());
        if event::poll(left.min(SLICE))?
            && let Event::Key(key) = event::read()?
            && handle_key(key, &mut view, model)
        {
            return Ok(Exit::Ok);
        }
        if let Some(why) = stop.requested() {
            return Ok(why.exit());
        }
        if Instant::now() >= due {
            rescan(model)?;
            due = Instant::now() + interval;
        }
    }
}

/// Handles a key. Returns true if it ends the program.
fn handle_key(key: KeyEvent, view: &mut View, model: &mut Model) -> bool {
    if key.kind == KeyEventKind::Release {
        return false;
    }
    let helped = std::mem::take(&mut view.shows_help);
    match key.code {
        KeyCode::Esc if helped => {}
        KeyCode::Char('?') => view.shows_help = !helped,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') => model.sort_by(Sort::Calls),
        KeyCode::Char('r') => model.sort_by(Sort::P99),
        KeyCode::Char('e') => model.sort_by(Sort::Errors),
        KeyCode::Char('u') => model.sort_by(Sort::Use),
        KeyCode::Char('p') => model.sort_by(Sort::Peer),
        KeyCode::Char('s') => model.sort_by(Sort::Service),
        KeyCode::Char('i') => model.reverse(),
        KeyCode::Down => view.step(1, model),
        KeyCode::Up => view.step(-1, model),
        KeyCode::PageDown => view.step(PAGE, model),
        KeyCode::PageUp => view.step(-PAGE, model),
        KeyCode::Home => view.step(isize::MIN, model),
        KeyCode::End => view.step(isize::MAX, model),
        _ => {}
    }
    false
}

/// Reports on stderr which sessions could not be observed.
fn print_note(note: Option<&String>) {
    if let Some(note) = note {
        let _ = writeln!(anstream::stderr(), "{note}");
    }
}
