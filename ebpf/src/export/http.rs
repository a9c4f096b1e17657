//! The part of HTTP that a scraper needs: one request per connection, of at most 8 KiB, within 5 seconds.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::signal::Event;

/// The timeout of a request, and of its response.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_REQUEST: usize = 8192;
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// Serves requests, one connection after the other, until the program exits. Requests the metrics by events.
pub(super) fn serve(listener: TcpListener, events: Sender<Event>) -> io::Result<()> {
    thread::Builder::new().name("http".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            match stream {
                // The error of a client that disconnects or sends garbage is ignored.
                Ok(stream) => drop(respond(stream, &events)),
                // Most likely this process is out of descriptors.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(())
}

fn respond(mut stream: TcpStream, events: &Sender<Event>) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = read(&mut stream)?;
    let mut words = request.split(|byte| *byte == b' ');
    let (method, path) = (words.next(), words.next());
    let (status, kind, body) = match (method, path) {
        (Some(b"GET"), Some(b"/metrics")) => ("200 OK", METRICS_TYPE, metrics(events)?),
        (Some(b"GET"), Some(_)) => ("404 Not Found", TEXT_TYPE, "there is /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", TEXT_TYPE, "GET only\n".to_owned()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn metrics(events: &Sender<Event>) -> io::Result<String> {
    let (sender, receiver) = channel();
    events.send(Event::Scrape(sender)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
    receiver.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
}

/// Reads the head of a request, up to the empty line.
fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + TIMEOUT;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if head.len() > MAX_REQUEST || left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => head.extend(bytes.iter().take(length)),
        }
    }
    Ok(head)
}
