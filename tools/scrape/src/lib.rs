//! The part of HTTP that a scraper needs: one request per connection, for `/metrics`.
//!
//! A client has [`TIMEOUT`] to send its request, and as long to take the response. At most [`MAX_CLIENTS`] are connected at
//! once: one more closes the connection whose request has been missing for longest. So clients that send nothing keep out no
//! other.
//! `tiny_http` has no such limits; a server that has them brings an asynchronous runtime into both programs.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most time for a request, and for a response.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// The most connections at once.
pub const MAX_CLIENTS: usize = 64;

const MAX_REQUEST: usize = 8192;
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// The connections, in the order in which they came.
#[derive(Clone, Default)]
struct Clients(Arc<Mutex<VecDeque<Client>>>);

struct Client {
    stream: Arc<TcpStream>,
    has_asked: bool,
}

/// Serves what `metrics` returns, until the program exits. Where it returns an error, the connection is closed.
///
/// # Errors
/// The system has no room for a thread.
pub fn serve<F>(listener: TcpListener, metrics: F) -> io::Result<()>
where
    F: Fn() -> io::Result<String> + Clone + Send + 'static,
{
    let clients = Clients::default();
    thread::Builder::new().name("http".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            let (clients, metrics) = (clients.clone(), metrics.clone());
            let accepted = stream.and_then(|stream| {
                let stream = clients.enter(stream);
                let leave = (Arc::clone(&stream), clients.clone());
                let served = thread::Builder::new().name("scrape".to_owned()).spawn(move || {
                    // The error of a client that disconnects or sends garbage is ignored.
                    let _ = respond(&stream, &clients, &metrics);
                    clients.leave(&stream);
                });
                served.map(drop).inspect_err(|_| leave.1.leave(&leave.0))
            });
            if accepted.is_err() {
                // Most likely this process is out of descriptors.
                thread::sleep(Duration::from_millis(100));
            }
        }
    })?;
    Ok(())
}

impl Clients {
    /// Adds a connection, and closes another one if there are too many.
    fn enter(&self, stream: TcpStream) -> Arc<TcpStream> {
        let stream = Arc::new(stream);
        let mut all = self.lock();
        if all.len() >= MAX_CLIENTS {
            let slowest = all.iter().position(|client| !client.has_asked).unwrap_or(0);
            if let Some(client) = all.remove(slowest) {
                // Its thread, which waits for it, goes on.
                let _ = client.stream.shutdown(Shutdown::Both);
            }
        }
        all.push_back(Client { stream: Arc::clone(&stream), has_asked: false });
        stream
    }

    fn asked(&self, stream: &Arc<TcpStream>) {
        let mut all = self.lock();
        let of = all.iter_mut().find(|client| Arc::ptr_eq(&client.stream, stream));
        if let Some(client) = of {
            client.has_asked = true;
        }
    }

    fn leave(&self, stream: &Arc<TcpStream>) {
        self.lock().retain(|client| !Arc::ptr_eq(&client.stream, stream));
    }

    /// Nothing that holds this lock panics.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn respond(
    stream: &Arc<TcpStream>,
    clients: &Clients,
    metrics: &impl Fn() -> io::Result<String>,
) -> io::Result<()> {
    let request = read(stream, Instant::now() + TIMEOUT)?;
    clients.asked(stream);
    let mut words = request.split(|byte| *byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, kind, body) = match (path, method) {
        (b"/metrics", b"GET" | b"HEAD") => ("200 OK", METRICS_TYPE, metrics()?),
        (b"/metrics", _) => ("405 Method Not Allowed", TEXT_TYPE, "GET it\n".to_owned()),
        _ => ("404 Not Found", TEXT_TYPE, "there is nothing but /metrics\n".to_owned()),
    };
    let length = body.len();
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if method != b"HEAD" {
        response.push_str(&body);
    }
    write(stream, response.as_bytes(), Instant::now() + TIMEOUT)
}

/// Reads the head of a request, up to the empty line.
fn read(mut stream: &TcpStream, end: Instant) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if head.len() > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => head.extend(bytes.iter().take(length)),
        }
    }
    Ok(head)
}

/// Writes all bytes, however few the client takes at a time.
fn write(mut stream: &TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        let written = stream.write(bytes)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Returns the time until `end`, which is a timeout of a socket only if it is not zero.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn exporter(metrics: impl Fn() -> io::Result<String> + Clone + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, metrics).unwrap();
        address
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn there_are_metrics_and_nothing_else() {
        let address = exporter(|| Ok("# EOF\n".to_owned()));
        let response = ask(address, "GET /metrics?of=all");
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.contains("\r\nContent-Length: 6\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\n# EOF\n"), "{response}");
        let response = ask(address, "HEAD /metrics");
        assert!(response.contains("\r\nContent-Length: 6\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\n"), "{response}");
        assert!(ask(address, "GET /").starts_with("HTTP/1.1 404 "));
        assert!(ask(address, "POST /metrics").starts_with("HTTP/1.1 405 "));
    }

    #[test]
    fn clients_that_send_nothing_keep_out_no_other() {
        let address = exporter(|| Ok("# EOF\n".to_owned()));
        let silent: Vec<_> =
            (0..2 * MAX_CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address, "GET /metrics").starts_with("HTTP/1.1 200 "));
        drop(silent);
    }

    #[test]
    fn one_more_closes_the_one_that_has_been_waiting_for_its_request_for_longest() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients = Clients::default();
        let mut peers = Vec::new();
        let mut enter = || {
            peers.push(TcpStream::connect(address).unwrap());
            clients.enter(listener.accept().unwrap().0)
        };
        let entered: Vec<_> = (0..MAX_CLIENTS).map(|_| enter()).collect();
        clients.asked(&entered[0]);
        enter();
        assert_eq!(clients.lock().len(), MAX_CLIENTS);
        assert_eq!((&peers[1]).read(&mut [0]).unwrap(), 0, "it is closed");
        for at in [0, 2] {
            peers[at].set_nonblocking(true).unwrap();
            let error = (&peers[at]).read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_request_without_an_end_is_closed_and_the_next_one_served() {
        let address = exporter(|| Ok("# EOF\n".to_owned()));
        let mut endless = TcpStream::connect(address).unwrap();
        let _ = endless.write_all(&[b'x'; 100_000]);
        assert!(!matches!(endless.read(&mut [0]), Ok(1..)));
        assert!(ask(address, "GET /metrics").starts_with("HTTP/1.1 200 "));
    }
}
