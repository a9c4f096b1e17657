use core::array::from_fn;

use zerocopy::FromBytes;

use super::{
    COUNTERS_AT, COUNTERS_LAYOUT, CloseReason, Counter, Doorbell, Latency, PAGE_SIZE, PageHeader,
    PageState, Role,
};
use crate::{ServiceName, Word};

/// What an observer reads in an end's page. The page's owner wrote all of it, so it may be false.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeenPage {
    /// The end that owns the page.
    pub role: Role,
    /// The service.
    pub service: ServiceName,
    /// The session's number, unique in the server's process.
    pub session: u64,
    /// The owner's process id, as it sees itself.
    pub pid: u32,
    /// When the page was created, in nanoseconds since the Unix epoch.
    pub created: u64,
    /// Bytes published in the owner's lane.
    pub tail: u64,
    /// Bytes taken from the peer's lane.
    pub head: u64,
    /// Whether the owner requests a ring when the peer publishes: it sleeps, or is about to.
    pub sleeps: bool,
    /// Whether the owner has closed its end, with the reason if it is known.
    pub closed: Option<Option<CloseReason>>,
    /// The owner's doorbell; `None` for one of another version.
    pub doorbell: Option<Doorbell>,
    /// How often it rang.
    pub rings: u64,
    /// How often it parked; 0 for a server.
    pub parks: u64,
    /// The counters; `None` where the page has none that this version knows.
    pub counters: Option<Counters>,
}

/// The counters in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    values: [u64; Counter::COUNT],
    /// The latencies of a client's calls.
    pub latency: Latency,
}

impl Counters {
    /// Returns the value of a counter.
    pub fn of(&self, counter: Counter) -> u64 {
        let mut all = Counter::all().zip(self.values);
        all.find(|(each, _)| *each == counter).map_or(0, |(_, value)| value)
    }

    /// Returns the requests that have not ended.
    pub fn in_flight(&self) -> u64 {
        let ended = [Counter::Answered, Counter::Refused, Counter::Failed, Counter::Posted];
        // The counters are read one by one while the owner updates them.
        ended
            .iter()
            .fold(self.of(Counter::Requests), |left, ended| left.saturating_sub(self.of(*ended)))
    }

    /// Returns the size of the owner's lane in bytes.
    pub fn lane_size(&self) -> u64 {
        self.of(Counter::Lane) >> 32
    }
}

impl SeenPage {
    /// Parses a copy of a page; `None` when it does not have this layout.
    pub fn parse(page: &[u8; PAGE_SIZE]) -> Option<Self> {
        let (header, _) = PageHeader::read_from_prefix(page).ok()?;
        let (role, service) = header.owner()?;
        let state = PageState::parse(word(page, Word::State.offset()));
        let counters = (word(page, COUNTERS_AT) == COUNTERS_LAYOUT).then(|| Counters {
            values: from_fn(|nth| word(page, Counter::Requests.offset() + 8 * nth)),
            latency: Latency(from_fn(|bucket| word(page, Latency::offset(bucket)))),
        });
        let doorbell = u32::try_from(word(page, Word::Doorbell.offset())).ok();
        Some(Self {
            role,
            service,
            session: header.session(),
            pid: header.pid(),
            created: header.created(),
            tail: word(page, Word::Tail.offset()),
            head: word(page, Word::Head.offset()),
            sleeps: word(page, Word::WantData.offset()) != u64::MAX,
            closed: state.and_then(|(state, why)| (state == PageState::Closed).then_some(why)),
            doorbell: doorbell.and_then(Doorbell::parse),
            rings: word(page, Word::Rings.offset()),
            parks: word(page, Word::Parks.offset()),
            counters,
        })
    }

    /// Returns the bytes in use of the owner's lane: those that `peer` has not taken.
    pub fn in_use(&self, peer: &Self) -> u64 {
        self.tail.saturating_sub(peer.head)
    }
}

/// Returns the word at `offset`; 0 after the page's end.
fn word(page: &[u8; PAGE_SIZE], offset: usize) -> u64 {
    let bytes = page.get(offset..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
