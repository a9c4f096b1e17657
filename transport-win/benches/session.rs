//! A session of Bellwire's, both ends, as programs have it.

use std::path::Path;
use std::time::{Duration, Instant};

use bellwire::{
    CallError, Client, ClientConfig, RunDir, Server, ServerConfig, Service, SpinPolicy,
};

use crate::peer::Peer;

/// A request, and its answer, in bytes.
pub(crate) const SIZE: usize = 64;
/// Both ends spin, for as long as two milliseconds.
pub(crate) const HOT: bool = true;
/// Neither end spins.
pub(crate) const PARKED: bool = false;

/// Answers each request with what it is.
pub(crate) struct Echo<const SPINS: bool>;

impl<const SPINS: bool> Service for Echo<SPINS> {
    const NAME: &'static str = if SPINS { "hot" } else { "parked" };
    type Request = [u8; SIZE];
    type Response = [u8; SIZE];
}

/// Answers each request with nothing.
pub(crate) struct Sink;

impl Service for Sink {
    const NAME: &'static str = "sink";
    type Request = [u8; SIZE];
    type Response = ();
}

const fn policy(spins: bool) -> SpinPolicy {
    let long = Duration::from_millis(2);
    if spins { SpinPolicy { max: long, pays_within: long } } else { SpinPolicy::NEVER }
}

/// An open session with the other process.
pub(crate) fn connect<S: Service>(peer: &Peer, spins: bool) -> Client<S> {
    let config = ClientConfig::default().spin(policy(spins));
    let mut client = Client::with_config(&RunDir::new(peer.run_dir()), config);
    client.connect().unwrap();
    client
}

/// Sends a request and waits for its answer, which is the same.
pub(crate) fn call<const SPINS: bool>(client: &mut Client<Echo<SPINS>>) {
    assert_eq!(client.call(&[7; SIZE]).unwrap(), [7; SIZE]);
}

/// Sends so many requests, as fast as the lane takes them, each answered by nothing.
pub(crate) fn stream(client: &mut Client<Sink>, count: u32) -> Duration {
    let session = client.session().unwrap();
    let began = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        while sent < count {
            match session.submit(&[7; SIZE]) {
                Ok(_) => sent += 1,
                Err(CallError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some((_, answer)) = session.try_reply().unwrap() {
            answer.unwrap();
            answered += 1;
        }
    }
    began.elapsed()
}

/// Serves until the returned servers are dropped.
pub(crate) fn serve(run_dir: &Path) -> [Server; 2] {
    [HOT, PARKED].map(|spins| {
        let config = ServerConfig::default().spin(policy(spins));
        let mut builder = Server::builder_with_config(&RunDir::new(run_dir), config);
        if spins {
            builder.serve::<Echo<HOT>>(|_, bytes| Ok(bytes)).unwrap();
            builder.serve::<Sink>(|_, _| Ok(())).unwrap();
        } else {
            builder.serve::<Echo<PARKED>>(|_, bytes| Ok(bytes)).unwrap();
        }
        builder.start().unwrap()
    })
}
