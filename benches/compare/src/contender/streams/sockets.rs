//! Unix sockets, unix(7), and TCP over the loopback interface, tcp(7).

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net;

use super::{Ends, Wire};
use crate::Outcome;
use crate::load::Case;

/// `SOCK_STREAM`.
pub(in crate::contender) struct UnixStream;

impl Wire for UnixStream {
    const NAME: &'static str = "stream";
    type From = net::UnixStream;
    type To = net::UnixStream;

    const SETTINGS: &'static str =
        "SOCK_STREAM; both ends block, default buffers, a thread for each connection";

    fn listen(case: &Case) -> Outcome<impl FnMut() -> Outcome<Ends<Self>> + Send + 'static> {
        let listener = net::UnixListener::bind(case.file("stream.sock"))?;
        Ok(move || both(listener.accept()?.0))
    }

    fn connect(case: &Case) -> Outcome<Ends<Self>> {
        both(net::UnixStream::connect(case.file("stream.sock"))?)
    }
}

fn both(stream: net::UnixStream) -> Outcome<(net::UnixStream, net::UnixStream)> {
    Ok((stream.try_clone()?, stream))
}

/// TCP.
pub(in crate::contender) struct Tcp;

impl Wire for Tcp {
    const NAME: &'static str = "tcp";
    type From = TcpStream;
    type To = TcpStream;

    const SETTINGS: &'static str = "127.0.0.1, TCP_NODELAY; both ends block, buffers as the kernel tunes them, a thread for \
                                    each connection";

    fn listen(case: &Case) -> Outcome<impl FnMut() -> Outcome<Ends<Self>> + Send + 'static> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        std::fs::write(case.file("tcp.address"), listener.local_addr()?.to_string())?;
        Ok(move || undelayed(listener.accept()?.0))
    }

    fn connect(case: &Case) -> Outcome<Ends<Self>> {
        let address: SocketAddr = std::fs::read_to_string(case.file("tcp.address"))?.parse()?;
        undelayed(TcpStream::connect(address)?)
    }
}

fn undelayed(stream: TcpStream) -> Outcome<(TcpStream, TcpStream)> {
    stream.set_nodelay(true)?;
    Ok((stream.try_clone()?, stream))
}
