//! Many requests in one message, and many messages in flight from one call.

mod limits;
mod many;
mod typed;

use bellwire::{
    BatchAnswers, CallError, Client, ClientConfig, HandlerError, Server, ServerConfig, Session,
    Status,
};

use crate::support::services::services;
use crate::support::test_server::{Dir, Reconciled, client_config, server_config};

services! {
    /// Doubles a number below 100; fails from 100 on, panics from 200 on. An answer is as many bytes.
    pub(crate) Doubler("doubler"): u64 => Vec<u8>;
}

pub(crate) fn double(number: u64) -> Result<Vec<u8>, HandlerError> {
    match number {
        0..100 => Ok(vec![7; 2 * number as usize]),
        100..200 => Err(HandlerError::new(format!("{number} is too many"))),
        _ => panic!("as it was asked to"),
    }
}

/// A server of [`Doubler`] in this process, and a client of it.
pub(crate) struct Setup {
    client: Client<Doubler>,
    server: Reconciled,
    _dir: Dir,
}

impl Setup {
    /// Items are handled one by one.
    pub(crate) fn by_item(config: ServerConfig) -> Self {
        Self::with(config, client_config(), |builder| {
            builder.serve::<Doubler>(|_, number| double(number)).unwrap();
        })
    }

    /// Batches are handled as a whole.
    pub(crate) fn by_batch(
        handler: impl Fn(&[u64], &mut BatchAnswers<'_, Vec<u8>>) + Send + Sync + 'static,
    ) -> Self {
        Self::with(ServerConfig::default(), client_config(), |builder| {
            builder
                .serve_batches::<Doubler>(move |_, batch, answers| handler(batch, answers))
                .unwrap();
        })
    }

    pub(crate) fn with(
        config: ServerConfig,
        client: ClientConfig,
        serve: impl FnOnce(&mut bellwire::ServerBuilder),
    ) -> Self {
        let dir = Dir::new();
        let lane = config.lane.clone().max_learned(config.lane.size);
        let config = config.lane(lane);
        let mut builder = Server::builder_with_config(&dir.run_dir, server_config(config));
        serve(&mut builder);
        let server = builder.start().unwrap().into();
        let mut client = Client::with_config(&dir.run_dir, client);
        client.connect().unwrap();
        Self { server, client, _dir: dir }
    }

    pub(crate) fn session(&mut self) -> &mut Session<Doubler> {
        self.client.session().unwrap()
    }

    pub(crate) fn stop_server(self) -> Client<Doubler> {
        self.server.stop();
        self.client
    }
}

/// What became of each item, in short.
pub(crate) fn in_short<E: Into<CallError>>(
    answers: impl IntoIterator<Item = Result<Vec<u8>, E>>,
) -> Vec<Result<usize, String>> {
    let short = |answer: Result<Vec<u8>, E>| match answer.map_err(E::into) {
        Ok(bytes) => Ok(bytes.len()),
        Err(CallError::Handler { reason, .. }) => Err(reason.into()),
        Err(CallError::Declined { status }) => Err(format!("{status:?}")),
        Err(CallError::TooLarge { len, limit, .. }) => Err(format!("{len} above {limit}")),
        Err(error) => panic!("{error}"),
    };
    answers.into_iter().map(short).collect()
}

/// An item whose handler failed, as [`in_short`] has it.
pub(crate) fn failed(number: u64) -> Result<usize, String> {
    Err(format!("{number} is too many"))
}

/// An item that no handler answered, as [`in_short`] has it.
pub(crate) fn declined(status: Status) -> Result<usize, String> {
    Err(format!("{status:?}"))
}
