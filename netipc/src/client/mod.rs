//! Reads services that still speak netipc, so that a consumer can arrive before its provider. Nothing is connected before the
//! first call, and no thread is started.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwire_core::{Fault, Instant, ServiceName};
use bellwire_memfd::endpoint::{ConnectError, connect_trusting, owner_trusted_by_root};
use bellwire_memfd::pass::{Channel, ReceiveError, SendError};
use bellwire_memfd::peer::{self, User};
use bellwire_memfd::prelude::*;
use bellwire_memfd::{Linux, clock, poll};

use crate::handshake::{Agreed, MAX_REQUEST, MAX_RESPONSE, Proposal};
use crate::lookup::{self, Answers, App, Cgroup};
use crate::method::{APPS_LOOKUP, CGROUPS_LOOKUP, CGROUPS_SNAPSHOT};
use crate::snapshot::{self, View};
use crate::wire::{Arriving, Header, Leaving, MAX_PACKET, REQUEST, RESPONSE};
use crate::{Malformed, Status, Token, Violation};

/// The payload of an answer that is proposed at first, in bytes.
const FIRST_RESPONSE: u32 = 1 << 20;
/// The most keys in one request: larger look-ups take several.
const MAX_KEYS: usize = 1024;

/// The configuration of a [`Client`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The token to present. Default: that of the environment, or 0.
    pub token: Token,
    /// Users, besides this one and root, whose providers are trusted. Default: none. A client of root also trusts the owner of
    /// the run dir, on the terms of `bellwire::ClientConfig::trusted`.
    pub trusted: Vec<User>,
    /// How long a call may take, with its handshake. Default: 5 s.
    pub timeout: Duration,
}

/// A reader of one provider's service, or of several in one run dir.
///
/// ```no_run
/// use bellwire_netipc::Client;
///
/// # fn main() -> Result<(), bellwire_netipc::ClientError> {
/// let mut client = Client::new("/run/netdata");
/// client.snapshot(|cgroups| {
///     for cgroup in &cgroups.items {
///         println!("{} {}", cgroup.name, cgroup.path);
///     }
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    run_dir: PathBuf,
    config: ClientConfig,
    sessions: Vec<Session>,
    /// What is proposed for answers.
    max_response: u32,
}

/// Why a call failed. Every call only reads, and may be made again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The service cannot be reached; [`ConnectError::Absent`] is a state rather than a failure.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The process behind the socket runs as a user who is not trusted.
    #[error("{service} is provided by {}: list that user in the client's trusted users", .user.map_or_else(|| "an unknown user".into(), |user| user.to_string()))]
    Impostor {
        /// The service.
        service: ServiceName,
        /// The user, if the system tells.
        user: Option<User>,
    },
    /// The provider refused the session, or a request.
    #[error("{service}: the provider refused, because of {status}")]
    Refused {
        /// The service.
        service: ServiceName,
        /// The status of its answer.
        status: Status,
    },
    /// The provider closed the connection: it ended, or restarts.
    #[error("{service}: the provider went away: try again")]
    Gone {
        /// The service.
        service: ServiceName,
    },
    /// The call took too long.
    #[error("{service}: no answer in time")]
    Late {
        /// The service.
        service: ServiceName,
    },
    /// The provider broke the protocol.
    #[error("{service}: the provider violated the protocol: {violation}")]
    Violation {
        /// The service.
        service: ServiceName,
        /// The rule that it broke.
        violation: Violation,
    },
    /// The provider's answer is malformed.
    #[error("{service}: the provider's answer is malformed: {malformed}")]
    Malformed {
        /// The service.
        service: ServiceName,
        /// The first fault in it.
        malformed: Malformed,
    },
    /// The provider restarted between the parts of an answer, or left parts out without end.
    #[error("{service}: the provider changed while it answered: try again")]
    Inconsistent {
        /// The service.
        service: ServiceName,
    },
    /// The system refused.
    #[error("{service}: cannot talk to the provider: {source}")]
    System {
        /// The service.
        service: ServiceName,
        /// The error from the system.
        source: std::io::Error,
    },
}

impl ClientError {
    /// Returns who has to act.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Connect(ConnectError::Absent { .. } | ConnectError::Busy { .. }) => Fault::Nobody,
            Self::Gone { .. } | Self::Inconsistent { .. } => Fault::Nobody,
            Self::Connect(ConnectError::System { .. }) | Self::System { .. } => Fault::System,
            Self::Refused { status: Status::AuthFailed, .. } => Fault::Caller,
            Self::Connect(_) | Self::Late { .. } | Self::Impostor { .. } => Fault::Caller,
            Self::Refused { .. } | Self::Violation { .. } | Self::Malformed { .. } => Fault::Peer,
        }
    }

    /// Returns whether the provider ended: the same call succeeds once it is back.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        let token = Token::from_environment().unwrap_or(Token::new(0));
        Self { token, trusted: Vec::new(), timeout: Duration::from_secs(5) }
    }
}

impl ClientConfig {
    /// Sets [`ClientConfig::token`].
    #[must_use]
    pub fn token(self, token: Token) -> Self {
        Self { token, ..self }
    }

