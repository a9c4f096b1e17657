//! `bellwire top` on a real terminal, with sessions of other processes.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use vt100::Parser;

use crate::admit::{as_nobody, open};
use crate::support::{Place, Running};

const HANGS: Duration = Duration::from_secs(60);

/// The command on a terminal of its own.
struct Screen {
    master: Box<dyn MasterPty + Send>,
    /// The terminal's settings before the command started.
    before: String,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    output: Receiver<Vec<u8>>,
    terminal: Parser,
}

/// The settings of a terminal.
fn settings(terminal: &dyn MasterPty) -> String {
    format!("{:?}", terminal.get_termios().unwrap())
}

impl Screen {
    fn start(place: &Place, terminal: &str, args: &[&str]) -> Self {
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let command = place.command(args);
        let mut builder = CommandBuilder::new(command.get_program());
        builder.args(command.get_args());
        builder.env("TERM", terminal);
        let before = settings(&*pair.master);
        let child = pair.slave.spawn_command(builder).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // A terminal that nobody has any more fails.
            while let Ok(len @ 1..) = reader.read(&mut bytes) {
                let _ = sender.send(bytes[..len].to_vec());
            }
        });
        let keys = pair.master.take_writer().unwrap();
        let terminal = Parser::new(24, 80, 0);
        Self { master: pair.master, before, keys, child, output, terminal }
    }

    /// Reads until this stands on the screen.
    fn until(&mut self, what: &str) {
        self.until_it(&format!("shows {what:?}"), |screen| screen.contents().contains(what));
    }

    /// Reads until the terminal is so.
    fn until_it(&mut self, is: &str, so: impl Fn(&vt100::Screen) -> bool) {
        let start = Instant::now();
        while !so(self.terminal.screen()) {
            let bytes = self.output.recv_timeout(HANGS.saturating_sub(start.elapsed()));
            let contents = || self.terminal.screen().contents();
            let bytes = bytes.unwrap_or_else(|_| panic!("never {is}:\n{}", contents()));
            self.terminal.process(&bytes);
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }
}

/// A client of the provider that stays.
fn watcher(place: &Place) -> Running {
    let mut watcher = place.start(&["get", "cgroups", "--watch", "--format", "json"]);
    watcher.stdout_until("cgroups");
    watcher
}

#[test]
fn a_live_session_is_shown_and_q_quits_and_restores_the_terminal() {
    let place = Place::new();
    let provider = place.provider();
    let watcher = watcher(&place);
    // Whatever else runs on this machine does not crowd it out.
    let args = ["top", "--interval", "50ms", "--service", "cgroups-snapshot"];
    let mut screen = Screen::start(&place, "xterm-256color", &args);
    screen.until("cgroups-snap");
    assert!(screen.terminal.screen().alternate_screen());
    // As much as a column holds: a pid may have seven digits.
    screen.until(&format!("{:.11}", format!("{} bellwire", watcher.pid())));
    screen.until(&format!("{:.11}", format!("{} bellwire", provider.pid())));
    assert_ne!(settings(&*screen.master), screen.before, "keys come one by one");
    screen.press("ssi");
    screen.until("SERVICE^");
    screen.press("q");
    let status = screen.child.wait().unwrap();
    assert!(status.success(), "{status:?}");
    let is_given_back =
        |screen: &vt100::Screen| !screen.alternate_screen() && !screen.hide_cursor();
    screen.until_it("as it was", is_given_back);
    assert_eq!(settings(&*screen.master), screen.before);
}

