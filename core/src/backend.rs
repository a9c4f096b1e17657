/// How a server's reactor waits for events.
///
/// ```
/// use bellwire_core::Backend;
///
/// assert_eq!(Backend::default(), Backend::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The one that measures better: epoll on Linux (`docs/adr/0017-reactor-backends.md`), the thread pool on
    /// Windows.
    #[default]
    Auto,
    /// [`epoll(7)`](https://man7.org/linux/man-pages/man7/epoll.7.html), on Linux.
    Epoll,
    /// [`io_uring(7)`](https://man7.org/linux/man-pages/man7/io_uring.7.html), on Linux 6.1 or newer where it is
    /// allowed, with the feature `io-uring`. Elsewhere, the system's other backend is used, and [`BackendStatus`] has the
    /// reason.
    IoUring,
    /// The system's thread pool, on Windows.
    ThreadPool,
}

/// How a reactor waits, and why not as configured.
///
/// ```
/// use bellwire_core::{Backend, BackendStatus};
///
/// let found = BackendStatus { backend: Backend::Epoll, why_not: Some("the kernel is too old") };
/// println!("{:?}, since {}", found.backend, found.why_not.unwrap_or("it is the configured one"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BackendStatus {
    /// The backend in use; [`Backend::Auto`] only before there is a reactor.
    pub backend: Backend,
    /// Why it is not the configured one: a phrase for the operator. `None` when it is.
    pub why_not: Option<&'static str>,
}

impl Backend {
    /// Returns the name in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
            Self::ThreadPool => "thread pool",
        }
    }
}

impl core::fmt::Display for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}
