//! What messages look like: arrays by the typed interface, slices by the other.

use std::fmt::Debug;

use ::iceoryx2::active_request::ActiveRequest;
use ::iceoryx2::pending_response::PendingResponse;
use ::iceoryx2::port::client::Client;
use ::iceoryx2::port::publisher::Publisher;
use ::iceoryx2::port::server::Server;
use ::iceoryx2::port::subscriber::Subscriber;
use ::iceoryx2::prelude::IceoryxSend;
use ::iceoryx2::sample::Sample;
use ::iceoryx2::service::builder::{publish_subscribe, request_response};
use ::iceoryx2::service::port_factory;

use super::{Ipc, problem};
use crate::Outcome;
use crate::contender::put;
use crate::handler::Handler;

pub(super) type ClientOf<F> = Client<Ipc, F, (), F, ()>;
pub(super) type ServerOf<F> = Server<Ipc, F, (), F, ()>;
pub(super) type Pending<F> = PendingResponse<Ipc, F, (), F, ()>;
pub(super) type Active<F> = ActiveRequest<Ipc, F, (), F, ()>;
pub(super) type Requests<F> = port_factory::request_response::PortFactory<Ipc, F, (), F, ()>;
pub(super) type RequestsBuilder<F> = request_response::Builder<F, (), F, (), Ipc>;
pub(super) type Topic<F> = port_factory::publish_subscribe::PortFactory<Ipc, F, ()>;
pub(super) type TopicBuilder<F> = publish_subscribe::Builder<F, (), Ipc>;

/// A form of messages. The library has the same methods for both, without a trait.
pub(super) trait Form: IceoryxSend + Debug + 'static {
    fn requests(builder: RequestsBuilder<Self>) -> Outcome<Requests<Self>>;
    fn client(requests: &Requests<Self>, longest: usize) -> Outcome<ClientOf<Self>>;
    fn server(requests: &Requests<Self>, longest: usize) -> Outcome<ServerOf<Self>>;

    fn send(client: &ClientOf<Self>, request: &[u8]) -> Outcome<Pending<Self>>;
    fn next(server: &ServerOf<Self>) -> Outcome<Option<Active<Self>>>;
    fn request(active: &Active<Self>) -> &[u8];
    fn answer(active: &Active<Self>, handler: Handler) -> Outcome<()>;
    /// The length of the answer, if it is there.
    fn take(pending: &Pending<Self>, answer: &mut [u8]) -> Outcome<Option<usize>>;

    fn topic(builder: TopicBuilder<Self>) -> Outcome<Topic<Self>>;
    fn publisher(topic: &Topic<Self>, longest: usize) -> Outcome<Publisher<Ipc, Self, ()>>;
    fn sample(from: &Subscriber<Ipc, Self, ()>) -> Outcome<Option<Sample<Ipc, Self, ()>>>;
    fn bytes(sample: &Sample<Ipc, Self, ()>) -> &[u8];
    /// Publishes what `edit` makes of a message.
    fn publish(
        to: &Publisher<Ipc, Self, ()>,
        message: &[u8],
        edit: impl FnOnce(&mut [u8]),
    ) -> Outcome<()>;
}

/// What is written in the same way for both.
macro_rules! alike {
    () => {
        fn requests(builder: RequestsBuilder<Self>) -> Outcome<Requests<Self>> {
            builder.open_or_create().map_err(problem("open a request-response service"))
        }

        #[inline]
        fn next(server: &ServerOf<Self>) -> Outcome<Option<Active<Self>>> {
            server.receive().map_err(problem("receive a request"))
        }

        #[inline]
        fn request(active: &Active<Self>) -> &[u8] {
            active.payload()
        }

        #[inline]
        fn take(pending: &Pending<Self>, answer: &mut [u8]) -> Outcome<Option<usize>> {
            let Some(response) = pending.receive().map_err(problem("receive a response"))? else {
                return Ok(None);
            };
            put(response.payload(), answer).map(Some)
        }

        fn topic(builder: TopicBuilder<Self>) -> Outcome<Topic<Self>> {
            builder.open_or_create().map_err(problem("open a publish-subscribe service"))
        }

        #[inline]
        fn sample(from: &Subscriber<Ipc, Self, ()>) -> Outcome<Option<Sample<Ipc, Self, ()>>> {
            from.receive().map_err(problem("receive a sample"))
        }

        #[inline]
        fn bytes(sample: &Sample<Ipc, Self, ()>) -> &[u8] {
            sample.payload()
        }
    };
}

