//! The other end of every bench: a provider in a process of its own.

use std::time::{Duration, Instant};

use bellwire::{
    Client, ClientConfig, Geometry, LaneConfig, Payload, RunDir, Server, ServerConfig, Service,
    SnapshotCache, SpinPolicy,
};
use bellwire_cgroups::{CgroupsSnapshot, Meta, Mode, encode, synthetic};
use tempfile::TempDir;

use bellwire_floor::Cpus;
use bellwire_floor::process::{Child, Peer, RoleResult, spawn};

/// How long a reader waits for the provider.
pub const PATIENCE: Duration = Duration::from_secs(5);

pub const ROLE: &str = "provider";

/// Echoes `N` bytes.
pub struct Echo<const N: usize>;

impl Service for Echo<64> {
    const NAME: &'static str = "bench-echo-64";
    type Request = [u8; 64];
    type Response = [u8; 64];
}

impl Service for Echo<1024> {
    const NAME: &'static str = "bench-echo-1k";
    type Request = [u8; 1024];
    type Response = [u8; 1024];
}

/// Adds one.
pub struct Add;

impl Service for Add {
    const NAME: &'static str = "bench-add";
    type Request = u64;
    type Response = u64;
}

/// Takes `N` bytes and answers nothing: one way.
pub struct Sink<const N: usize>;

impl Service for Sink<64> {
    const NAME: &'static str = "bench-sink-64";
    type Request = [u8; 64];
    type Response = ();
}

impl Service for Sink<1024> {
    const NAME: &'static str = "bench-sink-1k";
    type Request = [u8; 1024];
    type Response = ();
}

/// Takes bytes and answers nothing.
pub struct Bulk;

impl Service for Bulk {
    const NAME: &'static str = "bench-bulk";
    type Request = Payload;
    type Response = ();
}

/// Takes bytes and answers their sum.
pub struct Sum;

impl Service for Sum {
    const NAME: &'static str = "bench-sum";
    type Request = Payload;
    type Response = u64;
}

/// The sum of all 8-byte words.
pub fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
    words.fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(word)))
}

/// How both ends wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// As by default.
    Spin,
    /// Spinning through all that the other end does, as the floors do.
    SpinLong,
    /// Asleep each turn.
    Park,
}

/// A provider process, and its run dir.
pub struct Provider {
    child: Child,
    dir: TempDir,
    wait: Wait,
}

impl Wait {
    fn policy(self) -> SpinPolicy {
        match self {
            Self::Spin => SpinPolicy::default(),
            Self::Park => SpinPolicy::NEVER,
            Self::SpinLong => {
                let long = Duration::from_millis(1);
                SpinPolicy { max: long, worth: long }
            }
        }
    }
}

impl Provider {
    /// Starts it, pinned to the peer's processor.
    pub fn start(cpus: Cpus, wait: Wait) -> Self {
        let dir = tempfile::tempdir().expect("no temporary directory");
        let path = dir.path().to_str().expect("an odd temporary directory");
        let wait_name = match wait {
            Wait::Spin => "spin",
            Wait::SpinLong => "spin-long",
            Wait::Park => "park",
        };
        let child = spawn(ROLE, &[cpus.peer], &[path.to_owned(), wait_name.to_owned()], &[])
            .expect("the provider did not start");
        Self { child, dir, wait }
    }

    /// A connected client of one of its services.
    pub fn client<S: Service>(&self) -> Client<S> {
        self.client_with(self.config())
    }

    /// A connected client with the configuration that the library chooses.
    pub fn plain_client<S: Service>(&self) -> Client<S> {
        let config = ClientConfig::default().timeout(Duration::from_secs(30));
        self.client_with(config.spin(self.wait.policy()))
    }

    pub fn client_with<S: Service>(&self, config: ClientConfig) -> Client<S> {
        let mut client = Client::with_config(&self.run_dir(), config);
        client.connect().expect("the provider refused");
        client
    }

    /// A cache that holds `count` cgroups of its snapshot.
    pub fn cache(&self, count: usize) -> SnapshotCache<CgroupsSnapshot> {
        let mut cache =
            SnapshotCache::<CgroupsSnapshot>::with_config(&self.run_dir(), self.config());
        self.publish(count);
        cache.refresh_within(PATIENCE).expect("the snapshot was refused");
        let held = cache.current().expect("nothing was published");
        assert_eq!(held.index().view().len(), count);
        cache
    }

    /// Has it publish a new generation of `count` cgroups; returns when it has.
    pub fn publish(&self, count: usize) {
        self.child.send(count.to_string().as_bytes()).expect("the provider is gone");
        self.child.receive().expect("the provider is gone");
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Its run dir, for another process.
    pub fn path(&self) -> String {
        self.dir.path().to_str().expect("an odd temporary directory").to_owned()
    }

    pub fn run_dir(&self) -> RunDir {
        RunDir::new(self.dir.path())
    }

    pub fn config(&self) -> ClientConfig {
        let lane = Geometry::new(256 << 10).expect("a power of two");
        ClientConfig::default()
            .spin(self.wait.policy())
            .timeout(Duration::from_secs(30))
            .lane(LaneConfig::default().size(lane))
    }
}

/// The provider's process.
pub fn serve(peer: &mut Peer) -> RoleResult {
    let run_dir = RunDir::new(peer.arg(0)?);
    let wait = match peer.arg(1)? {
        "park" => Wait::Park,
        "spin-long" => Wait::SpinLong,
        _ => Wait::Spin,
    };
    let config = ServerConfig::default().spin(wait.policy());
    let mut builder = Server::builder_with(&run_dir, config);
    builder.serve::<Echo<64>>(|_, bytes| Ok(bytes))?.serve::<Echo<1024>>(|_, bytes| Ok(bytes))?;
    builder.serve_batches::<Add>(|_, numbers, answers| {
        answers.extend(numbers.iter().map(|number| number.wrapping_add(1)));
    })?;
    builder.serve::<Sink<64>>(|_, _| Ok(()))?.serve::<Sink<1024>>(|_, _| Ok(()))?;
    builder.serve::<Bulk>(|_, _| Ok(()))?.serve::<Sum>(|_, bytes| Ok(sum(&bytes)))?;
    let publisher = builder.publish::<CgroupsSnapshot>()?;
    let server = builder.start()?;
    peer.ready()?;
    let mut made: Option<(usize, Vec<u8>)> = None;
    while let Some(message) = peer.receive()? {
        let Ok(count) = std::str::from_utf8(&message)?.parse::<usize>() else { break };
        let bytes = match &made {
            Some((of, bytes)) if *of == count => bytes,
            _ => {
                &made.insert((count, encode(&synthetic::entries(count, 7), Meta::now(Mode::V2))?)).1
            }
        };
        publisher.publish(bytes)?;
        peer.send(b"published")?;
    }
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
