//! The other end of every measurement: a provider in a process of its own.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bellwire::{
    CallError, Client, ClientConfig, Geometry, LaneConfig, RunDir, Server, ServerConfig, Service,
    SnapshotCache, SpinPolicy,
};
use bellwire_cgroups::{CgroupsSnapshot, Meta, Mode, encode, synthetic};
use bellwire_floor::Cpus;
use bellwire_floor::process::{Child, Peer, RoleResult, spawn};
use tempfile::TempDir;

pub const ROLE: &str = "provider";

/// How long a reader waits for the provider.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Cgroups of its snapshot.
const CGROUPS: usize = 16;

/// Echoes 64 bytes.
pub struct Echo;

impl Service for Echo {
    const NAME: &'static str = "bench-echo";
    type Request = [u8; 64];
    type Response = [u8; 64];
}

/// Takes 64 bytes and answers nothing: one way.
pub struct Sink;

impl Service for Sink {
    const NAME: &'static str = "bench-sink";
    type Request = [u8; 64];
    type Response = ();
}

/// A provider process, and its run dir.
pub struct Provider {
    _child: Child,
    dir: TempDir,
    spin: SpinPolicy,
}

impl Provider {
    /// Starts it, pinned to the peer's processor. Both ends spin by `spin`.
    pub fn start(cpus: Cpus, spin: SpinPolicy) -> Self {
        let dir = tempfile::tempdir().expect("no temporary directory");
        let path = dir.path().to_str().expect("an odd temporary directory").to_owned();
        let [max, pays] = [spin.max, spin.pays_within].map(|span| span.as_nanos().to_string());
        let child = spawn(ROLE, &[cpus.peer], &[path, max, pays], &[]);
        Self { _child: child.expect("the provider did not start"), dir, spin }
    }

    /// A connected client of one of its services.
    pub fn client<S: Service>(&self) -> Client<S> {
        let mut client = Client::with_config(&RunDir::new(self.dir.path()), self.config());
        client.connect().expect("the provider refused");
        client
    }

    /// A cache that holds its snapshot.
    pub fn cache(&self) -> SnapshotCache<CgroupsSnapshot> {
        let run_dir = RunDir::new(self.dir.path());
        let mut cache = SnapshotCache::<CgroupsSnapshot>::with_config(&run_dir, self.config());
        cache.refresh_within(TIMEOUT).expect("the snapshot was refused");
        let held = cache.current().expect("nothing was published");
        assert_eq!(held.index().view().len(), CGROUPS);
        cache
    }

    fn config(&self) -> ClientConfig {
        let lane = Geometry::new(256 << 10).expect("a power of two");
        ClientConfig::default()
            .spin(self.spin)
            .timeout(Duration::from_secs(30))
            .lane(LaneConfig::default().size(lane))
    }
}

/// The provider's process.
pub fn serve(peer: &mut Peer) -> RoleResult {
    let run_dir = RunDir::new(peer.arg(0)?);
    let span = |at| Ok::<_, bellwire_floor::Error>(Duration::from_nanos(peer.number(at)? as u64));
    let spin = SpinPolicy { max: span(1)?, pays_within: span(2)? };
    let mut builder = Server::builder_with_config(&run_dir, ServerConfig::default().spin(spin));
    builder.serve::<Echo>(|_, bytes| Ok(bytes))?.serve::<Sink>(|_, _| Ok(()))?;
    let publisher = builder.publish::<CgroupsSnapshot>()?;
    let server = builder.start()?;
    publisher.publish(&encode(&synthetic::entries(CGROUPS, 7), Meta::now(Mode::V2))?)?;
    peer.ready()?;
    while peer.receive()?.is_some() {}
    server.stop();
    Ok(())
}

/// The time that `operation` takes `n` times.
pub fn timed(n: u64, mut operation: impl FnMut()) -> Duration {
    let began = Instant::now();
    for _ in 0..n {
        operation();
    }
    began.elapsed()
}

/// The time of `n` calls, one after the other.
pub fn call(client: &mut Client<Echo>, n: u64) -> Duration {
    timed(n, || assert_eq!(client.call(black_box(&[7; 64])).unwrap(), [7; 64]))
}

/// Sends `n` requests as fast as the lane takes them; the clock stops when the last of them was answered.
pub fn stream(client: &mut Client<Sink>, n: u64) -> Duration {
    let session = client.session().expect("the session is gone");
    let began = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < n {
        while sent < n {
            match session.submit(&[7; 64]) {
                Ok(_) => sent += 1,
                Err(CallError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some((_, answer)) = session.try_reply().expect("the provider is gone") {
            answer.expect("no answer");
            answered += 1;
        }
    }
    began.elapsed()
}
