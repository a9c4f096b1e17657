//! The files of a process, as proc(5) and cgroups(7) have them. A name in them may have any bytes but a NUL.

use std::io;
use std::time::Duration;

use crate::cgroups::v1_rank;

/// A tick of the clock in `stat`: `USER_HZ` is 100 wherever this runs.
const TICK: Duration = Duration::from_millis(10);
/// Fields of `stat` behind the name: the first is the state.
const PPID: usize = 1;
const START_TIME: usize = 19;

/// What is needed of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) comm: String,
    pub(super) ppid: u32,
    pub(super) started: Duration,
}

/// What is needed of `/proc/PID/status`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// The process that it is a thread of.
    pub(super) process: u32,
    /// The real uid.
    pub(super) uid: u32,
}

impl Stat {
    pub(super) fn parse(stat: &[u8]) -> io::Result<Self> {
        // The name may have parentheses and line ends.
        let open = stat.iter().position(|byte| *byte == b'(');
        let close = stat.iter().rposition(|byte| *byte == b')');
        let (Some(open), Some(close)) = (open, close) else { return Err(odd("stat")) };
        let comm = stat.get(open + 1..close).ok_or_else(|| odd("stat"))?;
        let rest = stat.get(close + 1..).unwrap_or_default();
        let mut fields = rest.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let ppid = number(fields.nth(PPID)).ok_or_else(|| odd("stat"))?;
        let ticks: u64 = number(fields.nth(START_TIME - PPID - 1)).ok_or_else(|| odd("stat"))?;
        let nanos = u128::from(ticks) * TICK.as_nanos();
        let started = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Ok(Self { comm: printable(comm), ppid, started })
    }
}

impl Status {
    pub(super) fn parse(status: &[u8]) -> io::Result<Self> {
        // Line ends in the name are escaped here.
        let field = |name: &[u8]| {
            let mut lines = status.split(|byte| *byte == b'\n');
            let rest = lines.find_map(|line| line.strip_prefix(name))?;
            rest.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())
        };
        let found = (number(field(b"Tgid:")), number(field(b"Uid:")));
        let (Some(process), Some(uid)) = found else { return Err(odd("status")) };
        Ok(Self { process, uid })
    }
}

/// The path in `/proc/PID/cgroup` that tells most: in the v2 hierarchy, unless the process is at its root and somewhere
/// else in a v1 hierarchy.
pub(super) fn cgroup(lines: &[u8]) -> String {
    let mut best: Option<(bool, usize, &[u8])> = None;
    for line in lines.split(|byte| *byte == b'\n') {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        // A zombie may be in one that was removed.
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let rank = if number == b"0" { 0 } else { 1 + v1_rank(controllers) };
        let here = (path == b"/", rank, path);
        if best.is_none_or(|best| (here.0, here.1) < (best.0, best.1)) {
            best = Some(here);
        }
    }
    best.map(|(.., path)| printable(path)).unwrap_or_default()
}

/// Text that a message may carry: what is not UTF-8, or would steer a terminal, is replaced.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "\u{fffd}")
}

fn number<N: std::str::FromStr>(field: Option<&[u8]>) -> Option<N> {
    std::str::from_utf8(field?).ok()?.parse().ok()
}

fn odd(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} is not as proc(5) has it"))
}
