/// What an epoll token names.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Bell,
    Station(usize),
    Socket(Place),
    Doorbell(Place),
    /// The process of one session.
    Process(Place),
    /// A process of any number of sessions, by its number.
    Peer(u32),
    /// Where the endpoints are.
    RunDir,
}

/// A seat, and the session that sits there: a late event for a session that is over finds another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: usize,
    /// The session's number, low 32 bits.
    session: u32,
}

impl Place {
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are what is meant")]
    pub(super) fn new(slot: usize, session: u64) -> Self {
        Self { slot, session: session as u32 }
    }
}

impl Source {
    /// Three bits of kind, 29 of seat, 32 of session.
    pub(super) fn token(self) -> u64 {
        let (kind, at, session) = match self {
            Self::Bell => (0, 0, 0),
            Self::Station(at) => (1, at, 0),
            Self::Socket(place) => (2, place.slot, place.session),
            Self::Doorbell(place) => (3, place.slot, place.session),
            Self::Process(place) => (4, place.slot, place.session),
            Self::Peer(pid) => (5, 0, pid),
            Self::RunDir => (6, 0, 0),
        };
        u64::from(session) << 32 | (at as u64) << 3 | kind
    }

    pub(super) fn parse(token: u64) -> Option<Self> {
        let slot = usize::try_from(token >> 3 & 0x1fff_ffff).ok()?;
        let place = Place::new(slot, token >> 32);
        Some(match token & 7 {
            0 => Self::Bell,
            1 => Self::Station(slot),
            2 => Self::Socket(place),
            3 => Self::Doorbell(place),
            4 => Self::Process(place),
            5 => Self::Peer(place.session),
            6 => Self::RunDir,
            _ => return None,
        })
    }
}
