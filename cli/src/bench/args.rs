use std::path::PathBuf;
use std::time::Duration;

use bellwire::Backend;
use clap::{Subcommand, ValueEnum};

use crate::args::{Output, duration, positive_duration};

/// The benchmarks that are built in
#[derive(Debug, clap::Parser)]
#[command(bin_name = "bellwire bench")]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    Reactor(Reactor),
}

/// Compare the backends of a server, epoll and io_uring, with each other and with plain SOCK_SEQPACKET and epoll
///
/// For each number of sessions, starts a server of each kind and the processes that call it. In each round every server
/// in turn gets the same load of calls with 64 bytes each way: closed, with one call after the other on all sessions,
/// and paced, with a fixed rate on each session. A paced load is left out, with a note below the table, if it is above
/// 200 000 calls per second and above the rate of the closed load. CPU is that of the server alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Figures are medians of the rounds, with the minimum and the maximum; ratios are of figures of the
same round.

Examples:
  bellwire bench reactor
  bellwire bench reactor --sessions 100 --rounds 15 --json | jq '.rows[].ratios'")]
pub(crate) struct Reactor {
    /// The numbers of sessions to measure with
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000,10000", value_name = "N,N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) sessions: Vec<u32>,
    /// The number of rounds
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// The duration of each measurement
    #[arg(long, default_value = "500ms", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) window: Duration,
    /// Calls per second on each session, for the paced load
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: u32,
    /// How long the servers may spin before they sleep [default: the library's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) spin: Option<Duration>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The kind of server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    Epoll,
    IoUring,
    /// No shared memory: requests and responses over a socket.
    Seqpacket,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchServer {
    #[arg(long, value_enum)]
    pub(crate) subject: Subject,
    #[arg(long)]
    pub(crate) sessions: usize,
    #[arg(long, value_parser = duration)]
    pub(crate) spin: Option<Duration>,
    /// The socket of the plain server.
    #[arg(long)]
    pub(crate) socket: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchLoad {
    #[arg(long, value_enum)]
    pub(crate) subject: Subject,
    #[arg(long)]
    pub(crate) sessions: usize,
    #[arg(long)]
    pub(crate) socket: PathBuf,
}

impl Subject {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
            Self::Seqpacket => "SEQPACKET",
        }
    }

    /// The backend of the library's server; `None` for the plain one.
    pub(crate) fn backend(self) -> Option<Backend> {
        match self {
            Self::Epoll => Some(Backend::Epoll),
            Self::IoUring => Some(Backend::IoUring),
            Self::Seqpacket => None,
        }
    }
}
