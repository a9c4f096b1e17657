use std::sync::Arc;

use bellwire::{Client, ClientConfig, Payload, Server, ServerConfig, ServerStats, Service};

use crate::support::blobs::{BlobStore, Settings, Storage, number};
use crate::support::gate::{Arrivals, Gate};
use crate::support::pattern;
use crate::support::test_server::{Dir, Reconciled, server_config};

/// A provider of blobs, in this process.
pub(crate) struct BlobServer {
    server: Reconciled,
    dir: Dir,
}

impl BlobServer {
    /// For one service of blobs, under its own name.
    pub(crate) fn open<S: Service<Request = Payload, Response = Payload>>(settings: &str) -> Self {
        Self::with::<S>(parse(settings).server(), None)
    }

    /// The same, with a handler that waits at a gate.
    pub(crate) fn gated<S: Service<Request = Payload, Response = Payload>>(
        settings: &str,
    ) -> (Self, Gate, Arrivals) {
        let (gate, arrivals) = Gate::with_channel();
        (Self::with::<S>(parse(settings).server(), Some(gate.clone())), gate, arrivals)
    }

    fn with<S: Service<Request = Payload, Response = Payload>>(
        config: ServerConfig,
        gate: Option<Gate>,
    ) -> Self {
        let dir = Dir::new();
        let store = Arc::new(BlobStore::default());
        let mut builder = Server::builder_with_config(&dir.run_dir, server_config(config));
        let serve = builder.serve::<S>(move |_, request| {
            if let Some(gate) = &gate {
                gate.pass(request.len() as u64);
            }
            store.answer(&request)
        });
        serve.unwrap();
        Self { server: builder.start().unwrap().into(), dir }
    }

    /// A client with an open session.
    pub(crate) fn client<S: Service>(&self, settings: &str) -> Client<S> {
        self.client_with(parse(settings).client())
    }

    pub(crate) fn client_with<S: Service>(&self, config: ClientConfig) -> Client<S> {
        let mut client = Client::with_config(&self.dir.run_dir, config);
        client.connect().unwrap();
        client
    }

    pub(crate) fn close(self) -> ServerStats {
        self.server.stop()
    }
}

fn parse(settings: &str) -> Settings {
    Settings::parse(settings.split_whitespace())
}

/// A request of so many bytes for so many, both in private memory.
pub(crate) fn request(len: usize, answer: usize) -> Payload {
    Storage::Private.make(number(answer, Storage::Private), len).unwrap()
}

/// A request that is made in some way, for an answer that is made in some way.
pub(crate) fn request_by(len: usize, by: Storage, answer: usize, how: Storage) -> Payload {
    by.make(number(answer, how), len).unwrap()
}

/// What came is what was asked for.
#[track_caller]
pub(crate) fn is_answer(answer: &Payload, len: usize, how: Storage) {
    pattern::check(number(len, how), len, answer).unwrap();
}
