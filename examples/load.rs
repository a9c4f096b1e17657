//! A snapshot: a provider that publishes the newest state, here a list of numbers, and a reader that waits for it.
//!
//! ```text
//! cargo run --example load
//! ```
//!
//! `bellwire ls` and `bellwire stat` show such a provider, if it is in the default run dir.

use std::error::Error;
use std::time::Duration;

use bellwire::{Malformed, Message, Publisher, Refreshed, RunDir, Server, Snapshot, SnapshotCache};

/// The load of each processor, in per cent.
struct Load;

impl Snapshot for Load {
    const NAME: &'static str = "load";
    /// What a reader looks things up in, made once of each snapshot.
    type Index = Vec<u8>;
    type Error = Malformed;

    fn validate(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        match bytes.iter().position(|percent| *percent > 100) {
            Some(at) => Err(Malformed::new(at, bytes.len(), "above 100 %")),
            None => Vec::decode(bytes),
        }
    }
}

fn publish(publisher: &Publisher<Load>) -> Result<(), Box<dyn Error + Send + Sync>> {
    for load in [[5, 80], [6, 81], [7, 82]] {
        std::thread::sleep(Duration::from_millis(200));
        publisher.publish(&load)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let run_dir = RunDir::new(dir.path());
    let mut builder = Server::builder(&run_dir);
    let publisher = builder.publish::<Load>()?;
    let server = builder.start()?;
    let publishing = std::thread::spawn(move || publish(&publisher));
    let mut cache = SnapshotCache::<Load>::new(&run_dir);
    // Sleeps until there is a newer one; it may miss some, never the last.
    while cache.current().is_none_or(|load| load.index().first() != Some(&7)) {
        if cache.wait_for_change(None)? == Refreshed::Changed {
            println!("{:?}", cache.current().map(|load| (load.generation(), load.index())));
        }
    }
    publishing.join().map_err(|_| "the publisher panicked")?.map_err(|error| error.to_string())?;
    server.stop();
    Ok(())
}
