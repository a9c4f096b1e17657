use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, Once, OnceLock};
use std::time::Duration;

use bellwire::{Client, ServerConfig};
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::support::guard::TEST_TIMEOUT;
use crate::support::test_server::{Dir, client_config, provide_with};

/// A service that no other test of this process serves.
struct Logged;

impl bellwire::Service for Logged {
    const NAME: &'static str = "logged";
    type Request = u64;
    type Response = u64;
}

/// The same of a later version, which the server does not have.
#[derive(Debug)]
struct Newer;

impl bellwire::Service for Newer {
    const NAME: &'static str = <Logged as bellwire::Service>::NAME;
    const VERSION: u32 = 7;
    type Request = u64;
    type Response = u64;
}

/// Hands on the lines about that service.
struct Lines(Mutex<Sender<(Level, String)>>);

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = record.args().to_string();
        if record.target() == "bellwire" && line.contains("service=logged ") {
            // The receiver is gone at the end of a test.
            let _ = self.0.lock().unwrap().send((record.level(), line));
        }
    }

    fn flush(&self) {}
}

fn lines() -> Receiver<(Level, String)> {
    static LINES: OnceLock<Lines> = OnceLock::new();
    static SET: Once = Once::new();
    let (sender, receiver) = channel();
    let lines = LINES.get_or_init(|| Lines(Mutex::new(sender)));
    SET.call_once(|| log::set_logger(lines).unwrap());
    log::set_max_level(LevelFilter::Info);
    receiver
}

#[test]
fn counters_are_logged_once_in_an_interval_also_of_a_server_at_rest() {
    let lines = lines();
    let dir = Dir::new();
    let config = ServerConfig::default().stats_every(Some(Duration::from_millis(20)));
    let _server = provide_with::<Logged>(&dir.run_dir, config, |_, number| Ok(number));
    let mut client = Client::<Logged>::with_config(&dir.run_dir, client_config());
    for number in 0..3 {
        assert_eq!(client.call(&number).unwrap(), number);
    }
    let next = || lines.recv_timeout(TEST_TIMEOUT).expect("a line in time");
    let mut since = 0;
    loop {
        let (level, line) = next();
        assert_eq!(level, Level::Info);
        assert!(line.starts_with("[STATS] service=logged sessions="), "{line}");
        let counts = line.split(" accepted=").nth(1).unwrap().split(' ').next().unwrap();
        let (all, new) = counts.trim_end_matches(')').split_once("(+").unwrap();
        since += new.parse::<u64>().unwrap();
        assert_eq!(all.parse(), Ok(since), "{line}");
        if since == 3 {
            break;
        }
    }
    // Nothing happens, and it continues.
    let (_, line) = next();
    assert!(line.contains("accepted=3(+0) answered=3(+0) refused=0(+0)"), "{line}");
    // What happens is logged in between.
    let error = Client::<Newer>::with_config(&dir.run_dir, client_config()).connect().unwrap_err();
    assert_eq!(error.kind(), bellwire::ErrorKind::Refused);
    let (level, line) = loop {
        let (level, line) = next();
        if line.starts_with("[INCIDENT] ") {
            break (level, line);
        }
    };
    assert_eq!(level, Level::Warn);
    let pid = format!("pid=\"{}\"", std::process::id());
    let user = format!("user=\"{}\"", bellwire::User::own());
    for part in ["service=logged kind=refused", &pid, &user, "session=\"", "suppressed=0"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}
