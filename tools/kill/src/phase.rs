//! The phases: which peer is killed, in which scenario, and in which part of it.

use std::fmt;

use bellwire::Doorbell;
use serde::{Deserialize, Serialize};

/// Which peer is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The library that the victim uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    Rust,
    #[cfg(feature = "c")]
    C,
}

/// What the victim does after the gate. Its peer, the survivor, runs the other half. In the order of `victim/c/victim.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub(crate) enum Scenario {
    /// A server binds its endpoints and starts.
    Bind,
    /// A session is opened.
    Open,
    /// A short request and its answer.
    Call,
    /// The same, with an eventfd as the client's doorbell.
    Eventfd,
    /// The same, with the control socket as the client's doorbell.
    Socket,
    /// A few requests in flight together, and their answers.
    Burst,
    /// The victim's lane grows, for its request or its answer.
    Grow,
    /// The survivor's lane grows, and the victim follows.
    Follow,
    /// A request and its answer, each in a memfd of its own.
    Attach,
    /// A server publishes a snapshot, in memory of its own, that the survivor waits for.
    Publish,
    /// The same, in a broadcast ring.
    Broadcast,
    /// A server publishes events over the oldest ones, and then in a larger ring, while the survivor takes them.
    Events,
    /// A server publishes events over the oldest ones, and the survivor takes them only after the death.
    Overrun,
    /// A client subscribes to events, and takes them.
    Subscribe,
    /// A snapshot is passed and taken.
    Fetch,
    /// The victim closes.
    Close,
}

/// Which part of a scenario's trace a phase is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    All,
    /// Up to the first message of the handshake, which a client sends and a server receives.
    Connect,
    /// From that message to the end.
    Handshake,
    /// After the wake-up, until a record is written or taken.
    Wake,
    /// Up to the store to Tail.
    Write,
    /// After the store to Tail, before the ring.
    Publish,
    /// From the increment of Rings to the end of the system call that rings.
    Ring,
    /// From there until the thread sleeps.
    Park,
}

/// Which victim runs what. Its traces are alike.
pub(crate) type Kind = (Language, Side, Scenario);

/// A phase of a session's life, on one side.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) language: Language,
    pub(crate) side: Side,
    pub(crate) scenario: Scenario,
    pub(crate) part: Part,
}

const fn phase(name: &'static str, side: Side, scenario: Scenario, part: Part) -> Phase {
    Phase { name, language: Language::Rust, side, scenario, part }
}

/// Every phase of victims in Rust.
static PHASES: [Phase; 36] = {
    use Side::{Client, Server};
    [
        phase("client/connect", Client, Scenario::Open, Part::Connect),
        phase("client/handshake", Client, Scenario::Open, Part::Handshake),
        phase("client/write", Client, Scenario::Call, Part::Write),
        phase("client/publish", Client, Scenario::Call, Part::Publish),
        phase("client/ring", Client, Scenario::Call, Part::Ring),
        phase("client/park", Client, Scenario::Call, Part::Park),
        phase("client/wake", Client, Scenario::Call, Part::Wake),
        phase("client/eventfd", Client, Scenario::Eventfd, Part::All),
        phase("client/socket", Client, Scenario::Socket, Part::All),
        phase("client/burst", Client, Scenario::Burst, Part::All),
        phase("client/resize", Client, Scenario::Grow, Part::All),
        phase("client/follow", Client, Scenario::Follow, Part::All),
        phase("client/attach", Client, Scenario::Attach, Part::All),
        phase("client/snapshot", Client, Scenario::Fetch, Part::All),
        phase("client/subscribe", Client, Scenario::Subscribe, Part::All),
        phase("client/close", Client, Scenario::Close, Part::All),
        phase("server/bind", Server, Scenario::Bind, Part::All),
        phase("server/connect", Server, Scenario::Open, Part::Connect),
        phase("server/handshake", Server, Scenario::Open, Part::Handshake),
        phase("server/wake", Server, Scenario::Call, Part::Wake),
        phase("server/write", Server, Scenario::Call, Part::Write),
        phase("server/publish", Server, Scenario::Call, Part::Publish),
        phase("server/ring", Server, Scenario::Call, Part::Ring),
        phase("server/park", Server, Scenario::Call, Part::Park),
        phase("server/eventfd", Server, Scenario::Eventfd, Part::All),
        phase("server/socket", Server, Scenario::Socket, Part::All),
        phase("server/burst", Server, Scenario::Burst, Part::All),
        phase("server/resize", Server, Scenario::Grow, Part::All),
        phase("server/follow", Server, Scenario::Follow, Part::All),
        phase("server/attach", Server, Scenario::Attach, Part::All),
        phase("server/snapshot", Server, Scenario::Publish, Part::All),
        phase("server/broadcast", Server, Scenario::Broadcast, Part::All),
        phase("server/events", Server, Scenario::Events, Part::All),
        phase("server/overrun", Server, Scenario::Overrun, Part::All),
        phase("server/pass", Server, Scenario::Fetch, Part::All),
        phase("server/close", Server, Scenario::Close, Part::All),
    ]
};

