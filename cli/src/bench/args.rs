use std::path::PathBuf;
use std::time::Duration;

use bellwire::Backend;
use clap::{Subcommand, ValueEnum};

use crate::args::{duration, positive_duration};

/// What this command measures itself
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

/// Compare what a server can wait with: epoll and io_uring, and beside them plain SOCK_SEQPACKET with epoll
///
/// Starts a server of each kind and processes that call it, each number of sessions anew. In turns, round by round, each
/// server gets the same load: 64 bytes there and back, as fast as one call after the other goes on all sessions (closed),
/// and paced, so many calls a second on each of them: as long as that is not more in all than this machine makes without a
/// pause, and than 200 000. What is left out is said below the table. CPU is that of the server alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Figures are medians of the rounds, with the least and the most; ratios are of one round's two figures.

Examples:
  bellwire bench reactor
  bellwire bench reactor --sessions 100 --rounds 15 --json | jq '.rows[].ratios'")]
pub(crate) struct Reactor {
    /// Numbers of sessions to measure with
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000,10000", value_name = "N,N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) sessions: Vec<u32>,
    /// How often to measure each
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// How long each measurement lasts
    #[arg(long, default_value = "500ms", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) window: Duration,
    /// Calls a second on each session, where they are paced
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: u32,
    /// How long the servers may spin before they sleep [default: the library's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) spin: Option<Duration>,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is measured.
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
    /// Where the plain server listens.
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

    /// On a command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::IoUring => "io-uring",
            Self::Seqpacket => "seqpacket",
        }
    }

    /// Of the library's server; `None` for the plain one.
    pub(crate) fn backend(self) -> Option<Backend> {
        match self {
            Self::Epoll => Some(Backend::Epoll),
            Self::IoUring => Some(Backend::IoUring),
            Self::Seqpacket => None,
        }
    }
}
