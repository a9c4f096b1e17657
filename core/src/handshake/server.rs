use alloc::format;

use subtle::ConstantTimeEq;

use super::{HandshakeError, descriptors, differs};
use crate::wire::{
    ControlError, ControlKind, Doorbell, Hello, Message, PROTOCOL, Ready, Refuse, RefuseCode,
    STATS_VERSION, Welcome,
};
use crate::{Geometry, Limits, ServiceName};

/// The token of a client that has none.
const NO_TOKEN: [u8; 16] = [0; 16];

/// Which clients an endpoint admits. The peer's user was checked before its first message was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The service of this endpoint.
    pub service: ServiceName,
    /// The version of its types.
    pub service_version: u32,
    /// The token that clients must have; `None` admits any.
    pub token: Option<[u8; 16]>,
    /// The server's limits.
    pub limits: Limits,
    /// The features that the server supports: WELCOME accepts those that HELLO offers.
    pub features: u64,
    /// A fingerprint of the service's types; 0 if there is none.
    pub schema: u64,
}

/// What the server offers an admitted client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    /// The session's number, unique within this process.
    pub session: u64,
    /// The size of the server's lane; cut to the client's limit.
    pub lane: Geometry,
    /// The minimum size of the server's lane; cut to the client's limit.
    pub least_lane: Geometry,
    /// The server's preferred doorbell; the socket when the client cannot ring it.
    pub doorbell: Doorbell,
    /// The most items that the server accepts in one batch.
    pub max_batch: u32,
}

/// The accepting side of the handshake.
#[derive(Debug)]
pub struct ServerHandshake {
    admission: Admission,
    state: State,
}

#[derive(Debug)]
enum State {
    AwaitHello,
    Admitted(Hello),
    AwaitJoin(Hello, Welcome),
    Mapping(Welcome),
    Over,
}

/// What the server does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStep {
    /// Admit the client: create memory for it and send [`ServerHandshake::welcome`], or refuse.
    Admit(Hello),
    /// Verify and map the client's page and lane (descriptors 0 and 1; 2 is its eventfd if that is its doorbell),
    /// then send [`ServerHandshake::ready`].
    Map(Hello, Welcome),
}

/// Why the client is not admitted, and the message for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Rejection {
    /// The reason.
    #[source]
    pub error: HandshakeError,
    /// The message to send before closing; no descriptors.
    pub refuse: Refuse,
}

impl ServerHandshake {
    /// Waits for a HELLO. The caller keeps the deadline.
    pub fn new(admission: Admission) -> Self {
        Self { admission, state: State::AwaitHello }
    }

    /// Handles a message that came with `fds` descriptors.
    ///
    /// # Errors
    /// [`Rejection`]; the handshake is over.
    pub fn on_message(&mut self, bytes: &[u8], fds: usize) -> Result<ServerStep, Rejection> {
        let message = Message::parse(bytes, fds)
            .inspect_err(|_| self.state = State::Over)
            .map_err(malformed)?;
        let kind = message.kind();
        match (core::mem::replace(&mut self.state, State::Over), message) {
            (State::AwaitHello, Message::Hello(hello)) => {
                descriptors(kind, fds, 0).map_err(protocol)?;
                self.check(&hello)?;
                self.state = State::Admitted(hello);
                Ok(ServerStep::Admit(hello))
            }
            (State::AwaitJoin(hello, welcome), Message::Join(join)) => {
                let eventfd = usize::from(hello.doorbell == Doorbell::Eventfd);
                descriptors(kind, fds, 2 + eventfd).map_err(protocol)?;
                if join.session != welcome.session {
                    return Err(protocol(HandshakeError::Terms { kind, field: "session" }));
                }
                self.state = State::Mapping(welcome);
                Ok(ServerStep::Map(hello, welcome))
            }
            _ => Err(protocol(HandshakeError::Unexpected { kind })),
        }
    }

    /// Returns the answer to an admitted HELLO; `None` at any other step.
    pub fn welcome(&mut self, terms: SessionTerms) -> Option<Welcome> {
        let State::Admitted(hello) = self.state else { return None };
        let doorbell = match terms.doorbell {
            Doorbell::Eventfd if !hello.rings_eventfd => Doorbell::Socket,
            doorbell => doorbell,
        };
        let lane = hello.limits.opening(self.admission.limits.lane_within_limit(terms.lane));
        let welcome = Welcome {
            version: PROTOCOL.common(hello.versions)?,
            features: hello.features & self.admission.features,
            session: terms.session,
            lane,
            least_lane: terms.least_lane.min(lane),
            limits: self.admission.limits,
            doorbell,
            max_batch: terms.max_batch,
            schema: if hello.service_version == STATS_VERSION { 0 } else { self.admission.schema },
        };
        self.state = State::AwaitJoin(hello, welcome);
        Some(welcome)
    }

    /// Returns the last message once the client's memory is mapped; `None` at any other step.
    pub fn ready(&mut self) -> Option<Message> {
        let State::Mapping(welcome) = self.state else { return None };
        self.state = State::Over;
        Some(Message::Ready(Ready { session: welcome.session }))
    }

    fn check(&self, hello: &Hello) -> Result<(), Rejection> {
        let ours = &self.admission;
        let is_served =
            hello.service_version == ours.service_version || hello.service_version == STATS_VERSION;
        if hello.service != ours.service || !is_served {
            let reason = format!(
                "this endpoint serves version {} of {}, not version {} of {}: check the client's version and run dir",
                ours.service_version, ours.service, hello.service_version, hello.service
            );
            return Err(terms("service", RefuseCode::Service, &reason));
        }
        if hello.service_version != STATS_VERSION {
            if let Some(error) = differs(ours.schema, hello.schema) {
                return Err(reject(RefuseCode::Schema, error));
            }
        }
        if ours.token.is_some_and(|token| !bool::from(token.ct_eq(&hello.token))) {
            let reason = match hello.token {
                NO_TOKEN => {
                    "the server has a token and the client has none: start the client with the server's BELLWIRE_TOKEN"
                }
                _ => {
                    "the client's token is not the server's: start both with the same BELLWIRE_TOKEN"
                }
            };
            return Err(terms("token", RefuseCode::Token, reason));
        }
        if hello.lane != ours.limits.opening(hello.lane) {
            let reason = format!(
                "a client lane of {} bytes is above this server's limit of {}",
                hello.lane.size(),
                ours.limits.opening(Geometry::LARGEST).size()
            );
            return Err(terms("lane size", RefuseCode::Quota, &reason));
        }
        Ok(())
    }
}

fn terms(field: &'static str, code: RefuseCode, reason: &str) -> Rejection {
    let error = HandshakeError::Terms { kind: ControlKind::Hello, field };
    Rejection { error, refuse: Refuse::new(code, reason) }
}

fn protocol(error: HandshakeError) -> Rejection {
    reject(RefuseCode::Protocol, error)
}

fn malformed(error: ControlError) -> Rejection {
    match error {
        ControlError::Version(theirs) => reject(
            RefuseCode::Incompatible,
            HandshakeError::Incompatible { ours: PROTOCOL, theirs },
        ),
        error => protocol(HandshakeError::Control(error)),
    }
}

fn reject(code: RefuseCode, error: HandshakeError) -> Rejection {
    let refuse = Refuse::new(code, &format!("{error}"));
    Rejection { error, refuse }
}
