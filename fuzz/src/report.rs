//! Reports of a server's counters, as a stats client decodes them.

use std::time::SystemTime;

use bellwire::{Backend, Message, ServerReport, ServerStats, ServiceName, User};

/// The length of the header before the counters.
const HEAD: usize = 48;
const NAME: usize = 64;
/// The maximum number of rows, and of counters in a row.
const MAX_ROWS: usize = 4096;

/// Decodes a report, and compares it with a second implementation of docs/wire.md.
pub fn run(input: &[u8]) {
    let decoded = ServerReport::decode(input);
    let Some(read) = Reading::of(input) else {
        let malformed = decoded.expect_err("the report is invalid");
        assert!(malformed.at <= input.len() && malformed.len == input.len(), "{malformed}");
        return;
    };
    let report = decoded.expect("the report is valid");
    assert_eq!((report.pid, report.workers), (read.u32(0x04), read.u32(0x10)));
    let since = report.started.duration_since(SystemTime::UNIX_EPOCH).expect("not before 1970");
    assert_eq!(since.as_nanos(), u128::from(read.u64(0x08)));
    assert_eq!(report.backend, backend(input[0x14]));
    assert_eq!(report.backend_requested, backend(input[0x15]).unwrap_or(Backend::Auto));
    assert_eq!((report.max_sessions, report.max_in_flight), (read.u64(0x18), read.u64(0x20)));
    read.counters(&report.total, HEAD);
    assert_eq!(report.services.len(), read.rows);
    for (nth, row) in report.services.iter().enumerate() {
        let at = HEAD + 8 * read.columns + nth * read.row();
        assert_eq!(row.service.to_field(), input[at..at + NAME]);
        read.counters(&row.stats, at + NAME);
        let ServerStats { accepted, answered, refused, lost, .. } = row.stats;
        let ended = [answered, refused, lost].map(u128::from).iter().sum();
        assert_eq!(
            u128::from(row.stats.in_flight()),
            u128::from(accepted).saturating_sub(ended),
            "in flight"
        );
    }
    // This version reads back what it writes, unchanged.
    let mut again = Vec::new();
    report.encode(&mut again);
    assert_eq!(ServerReport::decode(&again), Ok(report));
}

/// A second implementation of the rules of docs/wire.md about a report.
struct Reading<'a> {
    bytes: &'a [u8],
    rows: usize,
    /// The number of counters in a row.
    columns: usize,
}

impl<'a> Reading<'a> {
    /// `None` if the bytes break the rules.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < HEAD {
            return None;
        }
        let mut read = Self { bytes, rows: 0, columns: 0 };
        (read.rows, read.columns) = (read.u32(0x28) as usize, read.u32(0x2c) as usize);
        let (rows, columns) = (read.rows, read.columns);
        let in_limits = rows <= MAX_ROWS && columns <= MAX_ROWS;
        let end = HEAD + 8 * columns + rows.min(MAX_ROWS) * read.row();
        let fits = in_limits
            && match read.u32(0) {
                1 => bytes.len() == end,
                2 => bytes.get(end..).is_some_and(are_incidents),
                _ => false,
            };
        let names = || {
            (0..rows).all(|nth| {
                let at = HEAD + 8 * columns + nth * read.row();
                let field = bytes[at..].first_chunk().unwrap();
                ServiceName::from_field(field).is_ok()
            })
        };
        (fits && names()).then_some(read)
    }

    /// The length of a service's row.
    fn row(&self) -> usize {
        NAME + 8 * self.columns
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(*self.bytes[at..].first_chunk().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self.bytes[at..].first_chunk().unwrap())
    }

    /// Checks the counters: those that the writer and this version both know are in order, all others are 0.
    fn counters(&self, found: &ServerStats, at: usize) {
        for (nth, value) in found.values().into_iter().enumerate() {
            let expected = if nth < self.columns { self.u64(at + 8 * nth) } else { 0 };
            assert_eq!(value, expected, "{}", ServerStats::NAMES[nth]);
        }
    }
}

/// Whether these bytes are the incidents by user, and nothing follows: the numbers of users and of kinds; for each user
/// its name, with its length before it, and a count of each kind.
fn are_incidents(bytes: &[u8]) -> bool {
    let number =
        |bytes: &[u8]| bytes.first_chunk().map(|number| u32::from_le_bytes(*number) as usize);
    let Some((users, kinds)) = number(bytes).zip(bytes.get(4..).and_then(number)) else {
        return false;
    };
    let mut rest = &bytes[8..];
    let are_complete = users <= MAX_ROWS
        && kinds <= MAX_ROWS
        && (0..users).all(|_| {
            let Some(len) = number(rest) else { return false };
            let Some(text) = rest.get(4..).and_then(|rest| rest.get(..len)) else { return false };
            let is_user = std::str::from_utf8(text).is_ok_and(|text| {
                text.is_empty() || text.strip_prefix("uid ").unwrap_or(text).parse::<User>().is_ok()
            });
            let next = rest.get(4 + len + 8 * kinds..);
            rest = next.unwrap_or_default();
            is_user && next.is_some()
        });
    are_complete && rest.is_empty()
}

fn backend(code: u8) -> Option<Backend> {
    [Backend::Epoll, Backend::IoUring, Backend::ThreadPool]
        .into_iter()
        .zip(1..)
        .find_map(|(backend, of)| (of == code).then_some(backend))
}
