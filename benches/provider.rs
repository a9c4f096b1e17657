//! The other end of every bench: a provider in a process of its own.

use std::time::{Duration, Instant};

use bellwire::{
    Client, ClientConfig, Geometry, LaneConfig, RunDir, Server, ServerConfig, Service,
    SnapshotCache, SpinPolicy,
};
use bellwire_cgroups::{CgroupsSnapshot, Meta, Mode, encode, synthetic};
use tempfile::TempDir;

use bellwire_floor::Cpus;
use bellwire_floor::process::{Child, Peer, RoleResult, spawn};

pub const ROLE: &str = "provider";

/// How long a reader waits for the provider.
const PATIENCE: Duration = Duration::from_secs(5);
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

/// How both ends wait.
#[derive(Clone, Copy)]
pub enum Wait {
    /// As by default.
    Spin,
    /// Asleep each turn.
    Park,
}

impl Wait {
    fn policy(self) -> SpinPolicy {
        match self {
            Self::Spin => SpinPolicy::default(),
            Self::Park => SpinPolicy::NEVER,
        }
    }
}

/// A provider process, and its run dir.
pub struct Provider {
    _child: Child,
    dir: TempDir,
    wait: Wait,
}

impl Provider {
    /// Starts it, pinned to the peer's processor.
    pub fn start(cpus: Cpus, wait: Wait) -> Self {
        let dir = tempfile::tempdir().expect("no temporary directory");
        let path = dir.path().to_str().expect("an odd temporary directory").to_owned();
        let name = match wait {
            Wait::Spin => "spin",
            Wait::Park => "park",
        };
        let child = spawn(ROLE, &[cpus.peer], &[path, name.to_owned()], &[]);
        Self { _child: child.expect("the provider did not start"), dir, wait }
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
        cache.refresh_within(PATIENCE).expect("the snapshot was refused");
        let held = cache.current().expect("nothing was published");
        assert_eq!(held.index().view().len(), CGROUPS);
        cache
    }

    fn config(&self) -> ClientConfig {
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
    let wait = if peer.arg(1)? == "park" { Wait::Park } else { Wait::Spin };
    let mut builder = Server::builder_with(&run_dir, ServerConfig::default().spin(wait.policy()));
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
