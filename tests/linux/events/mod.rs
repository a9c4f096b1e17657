//! Subscribers in event loops and in runtimes, and publishers that die or misbehave.

#[cfg(feature = "tokio")]
mod event_loop;
pub(crate) mod killed;
mod misbehaving;
pub(crate) mod short;

use bellwire::{Event, EventPublisher, RunDir, Server, ServerConfig};

use crate::support::test_server::{Dir, server_config};

/// Numbers, many times over.
struct News;

impl Event for News {
    const NAME: &'static str = "news";
    type Message = Vec<u8>;
}

const DEPTH: u64 = 64 << 10;

fn provider(run_dir: &RunDir) -> (Server, EventPublisher<News>) {
    let mut builder = Server::builder_with_config(run_dir, server_config(ServerConfig::default()));
    let publisher = builder.events::<News>(DEPTH).unwrap();
    (builder.start().unwrap(), publisher)
}

/// An event whose every word is its number.
fn text(number: u64, words: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(words)
}

fn dir() -> Dir {
    Dir::new()
}
