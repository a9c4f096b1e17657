//! Parses the files of a process, as in proc(5) and cgroups(7). A name in them may contain any byte but NUL.

use std::io;
use std::time::Duration;

use bellwire_cgroups::scan::v1_rank;

/// A clock tick in `stat`: `USER_HZ` is 100 on all supported machines.
const TICK: Duration = Duration::from_millis(10);
/// Fields of `stat` behind the name: the first is the state.
const PPID: usize = 1;
const START_TIME: usize = 19;

/// The required parts of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) comm: String,
    pub(super) ppid: u32,
    pub(super) started: Duration,
}

/// The required parts of `/proc/PID/status`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// The process to which the thread belongs.
    pub(super) process: u32,
    /// The real uid.
    pub(super) uid: u32,
}

impl Stat {
    pub(super) fn parse(stat: &[u8]) -> io::Result<Self> {
        // The name may contain parentheses and line ends.
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
        // Line ends in the name are escaped in this file.
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

/// Returns the most informative path in `/proc/PID/cgroup`: the one in the v2 hierarchy, unless the process is at that root
/// and elsewhere in a v1 hierarchy.
pub(super) fn cgroup(lines: &[u8]) -> String {
    let mut best: Option<(bool, usize, &[u8])> = None;
    for line in lines.split(|byte| *byte == b'\n') {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        // A zombie may be in a removed cgroup.
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let rank = if number == b"0" { 0 } else { 1 + v1_rank(controllers) };
        let here = (path == b"/", rank, path);
        if best.is_none_or(|best| (here.0, here.1) < (best.0, best.1)) {
            best = Some(here);
        }
    }
    best.map(|(.., path)| printable(path)).unwrap_or_default()
}

/// Returns text that a message may carry: invalid UTF-8 and terminal control characters are replaced.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "\u{fffd}")
}

fn number<N: std::str::FromStr>(field: Option<&[u8]>) -> Option<N> {
    std::str::from_utf8(field?).ok()?.parse().ok()
}

fn odd(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} is not as proc(5) has it"))
}
