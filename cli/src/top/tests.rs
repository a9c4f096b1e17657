use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bellwire::{Client, RunDir, Server};
use bellwire_observe::{ObserveError, Scanner, SeenSession};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::handle_key;
use super::model::{Model, Sort};
use super::view::View;

/// Fails odd numbers.
#[derive(bellwire::Service)]
#[service(name = "even-numbers", request = u64, response = u64)]
struct Even;

/// Sessions are identified by process, service and number, so only one test at a time may have some.
static ALONE: Mutex<()> = Mutex::new(());

/// Two sessions of this process, one of which has more calls.
struct Fixture {
    _server: Server,
    clients: [Client<Even>; 2],
    scanner: Scanner,
    _dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Fixture {
    /// Returns `None` if this system shows no sessions, and checks that it reports so.
    fn new() -> Option<Self> {
        let mut scanner = Scanner::default();
        if let Err(error) = scanner.scan() {
            assert!(matches!(error, ObserveError::Unavailable), "{error}");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let mut builder = Server::builder(&run_dir);
        let even = |number: u64| number.is_multiple_of(2).then_some(number);
        let served = builder.serve::<Even>(move |_, number| even(number).ok_or("odd".into()));
        served.unwrap();
        let server = builder.start().unwrap();
        let clients = [(); 2].map(|()| Client::new(&run_dir));
        let mut fixture = Self { _server: server, clients, scanner, _dir: dir, _alone: alone };
        fixture.call(1, 0);
        fixture.call(1, 0);
        Some(fixture)
    }

    /// Makes this many calls with an even and with an odd number; the first client makes twice as many.
    fn call(&mut self, even: usize, odd: usize) {
        let [busy, calm] = &mut self.clients;
        for (client, times) in [(busy, 2), (calm, 1)] {
            (0..even * times).for_each(|_| assert_eq!(client.call(&2).unwrap(), 2));
            (0..odd * times).for_each(|_| drop(client.call(&3).unwrap_err()));
        }
    }

    /// Returns what these calls, after those of the set-up, look like a second later.
    fn model_after(&mut self, even: usize, odd: usize) -> Model {
        let mut model = Model::new(None);
        let begun = Instant::now();
        model.update(self.seen(), begun);
        self.call(even, odd);
        model.update(self.seen(), begun + Duration::from_secs(1));
        model
    }

    fn seen(&mut self) -> Vec<SeenSession> {
        let sessions = self.scanner.scan().unwrap().sessions.into_iter();
        let is_ours = |session: &SeenSession| {
            let pid = session.server.as_ref().map(|end| end.pid);
            session.service == Client::<Even>::SERVICE && pid == Some(std::process::id())
        };
        sessions.filter(is_ours).collect()
    }
}

fn screen(view: &mut View, model: &Model) -> Vec<String> {
    screen_of(80, 24, view, model)
}

fn screen_of(width: u16, height: u16, view: &mut View, model: &Model) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame, model)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(width.into());
    lines.map(|cells| cells.iter().map(ratatui::buffer::Cell::symbol).collect()).collect()
}

fn press(code: KeyCode, view: &mut View, model: &mut Model) -> bool {
    handle_key(KeyEvent::new(code, KeyModifiers::NONE), view, model)
}

#[test]
fn a_screen_of_80_by_24_shows_services_and_sessions_whole() {
    let Some(mut fixture) = Fixture::new() else { return };
    // Enough that some of them are timed although no thread sleeps.
    let model = fixture.model_after(200, 5);
    let lines = screen(&mut View::default(), &model);
    assert_eq!(lines.len(), 24);
    let summary = "bellwire top  1 services  2 sessions  615 calls/s";
    assert!(lines[0].starts_with(summary), "{lines:#?}");
    assert!(lines[1].starts_with("SERVICE") && lines[1].contains("P99"), "{lines:#?}");
    let words =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let service = words(&lines[2]);
    assert_eq!(service[..3], ["even-numbers", "2", "615"]);
    assert_eq!(service[5..], ["0", "15"], "in flight, and errors: {lines:#?}");
    assert!(lines[4].starts_with("SERVICE") && lines[4].trim_end().ends_with("ERR"), "{lines:#?}");
    let busy = words(&lines[5]);
    let pid = std::process::id().to_string();
    assert_eq!((&busy[0], &busy[1], &busy[3]), (&"even-numbers".to_owned(), &pid, &pid));
    assert_eq!(busy[5], "410", "calls in each second: {lines:#?}");
    assert!(busy[6].ends_with('s') && busy[7].ends_with('s'), "latencies: {lines:#?}");
    assert_eq!(busy[8..], ["0%", "0", "10"], "{lines:#?}");
    assert_eq!(words(&lines[6])[5], "205", "the one that calls less comes second: {lines:#?}");
    assert!(lines[23].contains("q quit") && lines[7..23].iter().all(|line| line.trim().is_empty()));
}

