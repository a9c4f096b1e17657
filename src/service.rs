use std::fmt;

use crate::Message;
use crate::layout::Type;

/// A service: a name, and the types of its one request and its response.
///
/// ```
/// use bellwire::Service;
///
/// /// Adds one.
/// struct Increment;
///
/// impl Service for Increment {
///     const NAME: &'static str = "increment";
///     type Request = u64;
///     type Response = u64;
/// }
/// ```
pub trait Service: 'static {
    /// The service's name: 1 to 63 bytes of `a-z`, `0-9` and `-`. It names the endpoint, `{run_dir}/{NAME}.sock`.
    const NAME: &'static str;

    /// The version of the types. Change it when they change: a client with another version is then refused with a
    /// reason, instead of being misunderstood. The last one, 4 294 967 295, is reserved for
    /// [counters](crate::StatsClient).
    const VERSION: u32 = 1;

    /// A fingerprint of the two types; 0 is none. Ends whose fingerprints differ cannot open a session: the error, of the
    /// kind [`ErrorKind::Incompatible`](crate::ErrorKind::Incompatible), names both. An end without one can open a session
    /// with any.
    ///
    /// The default is that of the [types](Message::LAYOUT), if both have one. For others, [`schema`](crate::schema()) makes one of any text.
    ///
    /// ```
    /// # use bellwire::Service;
    /// # struct Increment;
    /// impl Service for Increment {
    ///     const NAME: &'static str = "increment";
    ///     type Request = u64;
    ///     type Response = u64;
    /// }
    /// assert_eq!(Increment::SCHEMA, bellwire::schema("u64 -> u64"));
    /// ```
    const SCHEMA: u64 = match (Self::Request::LAYOUT, Self::Response::LAYOUT) {
        (Some(request), Some(response)) => Type::schema(request, response),
        _ => 0,
    };

    /// Whether running a request twice is harmless. Only then is a request that *may* have run sent again after the
    /// provider died.
    const IDEMPOTENT: bool = false;

    /// What a client sends.
    type Request: Message;

    /// What a client receives.
    type Response: Message;

    /// How clients of netipc are served: see [`ServerConfig::netipc`](crate::ServerConfig::netipc). Default: not served.
    #[cfg(feature = "netipc")]
    fn netipc() -> Option<crate::netipc::CallMethod> {
        None
    }
}

/// The error of a handler that cannot answer: a message for the caller, and optionally a code that the caller's
/// program can match.
///
/// Any type that implements `Display` converts into it, so `?` works in a handler.
///
/// ```
/// use bellwire::HandlerError;
///
/// const NO_SUCH_DISK: u32 = 1;
/// let error = HandlerError::with_code(NO_SUCH_DISK, "there is no disk sdz");
/// assert_eq!((error.code(), error.reason()), (Some(NO_SUCH_DISK), "there is no disk sdz"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HandlerError {
    code: Option<u32>,
    reason: String,
}

impl HandlerError {
    /// Creates an error with this sentence.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { code: None, reason: reason.into() }
    }

    /// Creates an error with this sentence and a code, whose meaning is the service's: the caller finds it in
    /// [`CallError::Handler`](crate::CallError::Handler).
    pub fn with_code(code: u32, reason: impl Into<String>) -> Self {
        Self { code: Some(code), reason: reason.into() }
    }

    /// Returns the sentence.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the code, if it has one.
    pub fn code(&self) -> Option<u32> {
        self.code
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "{code}: {:?}", self.reason),
            None => fmt::Debug::fmt(&self.reason, f),
        }
    }
}

impl<E: fmt::Display> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
