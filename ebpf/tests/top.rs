//! `top`: the live table, with and without a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::process::{Process, pair, program};
use crate::support::tracer::{TRACER, Tracer};

/// The tracer on a pseudoterminal, with both sides of that.
struct Terminal {
    child: Child,
    keys: File,
    inside: File,
    shown: String,
}

impl Terminal {
    fn start(args: &[&str]) -> Self {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let inside = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
        let inside = File::from(inside);
        let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&inside, size).unwrap();
        let end = || Stdio::from(inside.try_clone().unwrap());
        let child = Command::new(TRACER)
            .args(args)
            .stdin(end())
            .stdout(end())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, keys: File::from(outside), inside, shown: String::new() }
    }

    /// Reads until this text is shown.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let mut bytes = [0; 4096];
        while !self.shown.contains(text) {
            let length = self.keys.read(&mut bytes).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    }
}

#[test]
fn a_key_ends_it_and_restores_the_terminal() {
    let (_dir, server, mut client) = pair();
    let pid = server.pid().to_string();
    // Skips the test if tracing is not permitted.
    let Some(tracer) = Tracer::start(&["top", "-p", &pid]) else { return };
    drop(tracer);
    let file = program();
    let args = ["top", "-p", &pid, "0.05", "--rate", "all", "--exe", file.to_str().unwrap()];
    let mut terminal = Terminal::start(&args);
    terminal.wait_for("\x1b[?1049h");
    let modes = || tcgetattr(&terminal.inside).unwrap().local_modes;
    assert!(!modes().contains(LocalModes::ICANON) && modes().contains(LocalModes::ISIG));
    client.ask("calls 20 3000");
    terminal.wait_for(&format!(" {} ", client.pid()));
    terminal.wait_for("receive");
    terminal.keys.write_all(b"xq").unwrap();
    assert!(terminal.child.wait().unwrap().success());
    terminal.wait_for("\x1b[?1049l");
    assert!(tcgetattr(&terminal.inside).unwrap().local_modes.contains(LocalModes::ICANON));
}

#[test]
fn sessions_are_sorted_by_calls() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let mut clients = [Process::start("client", dir.path()), Process::start("client", dir.path())];
    let Some(tracer) = Tracer::start_at(&server, &["top", "1000", "--sort", "calls"]) else {
        return;
    };
    clients[0].ask("calls 5 4000");
    clients[1].ask("calls 9 0");
    let rows = tracer.tables();
    let calls: Vec<_> =
        rows.iter().map(|row| (row["client"].clone(), row["calls"].clone())).collect();
    let expected = [(clients[1].pid(), 9), (clients[0].pid(), 5)];
    assert_eq!(calls, expected.map(|(client, calls)| (client.into(), calls.into())));
    assert_eq!(rows[1]["stage"], "receive", "{rows:#?}");
    assert!(rows[1]["share"].as_f64().unwrap() > 0.1, "{rows:#?}");
}