#[test]
fn a_narrow_screen_has_fewer_columns_and_cuts_no_figure() {
    let Some(mut fixture) = Fixture::new() else { return };
    let mut model = fixture.model_after(200, 5);
    for (width, titles) in [
        (40, "SERVICE CALL/Sv P99 ERR"),
        (60, "SERVICE CALL/Sv P50 P99 USE FLT ERR"),
        (70, "SERVICE CLIENT CALL/Sv P50 P99 USE FLT ERR"),
    ] {
        let lines = screen_of(width, 10, &mut View::default(), &model);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(&lines[4]), titles, "{lines:#?}");
        let busy = words(&lines[5]);
        assert!(busy.starts_with("even-numbers ") && busy.contains(" 410 "), "{lines:#?}");
        assert!(busy.ends_with(" 10"), "{lines:#?}");
    }
    let mut view = View::default();
    assert!(!press(KeyCode::Char('?'), &mut view, &mut model));
    let help = screen_of(40, 10, &mut view, &model);
    assert!(help[0].starts_with("q, Esc  quit") && help[8].contains("in flight"), "{help:#?}");
    assert!(!press(KeyCode::Esc, &mut view, &mut model), "it ends the help only");
    assert!(screen(&mut view, &model)[0].starts_with("bellwire top"));
}

#[test]
fn keys_sort_and_move_and_q_quits() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (mut model, mut view) = (fixture.model_after(20, 0), View::default());
    let numbers =
        |model: &Model| -> Vec<u64> { model.rows.iter().map(|row| row.seen.number).collect() };
    let most_calls = numbers(&model);
    assert!(!press(KeyCode::Char('i'), &mut view, &mut model));
    assert_eq!(numbers(&model), most_calls.iter().rev().copied().collect::<Vec<_>>());
    for (key, sort) in [
        ('r', Sort::P99),
        ('e', Sort::Errors),
        ('u', Sort::Use),
        ('p', Sort::Peer),
        ('s', Sort::Service),
        ('c', Sort::Calls),
    ] {
        assert!(!press(KeyCode::Char(key), &mut view, &mut model));
        assert!(model.sort == sort && !model.is_reversed, "{key}");
    }
    assert_eq!(numbers(&model), most_calls);
    for (key, selected) in [
        (KeyCode::Down, 1),
        (KeyCode::Down, 1),
        (KeyCode::Up, 0),
        (KeyCode::End, 1),
        (KeyCode::Home, 0),
        (KeyCode::PageDown, 1),
    ] {
        assert!(!press(key, &mut view, &mut model));
        assert_eq!(view.table.selected(), Some(selected), "{key:?}");
    }
    assert!(press(KeyCode::Char('q'), &mut view, &mut model));
    assert!(press(KeyCode::Esc, &mut view, &mut model));
    assert!(handle_key(
        KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL),
        &mut view,
        &mut model
    ));
}

#[test]
fn a_session_that_is_over_leaves_the_screen_and_another_service_is_left_out() {
    let Some(mut fixture) = Fixture::new() else { return };
    let mut model = Model::new(Some(Client::<Even>::SERVICE));
    model.update(fixture.seen(), Instant::now());
    assert_eq!(model.rows.len(), 2);
    model.update(Vec::new(), Instant::now());
    let lines = screen(&mut View::default(), &model);
    assert!(lines[0].contains("0 services  0 sessions"), "{lines:#?}");
    let mut model = Model::new(Some("another".parse().unwrap()));
    model.update(fixture.seen(), Instant::now());
    assert!(model.rows.is_empty());
}

#[test]
fn a_process_cannot_write_elsewhere_on_the_screen() {
    let Some(mut fixture) = Fixture::new() else { return };
    let mut seen = fixture.seen();
    if let Some(end) = &mut seen[0].client {
        end.command = "\u{1b}[2J\nevil".into();
    }
    let mut model = Model::new(None);
    model.update(seen, Instant::now());
    let lines = screen(&mut View::default(), &model);
    assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("?[2J?")), "{lines:#?}");
}
