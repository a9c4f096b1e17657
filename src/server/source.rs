/// What an epoll token identifies.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Bell,
    Listener(usize),
    Socket(SlotKey),
    Doorbell(SlotKey),
    /// The process of one session.
    Process(SlotKey),
    /// A process of any number of sessions, by pid.
    Peer(u32),
    /// The directory of the endpoints.
    RunDir,
}

/// A slot and the session in it: a late event for a session that is over does not match the slot's next session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotKey {
    pub(super) slot: usize,
    /// The low 32 bits of the session's number.
    session: u32,
}

impl SlotKey {
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are what is meant")]
    pub(super) fn new(slot: usize, session: u64) -> Self {
        Self { slot, session: session as u32 }
    }
}

impl Source {
    /// Packs three bits of kind, 29 of slot and 32 of session.
    pub(super) fn token(self) -> u64 {
        let (kind, at, session) = match self {
            Self::Bell => (0, 0, 0),
            Self::Listener(at) => (1, at, 0),
            Self::Socket(key) => (2, key.slot, key.session),
            Self::Doorbell(key) => (3, key.slot, key.session),
            Self::Process(key) => (4, key.slot, key.session),
            Self::Peer(pid) => (5, 0, pid),
            Self::RunDir => (6, 0, 0),
        };
        u64::from(session) << 32 | (at as u64) << 3 | kind
    }

    pub(super) fn parse(token: u64) -> Option<Self> {
        let slot = usize::try_from(token >> 3 & 0x1fff_ffff).ok()?;
        let key = SlotKey::new(slot, token >> 32);
        Some(match token & 7 {
            0 => Self::Bell,
            1 => Self::Listener(slot),
            2 => Self::Socket(key),
            3 => Self::Doorbell(key),
            4 => Self::Process(key),
            5 => Self::Peer(key.session),
            6 => Self::RunDir,
            _ => return None,
        })
    }
}
