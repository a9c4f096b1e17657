//! What the server under attack serves.

use std::io;
use std::thread;
use std::time::Duration;

use bellwire::{
    Admission, HandlerError, Payload, Publisher, RunDir, Server, ServerConfig, Service, User,
};
use bellwire_cgroups::{CgroupsSnapshot, Meta, Mode, encode, synthetic};

/// The longest answer of [`Blob`] and [`Attached`]: 1 MiB.
pub const MOST: u64 = 1 << 20;
/// How long a handler takes that workers run.
const SLOW: Duration = Duration::from_millis(1);
/// How often the snapshot is republished.
const PUBLISHED_EVERY: Duration = Duration::from_millis(100);

/// Echoes its request.
#[derive(Debug)]
pub struct Echo;

/// Answers with so many bytes, up to [`MOST`].
#[derive(Debug)]
pub struct Blob;

/// The same, in a memfd of its own.
#[derive(Debug)]
pub struct Attached;

impl Service for Echo {
    const NAME: &'static str = "echo";
    const IDEMPOTENT: bool = true;
    type Request = Vec<u8>;
    type Response = Vec<u8>;
}

impl Service for Blob {
    const NAME: &'static str = "blob";
    type Request = u64;
    type Response = Vec<u8>;
}

impl Service for Attached {
    const NAME: &'static str = "attached";
    type Request = u64;
    type Response = Payload;
}

/// Serves with the default configuration, but for `workers` and the admission of `guest`, another user. Publishes
/// snapshots of 1 000 cgroups for as long as it runs, which is until the standard input ends.
///
/// # Errors
/// The system refuses, or another server has the name.
pub fn serve(run_dir: &RunDir, workers: usize, guest: u32) -> io::Result<()> {
    let guest = User::from(guest);
    let config = ServerConfig {
        workers,
        admission: Admission::Users(vec![guest]),
        ..ServerConfig::default()
    };
    let work = move || {
        if workers > 0 {
            thread::sleep(SLOW);
        }
    };
    let mut builder = Server::builder_with(run_dir, config);
    builder
        .serve::<Echo>(move |_, bytes| {
            work();
            Ok(bytes)
        })
        .and_then(|builder| {
            builder.serve::<Blob>(move |_, len| {
                work();
                Ok(vec![7; length(len)])
            })
        })
        .and_then(|builder| {
            builder.serve::<Attached>(move |_, len| {
                work();
                Payload::build_from(1, length(len), |bytes| bytes.fill(7))
                    .map_err(|shortage| HandlerError::new(shortage.to_string()))
            })
        })
        .map_err(io::Error::other)?;
    let publisher = builder.publish::<CgroupsSnapshot>().map_err(io::Error::other)?;
    let server = builder.start().map_err(io::Error::other)?;
    publish(&publisher, 0)?;
    crate::life::tell("ready")?;
    crate::life::end_with_the_runner();
    for seed in 1.. {
        thread::sleep(PUBLISHED_EVERY);
        publish(&publisher, seed)?;
    }
    server.stop();
    Ok(())
}

fn publish(publisher: &Publisher<CgroupsSnapshot>, seed: u64) -> io::Result<()> {
    let bytes = encode(&synthetic::entries(1_000, seed), Meta::now(Mode::V2));
    publisher.publish(&bytes.map_err(io::Error::other)?).map_err(io::Error::other)?;
    Ok(())
}

fn length(len: u64) -> usize {
    usize::try_from(len.min(MOST)).unwrap_or_default()
}
