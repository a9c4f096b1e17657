/// What a server's reactor waits with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// What measures better: epoll on Linux (`docs/adr/0017-reactor-backends.md`), the thread pool on Windows.
    #[default]
    Auto,
    /// [`epoll(7)`](https://man7.org/linux/man-pages/man7/epoll.7.html), on Linux.
    Epoll,
    /// [`io_uring(7)`](https://man7.org/linux/man-pages/man7/io_uring.7.html), on Linux 6.1 or newer where nothing
    /// forbids it, with the feature `io-uring`. Elsewhere the system's other one is used, and [`InUse`] says why.
    IoUring,
    /// The system's thread pool, on Windows.
    ThreadPool,
}

/// What a reactor waits with, and why not with what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InUse {
    /// [`Backend::Auto`] only as long as there is no reactor.
    pub backend: Backend,
    /// Why it is not the one that was asked for: a phrase for the operator. `None` when it is.
    pub why_not: Option<&'static str>,
}

impl Backend {
    /// Its name, in lower case.
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