#[test]
fn one_sample_as_json_has_both_ends_of_each_session() {
    let place = Place::new();
    let provider = place.provider();
    let watcher = watcher(&place);
    let args = ["top", "--json", "--interval", "20ms", "--service", "cgroups-snapshot"];
    let report = place.exits(0, &args);
    let sessions = report.json()["sessions"].clone();
    let sessions = sessions.as_array().unwrap();
    let ours = sessions.iter().find(|session| session["client"]["pid"] == watcher.pid());
    let ours = ours.unwrap_or_else(|| panic!("{report:?}"));
    assert_eq!(ours["service"], "cgroups-snapshot");
    assert_eq!(ours["server"]["pid"], provider.pid());
    assert_eq!((&ours["in_flight"], &ours["calls_per_second"]), (&0.into(), &0.0.into()));
    let (client, server) = (&ours["client"]["counters"], &ours["server"]["counters"]);
    assert!(client["answered"].as_u64() >= Some(1), "{ours:#}");
    assert_eq!(client["requests"], server["requests"]);
    assert_eq!(ours["client"]["bytes_sent"], ours["server"]["bytes_received"]);
    assert_eq!(ours["server"]["sleeps"], true);
    // Two observers do not take each other for servers, nor themselves: this one has mapped the pages twice.
    assert_eq!(
        sessions.iter().filter(|session| session["client"]["pid"] == watcher.pid()).count(),
        1
    );
    // The same for people.
    let table = place.exits(0, &["top", "--once", "--interval", "1ms"]);
    assert!(table.stdout.contains(&format!("{} bellwire", watcher.pid())), "{table:?}");
    assert!(table.stdout.lines().next().unwrap().contains(" calls/s"), "the summary: {table:?}");
    // Another run dir has other providers.
    let elsewhere = Place::new();
    std::fs::create_dir_all(elsewhere.run_dir()).unwrap();
    let run_dir = elsewhere.run_dir().display().to_string();
    let other = place.exits(0, &["top", "--once", "--interval", "1ms", "--run-dir", &run_dir]);
    assert!(other.stdout.contains("0 sessions"), "{other:?}");
}

#[test]
fn a_process_with_names_of_any_bytes_is_shown() {
    let place = Place::new();
    let _provider = place.provider();
    let command = place.command(&["get", "cgroups", "--watch", "--json"]);
    let program = place.run_dir().with_file_name(OsStr::from_bytes(b"\x1b\xff\n"));
    std::fs::copy(command.get_program(), &program).unwrap();
    let mut copy = Command::new(&program);
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    copy.args(command.get_args()).envs(set).current_dir(command.get_current_dir().unwrap());
    let mut watcher = Running::of(&mut copy);
    watcher.stdout_until("cgroups");
    let args = ["top", "--once", "--interval", "1ms", "--service", "cgroups-snapshot"];
    let table = place.run(&args);
    let shown = format!("{} ?\u{fffd}", watcher.pid());
    assert!(table.stdout.contains(&shown), "{table:?}");
    assert!(table.stdout.chars().all(|c| c == '\n' || !c.is_control()), "{table:?}");
}

#[test]
fn a_terminal_without_a_cursor_gets_an_error_and_no_screen() {
    let mut screen = Screen::start(&Place::new(), "dumb", &["top"]);
    screen.until("--once");
    assert_eq!(screen.child.wait().unwrap().exit_code(), 1);
}

#[test]
fn an_interrupt_from_another_process_ends_it() {
    let mut screen = Screen::start(&Place::new(), "xterm-256color", &["top"]);
    screen.until("SERVICE");
    let pid = screen.child.process_id().and_then(|pid| Pid::from_raw(pid.cast_signed())).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(screen.child.wait().unwrap().exit_code(), 130);
}

#[test]
fn without_a_terminal_top_advises_once() {
    let ended = Place::new().run(&["top"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("--once"), "{ended:?}");
}

#[test]
fn top_reports_that_sessions_of_other_users_are_hidden() {
    let place = Place::new();
    open(&place);
    let (_provider, _watcher) = (place.provider(), watcher(&place));
    let Some(ended) = as_nobody(&place, &["top", "--once", "--interval", "10ms"]) else { return };
    assert!(ended.stdout.contains("0 sessions"), "{ended:?}");
    assert!(ended.stderr.contains("could not be looked at"), "{ended:?}");
}
