//! [interprocess](https://docs.rs/interprocess): its local sockets, whose bytes are framed as those of the other streams.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use ::interprocess::TryClone;
use ::interprocess::local_socket::traits::{Listener as _, Stream as _};
use ::interprocess::local_socket::{GenericNamespaced, ListenerOptions, Name, Stream, ToNsName};

use super::About;
use super::streams::{Ends, Wire};
use crate::Outcome;
use crate::load::Case;

/// Its local sockets.
pub(super) struct Interprocess;

impl Wire for Interprocess {
    const NAME: &'static str = "interprocess";
    type From = Socket;
    type To = Socket;

    const SETTINGS: &'static str = "local sockets in the namespace (abstract Unix sockets); both ends block, default \
                                    buffers, a thread for each connection";

    fn about() -> About {
        About::new("2.4", Self::SETTINGS)
    }

    fn listen(case: &Case) -> Outcome<impl FnMut() -> Outcome<Ends<Self>> + Send + 'static> {
        let listener = ListenerOptions::new().name(name(case)?).create_sync()?;
        Ok(move || both(listener.accept()?))
    }

    fn connect(case: &Case) -> Outcome<Ends<Self>> {
        both(Stream::connect(name(case)?)?)
    }
}

fn name(case: &Case) -> Outcome<Name<'static>> {
    Ok(case.name().to_ns_name::<GenericNamespaced>()?)
}

fn both(stream: Stream) -> Outcome<(Socket, Socket)> {
    Ok((Socket(stream.try_clone()?), Socket(stream)))
}

/// A stream that also gives access to its descriptor, for any socket beneath.
pub(super) struct Socket(Stream);

impl Read for Socket {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Socket {
    #[inline]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(from)
    }

    #[inline]
    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let Stream::UdSocket(socket) = &self.0;
        socket.as_fd()
    }
}