    /// Sets [`ClientConfig::trusted`].
    #[must_use]
    pub fn trusted(self, trusted: Vec<User>) -> Self {
        Self { trusted, ..self }
    }

    /// Sets [`ClientConfig::timeout`].
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

impl Client {
    /// Reads services in this run dir. Connects to nothing yet.
    pub fn new(run_dir: impl AsRef<Path>) -> Self {
        Self::with_config(run_dir, ClientConfig::default())
    }

    /// Like [`Client::new`], with a configuration other than the default.
    pub fn with_config(run_dir: impl AsRef<Path>, config: ClientConfig) -> Self {
        let run_dir = run_dir.as_ref().to_owned();
        Self { run_dir, config, sessions: Vec::new(), max_response: FIRST_RESPONSE }
    }

    /// Reads the cgroups, and passes them to the function.
    ///
    /// # Errors
    /// [`ClientError`]: the function was not called.
    pub fn snapshot<R>(&mut self, read: impl FnOnce(&View<'_>) -> R) -> Result<R, ClientError> {
        const SERVICE: ServiceName = ServiceName::constant("cgroups-snapshot");
        let until = clock::now().after(self.config.timeout);
        let payload = self.call(SERVICE, CGROUPS_SNAPSHOT, &snapshot::REQUEST, until)?;
        let malformed = |malformed| ClientError::Malformed { service: SERVICE, malformed };
        Ok(read(&View::parse(&payload).map_err(malformed)?))
    }

    /// Looks cgroups up by their paths; the answers are in the order of the paths.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn lookup_cgroups(&mut self, paths: &[&str]) -> Result<Vec<Cgroup>, ClientError> {
        const SERVICE: ServiceName = ServiceName::constant("cgroups-lookup");
        let key = |path: &&str| [path.as_bytes(), &[0]].concat();
        self.look_up(SERVICE, CGROUPS_LOOKUP, paths, key, lookup::read_cgroups)
    }

    /// Looks processes up by their pids; the answers are in the order of the pids.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn lookup_apps(&mut self, pids: &[u32]) -> Result<Vec<App>, ClientError> {
        const SERVICE: ServiceName = ServiceName::constant("apps-lookup");
        let key = |pid: &u32| [pid.to_ne_bytes(), [0; 4]].concat();
        self.look_up(SERVICE, APPS_LOOKUP, pids, key, lookup::read_apps)
    }

    /// Asks until there is an answer to each key: a provider leaves out what exceeds its room.
    fn look_up<K, T>(
        &mut self,
        service: ServiceName,
        code: u16,
        keys: &[K],
        encode: impl Fn(&K) -> Vec<u8>,
        read: impl Fn(&[u8], &[K]) -> Result<Answers<T>, Malformed>,
    ) -> Result<Vec<T>, ClientError> {
        let until = clock::now().after(self.config.timeout);
        let (mut found, mut generation) = (Vec::new(), None);
        while found.len() < keys.len() {
            let left = keys.get(found.len()..).unwrap_or_default();
            let asked = left.get(..MAX_KEYS).unwrap_or(left);
            let encoded: Vec<_> = asked.iter().map(&encode).collect();
            let payload = self.call(service, code, &lookup::write_request(&encoded), until)?;
            let answers = read(&payload, asked)
                .map_err(|malformed| ClientError::Malformed { service, malformed })?;
            let before = found.len();
            found.extend(answers.items.into_iter().map_while(|item| item));
            if found.len() == before
                || *generation.get_or_insert(answers.generation) != answers.generation
            {
                return Err(ClientError::Inconsistent { service });
            }
        }
        Ok(found)
    }

