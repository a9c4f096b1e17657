//! Leaves a stream of one-way requests alone for a moment after taking what there was.
//!
//! A server that polls takes a short request sooner than its client writes the next one. It then finds one request at each poll,
//! and each poll takes the line of the client's Tail away from the client, which stores Tail with the next request: both
//! wait for that line once per request. Nobody waits for the answer to a one-way request, so a server that polls less
//! often loses nothing, and takes many at once.

/// Turns in a row that took only one-way requests, before the session counts as a stream. A client that mixes posts and
/// calls waits for its answers.
const STREAM_AFTER: u32 = 8;
/// Polls that are skipped after a turn of a stream: some 0.5 µs, in which a client posts about 30 short requests.
const SKIPPED_POLLS: u32 = 22;

/// Whether the client streams, and how many polls of it are still skipped.
#[derive(Debug, Default)]
pub(super) struct Holdoff {
    turns: u32,
    left: u32,
}

impl Holdoff {
    /// Returns whether a turn that has taken everything it knows of ends without another poll.
    #[inline]
    pub(super) fn is_streaming(&self) -> bool {
        self.turns >= STREAM_AFTER
    }

    /// Notes a turn that took `taken` messages, of which `posts` were one-way requests. Nothing is skipped while messages
    /// that were seen are left.
    #[inline]
    pub(super) fn turned(&mut self, taken: usize, posts: usize, has_unread: bool) {
        if taken > 0 {
            self.turns = if posts == taken { self.turns.saturating_add(1) } else { 0 };
            self.left = if self.is_streaming() && !has_unread { SKIPPED_POLLS } else { 0 };
        }
    }

    /// Returns whether to skip a poll, and counts it.
    #[inline]
    pub(super) fn skips(&mut self) -> bool {
        let skips = self.left > 0;
        self.left -= u32::from(skips);
        skips
    }

    /// Skips nothing now: before the session is armed, or ends. What arming finds would otherwise stay there, seen but not
    /// taken, and arming again would not find it new.
    #[inline]
    pub(super) fn end(&mut self) {
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many polls are skipped now.
    fn skipped(holdoff: &mut Holdoff) -> u32 {
        std::iter::from_fn(|| holdoff.skips().then_some(())).map(|()| 1).sum()
    }

    /// Returns the state after as many turns that took one one-way request each.
    fn after(turns: u32) -> Holdoff {
        let mut holdoff = Holdoff::default();
        (0..turns).for_each(|_| holdoff.turned(1, 1, false));
        holdoff
    }

    #[test]
    fn a_stream_is_left_alone_and_a_few_posts_are_not() {
        assert_eq!(skipped(&mut after(STREAM_AFTER - 1)), 0);
        let mut holdoff = after(STREAM_AFTER);
        assert!(holdoff.is_streaming());
        assert_eq!((skipped(&mut holdoff), skipped(&mut holdoff)), (SKIPPED_POLLS, 0));
        holdoff.turned(0, 0, false);
        assert_eq!(skipped(&mut holdoff), 0);
        holdoff.turned(30, 30, false);
        assert_eq!(skipped(&mut holdoff), SKIPPED_POLLS);
    }

    #[test]
    fn a_call_ends_the_stream() {
        let mut holdoff = after(100);
        holdoff.turned(2, 1, false);
        assert!(!holdoff.is_streaming());
        assert_eq!(skipped(&mut holdoff), 0);
    }

    #[test]
    fn nothing_is_skipped_while_seen_messages_are_left_or_the_session_is_armed() {
        let mut holdoff = after(100);
        holdoff.turned(64, 64, true);
        assert_eq!(skipped(&mut holdoff), 0);
        let mut holdoff = after(100);
        holdoff.end();
        assert_eq!(skipped(&mut holdoff), 0);
    }
}