/// Every phase of victims in C.
#[cfg(feature = "c")]
static C_PHASES: [Phase; 19] = {
    const fn phase(name: &'static str, side: Side, scenario: Scenario) -> Phase {
        Phase { name, language: Language::C, side, scenario, part: Part::All }
    }
    use Side::{Client, Server};
    [
        phase("c/client/handshake", Client, Scenario::Open),
        phase("c/client/call", Client, Scenario::Call),
        phase("c/client/eventfd", Client, Scenario::Eventfd),
        phase("c/client/burst", Client, Scenario::Burst),
        phase("c/client/resize", Client, Scenario::Grow),
        phase("c/client/follow", Client, Scenario::Follow),
        phase("c/client/snapshot", Client, Scenario::Fetch),
        phase("c/client/subscribe", Client, Scenario::Subscribe),
        phase("c/client/close", Client, Scenario::Close),
        phase("c/server/bind", Server, Scenario::Bind),
        phase("c/server/call", Server, Scenario::Call),
        phase("c/server/burst", Server, Scenario::Burst),
        phase("c/server/resize", Server, Scenario::Grow),
        phase("c/server/follow", Server, Scenario::Follow),
        phase("c/server/snapshot", Server, Scenario::Publish),
        phase("c/server/broadcast", Server, Scenario::Broadcast),
        phase("c/server/events", Server, Scenario::Events),
        phase("c/server/pass", Server, Scenario::Fetch),
        phase("c/server/close", Server, Scenario::Close),
    ]
};
#[cfg(not(feature = "c"))]
static C_PHASES: [Phase; 0] = [];

impl Phase {
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        PHASES.iter().chain(&C_PHASES)
    }

    pub(crate) fn kind(&self) -> Kind {
        (self.language, self.side, self.scenario)
    }

    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|phase| phase.name == name)
    }
}

impl Scenario {
    /// How many requests go from the client to the server's handler.
    pub(crate) fn requests(self) -> u64 {
        match self {
            Self::Burst => 4,
            Self::Grow | Self::Follow | Self::Attach => 1,
            scenario if scenario.is_short_call() => 1,
            _ => 0,
        }
    }

    /// How many messages the victim's side publishes whose arrival is certain.
    pub(crate) fn messages(self) -> u64 {
        if self.has_events() { crate::service::EVENTS } else { self.requests().max(1) }
    }

    /// Whether a server publishes events.
    pub(crate) fn has_events(self) -> bool {
        matches!(self, Self::Events | Self::Overrun)
    }

    /// Whether the publishing thread of a server is watched, not its reactor.
    pub(crate) fn is_publishing(self) -> bool {
        self.has_events() || matches!(self, Self::Publish | Self::Broadcast)
    }

    /// Whether it is one short request, with any doorbell.
    pub(crate) fn is_short_call(self) -> bool {
        matches!(self, Self::Call | Self::Eventfd | Self::Socket)
    }

    /// The doorbell of the client.
    pub(crate) fn doorbell(self) -> Doorbell {
        match self {
            Self::Eventfd => Doorbell::Eventfd,
            Self::Socket => Doorbell::Socket,
            _ => Doorbell::Futex,
        }
    }

    pub(crate) fn calls(self) -> bool {
        self.requests() > 0
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl PartialEq for Phase {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Phase {}