    /// Sends a request and returns the payload of the answer. Connects if there is no session; once more if the provider was
    /// restarted, or with larger limits.
    fn call(
        &mut self,
        service: ServiceName,
        code: u16,
        payload: &[u8],
        until: Instant,
    ) -> Result<Vec<u8>, ClientError> {
        let mut is_fresh = false;
        loop {
            let at = self.sessions.iter().position(|session| session.service == service);
            let mut session = match at {
                Some(at) => self.sessions.swap_remove(at),
                None => {
                    is_fresh = true;
                    self.connect(service, until)?
                }
            };
            match session.call(code, payload, until) {
                Ok(answer) => {
                    self.sessions.push(session);
                    return Ok(answer);
                }
                Err(error) if error.is_gone() && !is_fresh => {}
                Err(ClientError::Refused { status: Status::LimitExceeded, .. })
                    if self.max_response < MAX_RESPONSE =>
                {
                    self.max_response *= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn connect(&self, service: ServiceName, until: Instant) -> Result<Session, ClientError> {
        let ClientConfig { token, trusted, .. } = &self.config;
        let mut trusted = Cow::Borrowed(&trusted[..]);
        if let Some(owner) = owner_trusted_by_root(&self.run_dir) {
            trusted.to_mut().push(owner);
        }
        let channel = connect_trusting(&self.run_dir, service, &trusted, Some(until))?;
        let credentials = peer::credentials(&channel);
        let user = credentials.as_ref().ok().map(peer::Credentials::user);
        if !credentials.is_ok_and(|credentials| credentials.is_among(&trusted)) {
            return Err(ClientError::Impostor { service, user });
        }
        let (max_request, max_response) = (MAX_REQUEST, self.max_response);
        let proposal = Proposal { token: *token, max_request, max_response };
        let mut session = Session { service, channel, agreed: None, room: Vec::new(), next: 1 };
        session.send(&proposal.encode(), until)?;
        let ack = Proposal::read_ack(session.receive(until)?);
        match ack.map_err(|violation| session.violated(violation))? {
            Ok(agreed) => Ok(Session { agreed: Some(agreed), ..session }),
            Err(status) => Err(ClientError::Refused { service, status }),
        }
    }
}

/// One connection.
#[derive(Debug)]
struct Session {
    service: ServiceName,
    channel: Channel,
    /// `None` before the handshake.
    agreed: Option<Agreed>,
    room: Vec<u8>,
    next: u64,
}

impl Session {
    fn call(&mut self, code: u16, payload: &[u8], until: Instant) -> Result<Vec<u8>, ClientError> {
        let service = self.service;
        let Some(agreed) = self.agreed else { return Err(ClientError::Gone { service }) };
        if payload.len() > agreed.max_request as usize {
            return Err(ClientError::Refused { service, status: Status::LimitExceeded });
        }
        let id = self.next;
        self.next += 1;
        let header = Header::new(REQUEST, code, payload.len(), 1, id);
        let mut leaving = Leaving::new(header, payload, agreed.packet);
        let mut datagram = Vec::new();
        while !leaving.is_gone() {
            leaving.datagram(&mut datagram);
            self.send(&datagram, until)?;
            leaving.advance();
        }
        let begun = begin(self.receive(until)?, code, id, &agreed);
        let (mut arriving, status) = begun.map_err(|violation| self.violated(violation))?;
        if status != Status::Ok {
            return Err(ClientError::Refused { service, status });
        }
        while !arriving.is_whole() {
            let added = arriving.chunk(self.receive(until)?);
            added.map_err(|violation| self.violated(violation))?;
        }
        Ok(arriving.into_payload())
    }

    fn send(&self, datagram: &[u8], until: Instant) -> Result<(), ClientError> {
        let service = self.service;
        loop {
            match self.channel.send(datagram, &[]) {
                Ok(()) => return Ok(()),
                Err(SendError::WouldBlock) => {
                    let ready = poll::wait_writable(self.channel.arrived(), Some(until));
                    if !ready.map_err(|source| self.failed(source))? {
                        return Err(ClientError::Late { service });
                    }
                }
                // What it said before is still to be read.
                Err(SendError::Gone) => return Ok(()),
                Err(error) => return Err(self.failed(std::io::Error::other(error))),
            }
        }
    }

    fn receive(&mut self, until: Instant) -> Result<&[u8], ClientError> {
        let service = self.service;
        self.room.resize(MAX_PACKET as usize, 0);
        loop {
            match self.channel.receive(&mut self.room, 0) {
                Ok(received) => {
                    let len = received.len;
                    drop(received);
                    return Ok(self.room.get(..len).unwrap_or_default());
                }
                Err(ReceiveError::WouldBlock) => {
                    let ready = Linux::wait_any(&[self.channel.arrived()], Some(until));
                    if !ready.map_err(|source| self.failed(source))? {
                        return Err(ClientError::Late { service });
                    }
                }
                Err(ReceiveError::Closed) => return Err(ClientError::Gone { service }),
                Err(ReceiveError::TooLong { room }) => {
                    let violation = Violation::Length { len: room + 1, expected: room };
                    return Err(self.violated(violation));
                }
                Err(ReceiveError::TooManyObjects { count, .. }) => {
                    let (field, value) = ("count of descriptors", count as u64);
                    return Err(self.violated(Violation::Field { field, value }));
                }
                Err(error) => return Err(self.failed(std::io::Error::other(error))),
            }
        }
    }

    fn violated(&self, violation: Violation) -> ClientError {
        ClientError::Violation { service: self.service, violation }
    }

    fn failed(&self, source: impl Into<std::io::Error>) -> ClientError {
        ClientError::System { service: self.service, source: source.into() }
    }
}

/// Checks the first datagram of an answer.
fn begin(
    datagram: &[u8],
    code: u16,
    id: u64,
    agreed: &Agreed,
) -> Result<(Arriving, Status), Violation> {
    let (header, payload) = Header::parse(datagram)?;
    header.expect("kind of an answer", header.kind, RESPONSE)?;
    header.expect("method of an answer", header.code, code)?;
    if header.id.get() != id || header.is_batch() {
        return Err(Violation::Field { field: "id of an answer", value: header.id.get() });
    }
    let (len, limit) = (header.payload_len.get(), agreed.max_response);
    if len > limit {
        return Err(Violation::TooLong { len, limit });
    }
    let status = header.status()?;
    Ok((Arriving::begin(header, payload, agreed.packet)?, status))
}
