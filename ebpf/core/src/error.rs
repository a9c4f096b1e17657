use std::path::PathBuf;

/// `BPF_USDT_MAX_SPEC_CNT` of `bpf/trace.bpf.c`.
pub(crate) const SPECS: usize = 2048;

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused an operation.
    #[error("cannot {what}: {source}; `bellwire-trace doctor` says what is missing")]
    Kernel {
        /// The operation.
        what: &'static str,
        /// The error from the system.
        source: libbpf_rs::Error,
    },
    /// No process, or none of the requested ones, uses the library.
    #[error(
        "no process{} can be traced: none has the probes of Bellwire, or /proc does not show it",
        .pid.map_or_else(String::new, |pid| format!(" {pid}"))
    )]
    NoTarget {
        /// The process that was requested.
        pid: Option<u32>,
    },
    /// The kernel describes its types to nobody, or not here.
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux): use one built with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoTypes,
    /// A file that was named has no probes.
    #[error(
        "{} has no probes of Bellwire: build it with the feature `probes` (the default), and do not strip the section \
         .note.stapsdt (llvm-strip wants --keep-section=.note.stapsdt)", path.display()
    )]
    NoProbes {
        /// The file.
        path: PathBuf,
    },
    /// libbpf's table of probes is full.
    #[error(
        "cannot attach to more than {SPECS} probes at a time: name one process with -p, a service with -s, or a file with \
         --exe"
    )]
    TooManyProbes,
    /// No call was seen.
    #[error("no call was sampled: {why}")]
    NothingSeen {
        /// The reason, and what to do.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error from the system.
        source: std::io::Error,
    },
    /// Memory of the kernel programs cannot be mapped.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Returns whether the kernel lacks something that is needed, or does not permit it: trying again changes nothing.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Kernel { source, .. } => is_refusal(source),
            Self::NoTypes => true,
            _ => false,
        }
    }
}

/// Returns whether the kernel lacks something or does not permit it.
fn is_refusal(error: &libbpf_rs::Error) -> bool {
    use libbpf_rs::ErrorKind::{NotFound, PermissionDenied, Unsupported};
    matches!(error.kind(), NotFound | PermissionDenied | Unsupported)
}
