use super::{HandshakeError, descriptors, differs};
use crate::Instant;
use crate::wire::{
    ControlKind, Doorbell, Hello, Join, Message, PROTOCOL, Refuse, RefuseCode, Welcome,
};

/// The connecting side of the handshake.
#[derive(Debug)]
pub struct ClientHandshake {
    hello: Hello,
    deadline: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    AwaitWelcome,
    Mapping(Welcome),
    AwaitReady(Welcome),
    Over,
}

/// What the client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Verify and map the server's page, lane and board (descriptors 0 to 2; 3 is its eventfd, if that is its
    /// doorbell), create the own memory, then send [`ClientHandshake::join`] with page, lane and, if that is the
    /// own doorbell, an eventfd.
    Map(Welcome),
    /// Data may flow.
    Done(Welcome),
}

impl ClientHandshake {
    /// Starts with `hello`, with the deadline of the whole handshake. Send [`ClientHandshake::hello`] first.
    pub fn new(hello: Hello, deadline: Instant) -> Self {
        Self { hello, deadline, state: State::AwaitWelcome }
    }

    /// Returns the first message; no descriptors.
    pub fn hello(&self) -> Message {
        Message::Hello(self.hello)
    }

    /// Returns the deadline of the handshake.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Checks the deadline.
    ///
    /// # Errors
    /// [`HandshakeError::Deadline`] when it has passed.
    pub fn on_time(&self, now: Instant) -> Result<(), HandshakeError> {
        if now < self.deadline { Ok(()) } else { Err(HandshakeError::Deadline) }
    }

    /// Handles a message that came with `fds` descriptors.
    ///
    /// # Errors
    /// [`HandshakeError`]; the handshake is over: close the socket.
    pub fn on_message(&mut self, bytes: &[u8], fds: usize) -> Result<ClientStep, HandshakeError> {
        let message = Message::parse(bytes, fds).inspect_err(|_| self.state = State::Over)?;
        let kind = message.kind();
        match (core::mem::replace(&mut self.state, State::Over), message) {
            (State::AwaitWelcome, Message::Welcome(welcome)) => {
                let eventfd = usize::from(welcome.doorbell == Doorbell::Eventfd);
                descriptors(kind, fds, 3 + eventfd)?;
                self.check(&welcome)?;
                self.state = State::Mapping(welcome);
                Ok(ClientStep::Map(welcome))
            }
            (State::AwaitReady(welcome), Message::Ready(ready)) => {
                descriptors(kind, fds, 0)?;
                if ready.session != welcome.session {
                    return Err(HandshakeError::Terms { kind, field: "session" });
                }
                Ok(ClientStep::Done(welcome))
            }
            (State::AwaitWelcome | State::AwaitReady(_), Message::Refuse(refuse)) => {
                descriptors(kind, fds, 0)?;
                Err(refused(refuse))
            }
            _ => Err(HandshakeError::Unexpected { kind }),
        }
    }

    /// Returns the second message once the memory is mapped; `None` before that.
    pub fn join(&mut self) -> Option<Message> {
        let State::Mapping(welcome) = self.state else { return None };
        self.state = State::AwaitReady(welcome);
        Some(Message::Join(Join { session: welcome.session }))
    }

    fn check(&self, welcome: &Welcome) -> Result<(), HandshakeError> {
        let fields = [
            ("version", self.hello.versions.range().contains(&welcome.version)),
            ("features", welcome.features & !self.hello.features == 0),
            ("lane size", welcome.lane == self.hello.limits.opening(welcome.lane)),
            ("lane limit", welcome.limits.opening(self.hello.lane) == self.hello.lane),
            ("doorbell", welcome.doorbell != Doorbell::Eventfd || self.hello.rings_eventfd),
        ];
        match fields.iter().find(|(_, fits)| !fits) {
            Some((field, _)) => Err(HandshakeError::Terms { kind: ControlKind::Welcome, field }),
            None => differs(self.hello.schema, welcome.schema).map_or(Ok(()), Err),
        }
    }
}

fn refused(refuse: Refuse) -> HandshakeError {
    match refuse.code {
        RefuseCode::Incompatible => {
            HandshakeError::Incompatible { ours: PROTOCOL, theirs: refuse.versions }
        }
        _ => HandshakeError::Refused(refuse),
    }
}
