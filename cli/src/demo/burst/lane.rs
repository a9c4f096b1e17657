use bellwire::{Geometry, LaneStats, SessionStats};

use super::figures::{LaneChange, LaneSpan};
use crate::out;

/// Longer messages that callers wait for are sent in parts. This is the default of both ends.
const IN_PARTS: usize = 64 << 10;

/// This end's last action, which may have changed a lane's size.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// A call with a request and an answer of this many bytes each.
    Call(usize),
    /// A submitted request of this many bytes, not waited for.
    Submit(usize),
    /// An answer of this many bytes to a submitted request.
    Answer(usize),
    Trim,
}

/// Watches both lanes of a session.
#[derive(Debug)]
pub(super) struct Watch([Watched; 2]);

#[derive(Debug)]
struct Watched {
    epoch: u32,
    span: LaneSpan,
}

impl Watch {
    pub(super) fn new(session: &'static str, stats: &SessionStats) -> Self {
        let watched = |lane, LaneStats { epoch, size, .. }: LaneStats| {
            let span = LaneSpan { session, lane, first: size, most: size, last: size };
            Watched { epoch, span }
        };
        Self([watched("requests", stats.requests), watched("answers", stats.answers)])
    }

    /// Returns the lanes whose size has changed since the last check.
    pub(super) fn changes(
        &mut self,
        stats: &SessionStats,
        cause: Cause,
    ) -> impl Iterator<Item = LaneChange> {
        let now = [stats.requests, stats.answers];
        self.0.iter_mut().zip(now).filter_map(move |(Watched { epoch, span }, now)| {
            if now.epoch == *epoch {
                return None;
            }
            let LaneSpan { session, lane, last: from, .. } = *span;
            (*epoch, span.last, span.most) = (now.epoch, now.size, span.most.max(now.size));
            let why = why(from, now.size, cause);
            Some(LaneChange { session, lane, epoch: now.epoch, from, to: now.size, why })
        })
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = LaneSpan> {
        self.0.iter().map(|lane| lane.span)
    }
}

/// Returns why a lane changed its size, as far as this end knows.
fn why(from: u64, to: u64, cause: Cause) -> String {
    let fits = |len| Geometry::new(from).is_ok_and(|lane| len <= lane.max_payload());
    match cause {
        Cause::Trim => "trimmed".to_owned(),
        _ if to < from => "little used".to_owned(),
        Cause::Call(len) | Cause::Answer(len) if len > IN_PARTS => {
            format!("{} go in parts", out::bytes(len as u64))
        }
        Cause::Call(len) | Cause::Submit(len) | Cause::Answer(len) if !fits(len) => {
            format!("{} did not fit", out::bytes(len as u64))
        }
        _ => "was often full".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_change_has_a_reason() {
        let small = Geometry::DEFAULT.size();
        assert_eq!(why(small, 2 * small, Cause::Submit(8 << 10)), "8 KiB did not fit");
        assert_eq!(why(small, 2 * small, Cause::Submit(64)), "was often full");
        assert_eq!(why(small, 16 * small, Cause::Call(1 << 20)), "1 MiB go in parts");
        assert_eq!(why(2 * small, small, Cause::Trim), "trimmed");
    }

    #[test]
    fn a_change_is_reported_once() {
        let mut stats = SessionStats::default();
        stats.requests.epoch = 1;
        stats.requests.size = 1 << 14;
        let mut watch = Watch::new("burst", &stats);
        assert_eq!(watch.changes(&stats, Cause::Call(64)).count(), 0);
        stats.requests.epoch = 3;
        stats.requests.size = 1 << 16;
        let changes: Vec<_> = watch.changes(&stats, Cause::Submit(64)).collect();
        let [change] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((change.epoch, change.from, change.to), (3, 1 << 14, 1 << 16));
        assert_eq!((change.session, change.lane), ("burst", "requests"));
        assert_eq!(watch.changes(&stats, Cause::Submit(64)).count(), 0);
        assert_eq!(watch.spans().next().unwrap().most, 1 << 16);
    }
}
