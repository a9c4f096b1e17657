//! Messages in streams of bytes, each after its length of 4 bytes: Unix sockets, TCP, pipes.
//!
//! Both ends block. A thread for each connection reads as much as there is, answers every whole message in place, and
//! sends all of these answers with one write.

mod buffered;
mod fifo;
mod frames;
mod sockets;

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use rustix::io::ioctl_fionbio;

pub(super) use buffered::Buffered;
pub(super) use fifo::Fifo;
pub(super) use frames::Frames;
pub(super) use sockets::{Tcp, UnixStream};

use super::{Contender, ContenderInfo, Server, serve_each};
use crate::Outcome;
use crate::handler::Handler;
use crate::load::Case;
use crate::measure::Measure;

/// Where a connection is read and where it is written.
pub(super) type Ends<W> = (<W as Wire>::From, <W as Wire>::To);

/// A kind of stream.
pub(super) trait Wire: 'static {
    const NAME: &'static str;

    /// The end that is read.
    type From: Read + AsFd + Send + 'static;
    /// The end that is written.
    type To: Write + AsFd + Send + 'static;

    /// In a few words.
    const SETTINGS: &'static str;

    /// Of what carries the stream.
    fn about() -> ContenderInfo {
        ContenderInfo::of_linux(Self::SETTINGS)
    }

    /// Accepts connections, one after the other.
    fn listen(case: &Case) -> Outcome<impl FnMut() -> Outcome<Ends<Self>> + Send + 'static>;

    fn connect(case: &Case) -> Outcome<Ends<Self>>;
}

/// Messages in a kind of stream.
pub(super) struct Streams<W>(std::marker::PhantomData<W>);

impl<W: Wire> Contender for Streams<W> {
    const NAME: &'static str = W::NAME;

    fn about() -> ContenderInfo {
        W::about()
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        let is_one_way = case.load.is_one_way();
        serve_each(W::NAME, W::listen(case)?, move |(from, to)| match is_one_way {
            true => Ok(frames::take(from, handler)?),
            false => Ok(frames::answer(from, to, handler)?),
        })
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        measure.run(|| connect::<W>(case))
    }
}

/// A connection of the measuring end.
fn connect<W: Wire>(case: &Case) -> Outcome<Frames<W::From, W::To>> {
    let (from, to) = W::connect(case)?;
    // The messages in flight may exceed what the kernel holds: then each end could wait for the other to read.
    if case.load.depth() > 1 && case.load.depth() * case.load.longest() > HELD {
        ioctl_fionbio(&from, true)?;
        ioctl_fionbio(&to, true)?;
    }
    Ok(Frames::new(from, to))
}

/// What any of these streams holds in each direction.
const HELD: usize = 32 << 10;

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the other end has closed the stream")
}
