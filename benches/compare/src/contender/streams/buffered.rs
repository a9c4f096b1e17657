//! The Unix socket of [`UnixStream`] behind a buffer of the sending end: for throughput alone, for a message is on its way only
//! when the buffer is full.

use std::io::{BufWriter, Write};
use std::os::unix::net;

use super::{Streams, UnixStream, Wire};
use crate::Outcome;
use crate::contender::{Client, Contender, ContenderInfo, Server};
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::Measure;

/// The buffer of the sending end.
const BUFFER: usize = 64 << 10;

/// `SOCK_STREAM`, written when a buffer is full.
pub(in crate::contender) struct Buffered;

impl Contender for Buffered {
    const NAME: &'static str = "stream-buffered";

    fn about() -> ContenderInfo {
        ContenderInfo::of_linux(
            "SOCK_STREAM; messages collected in a buffer of 64 KiB, written when it is full; both ends block, default \
             buffers of the socket",
        )
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Stream { .. } => None,
            _ => Some("messages wait in its buffer until that is full"),
        }
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        Streams::<UnixStream>::serve(case, handler)
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        measure.run(|| {
            let (_, to) = UnixStream::connect(case)?;
            Ok(BufWriter::with_capacity(BUFFER, to))
        })
    }
}

impl Client for BufWriter<net::UnixStream> {
    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        self.write_all(&u32::try_from(message.len())?.to_le_bytes())?;
        Ok(self.write_all(message)?)
    }

    fn finish_posts(&mut self) -> Outcome<()> {
        Ok(Write::flush(self)?)
    }
}