impl<const N: usize> Form for [u8; N] {
    alike!();

    fn client(requests: &Requests<Self>, _: usize) -> Outcome<ClientOf<Self>> {
        requests.client_builder().create().map_err(problem("create a client"))
    }

    fn server(requests: &Requests<Self>, _: usize) -> Outcome<ServerOf<Self>> {
        requests.server_builder().create().map_err(problem("create a server"))
    }

    fn publisher(topic: &Topic<Self>, _: usize) -> Outcome<Publisher<Ipc, Self, ()>> {
        topic.publisher_builder().create().map_err(problem("create a publisher"))
    }

    #[inline]
    fn send(client: &ClientOf<Self>, request: &[u8]) -> Outcome<Pending<Self>> {
        let loan = client.loan_uninit().map_err(problem("loan a request"))?;
        let request = *<&Self>::try_from(request)?;
        loan.write_payload(request).send().map_err(problem("send a request"))
    }

    #[inline]
    fn answer(active: &Active<Self>, handler: Handler) -> Outcome<()> {
        let loan = active.loan_uninit().map_err(problem("loan a response"))?;
        let mut response = loan.write_payload(*active.payload());
        handler.answer(response.payload_mut());
        response.send().map_err(problem("send a response"))
    }

    #[inline]
    fn publish(
        to: &Publisher<Ipc, Self, ()>,
        message: &[u8],
        edit: impl FnOnce(&mut [u8]),
    ) -> Outcome<()> {
        let loan = to.loan_uninit().map_err(problem("loan a sample"))?;
        let mut sample = loan.write_payload(*<&Self>::try_from(message)?);
        edit(sample.payload_mut());
        sample.send().map_err(problem("publish"))?;
        Ok(())
    }
}

impl Form for [u8] {
    alike!();

    fn client(requests: &Requests<Self>, longest: usize) -> Outcome<ClientOf<Self>> {
        let builder = requests.client_builder().initial_max_slice_len(longest);
        builder.create().map_err(problem("create a client"))
    }

    fn server(requests: &Requests<Self>, longest: usize) -> Outcome<ServerOf<Self>> {
        let builder = requests.server_builder().initial_max_slice_len(longest);
        builder.create().map_err(problem("create a server"))
    }

    fn publisher(topic: &Topic<Self>, longest: usize) -> Outcome<Publisher<Ipc, Self, ()>> {
        let builder = topic.publisher_builder().initial_max_slice_len(longest);
        builder.create().map_err(problem("create a publisher"))
    }

    #[inline]
    fn send(client: &ClientOf<Self>, request: &[u8]) -> Outcome<Pending<Self>> {
        let loan = client.loan_slice_uninit(request.len()).map_err(problem("loan a request"))?;
        loan.write_from_slice(request).send().map_err(problem("send a request"))
    }

    #[inline]
    fn answer(active: &Active<Self>, handler: Handler) -> Outcome<()> {
        let request = active.payload();
        let loan = active.loan_slice_uninit(request.len()).map_err(problem("loan a response"))?;
        let mut response = loan.write_from_slice(request);
        handler.answer(response.payload_mut());
        response.send().map_err(problem("send a response"))
    }

    #[inline]
    fn publish(
        to: &Publisher<Ipc, Self, ()>,
        message: &[u8],
        edit: impl FnOnce(&mut [u8]),
    ) -> Outcome<()> {
        let loan = to.loan_slice_uninit(message.len()).map_err(problem("loan a sample"))?;
        let mut sample = loan.write_from_slice(message);
        edit(sample.payload_mut());
        sample.send().map_err(problem("publish"))?;
        Ok(())
    }
}
