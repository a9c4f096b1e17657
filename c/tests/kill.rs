//! A C client accounts for everything while its provider, another C program, is killed again and again. Programs in C that are
//! killed themselves, at addressed points: `ci/kill`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::programs::installed;

const KILLS: u32 = 25;

/// A program that is told what to do on its input.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(program: &Path, dir: &tempfile::TempDir) -> Self {
        let mut command = installed().command(program, dir);
        command.arg(dir.path().join("handled"));
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Has it do something.
    pub(crate) fn ask(&mut self, what: u8) {
        self.input.as_mut().unwrap().write_all(&[what]).unwrap();
    }

    /// The next line; empty if the program has ended.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Of a provider: sessions, and those poisoned.
    pub(crate) fn report(&mut self) -> Vec<u64> {
        self.ask(b'?');
        numbers(&self.line())
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        let ended = self.child.wait().unwrap();
        assert!(ended.code().is_none(), "it ended by itself: {ended}");
    }

    /// Ends its input, and returns its last line.
    pub(crate) fn finish(mut self) -> String {
        drop(self.input.take());
        let last = self.output.lines().map_while(Result::ok).last().unwrap_or_default();
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{ended}");
        last
    }
}

pub(crate) fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Whatever a victim is at: up to 4 ms, other each time.
fn wait_at_random() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let random = u64::from(now.subsec_nanos()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42;
    let end = Instant::now() + Duration::from_nanos(random);
    while Instant::now() < end {}
}

#[test]
fn a_c_client_accounts_for_each_request_when_its_provider_is_killed() {
    let [provider, client] = ["kill_provider.c", "kill_client.c"]
        .map(|name| installed().build("cc", &["-std=c11", "-D_GNU_SOURCE"], name));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("handled"), [0; 8]).unwrap();
    let client = Program::start(&client, &dir);
    let handled = || {
        u64::from_le_bytes(std::fs::read(dir.path().join("handled")).unwrap().try_into().unwrap())
    };
    for _ in 0..KILLS {
        let before = handled();
        let victim = Program::start(&provider, &dir);
        let end = Instant::now() + Duration::from_secs(60);
        while handled() == before {
            assert!(Instant::now() < end, "the client calls no successor");
            std::thread::yield_now();
        }
        wait_at_random();
        victim.kill();
    }
    let last = Program::start(&provider, &dir);
    let counts = numbers(&client.finish());
    last.kill();
    assert!(counts[0] > u64::from(KILLS) && counts[1] > 0 && counts[2] > 0, "{counts:?}");
}
