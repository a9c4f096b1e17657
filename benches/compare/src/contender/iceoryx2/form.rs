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
pub(super) type PublisherOf<F> = Publisher<Ipc, F, ()>;
pub(super) type SubscriberOf<F> = Subscriber<Ipc, F, ()>;
pub(super) type SampleOf<F> = Sample<Ipc, F, ()>;
pub(super) type TopicBuilder<F> = publish_subscribe::Builder<F, (), Ipc>;

/// A form of messages. The library has methods of the same shape for both, without a trait.
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
    fn publisher(topic: &Topic<Self>, longest: usize) -> Outcome<PublisherOf<Self>>;
    fn sample(from: &SubscriberOf<Self>) -> Outcome<Option<SampleOf<Self>>>;
    fn bytes(sample: &SampleOf<Self>) -> &[u8];
    /// Publishes what `edit` makes of a message.
    fn publish(to: &PublisherOf<Self>, message: &[u8], edit: impl FnOnce(&mut [u8]))
    -> Outcome<()>;
}

/// Has a form of messages: what its ports are set up with, given `$longest`, and how a message is loaned and written, given
/// `$bytes`.
macro_rules! form {
    (
        [$($generics:tt)*] $form:ty,
        |$longest:ident| ports $(.$setup:ident($most:expr))?,
        |$bytes:ident| $loan:ident($($len:expr)?).$write:ident($value:expr)
    ) => {
        impl<$($generics)*> Form for $form {
            fn requests(builder: RequestsBuilder<Self>) -> Outcome<Requests<Self>> {
                builder.open_or_create().map_err(problem("open a request-response service"))
            }

            fn client(requests: &Requests<Self>, $longest: usize) -> Outcome<ClientOf<Self>> {
                let builder = requests.client_builder()$(.$setup($most))?;
                builder.create().map_err(problem("create a client"))
            }

            fn server(requests: &Requests<Self>, $longest: usize) -> Outcome<ServerOf<Self>> {
                let builder = requests.server_builder()$(.$setup($most))?;
                builder.create().map_err(problem("create a server"))
            }

            #[inline]
            fn send(client: &ClientOf<Self>, $bytes: &[u8]) -> Outcome<Pending<Self>> {
                let loan = client.$loan($($len)?).map_err(problem("loan a request"))?;
                loan.$write($value).send().map_err(problem("send a request"))
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
            fn answer(active: &Active<Self>, handler: Handler) -> Outcome<()> {
                let $bytes: &[u8] = active.payload();
                let loan = active.$loan($($len)?).map_err(problem("loan a response"))?;
                let mut response = loan.$write($value);
                handler.answer(response.payload_mut());
                response.send().map_err(problem("send a response"))
            }

            #[inline]
            fn take(pending: &Pending<Self>, answer: &mut [u8]) -> Outcome<Option<usize>> {
                let response = pending.receive().map_err(problem("receive a response"))?;
                response.map(|response| put(response.payload(), answer)).transpose()
            }

            fn topic(builder: TopicBuilder<Self>) -> Outcome<Topic<Self>> {
                builder.open_or_create().map_err(problem("open a publish-subscribe service"))
            }

            fn publisher(topic: &Topic<Self>, $longest: usize) -> Outcome<PublisherOf<Self>> {
                let builder = topic.publisher_builder()$(.$setup($most))?;
                builder.create().map_err(problem("create a publisher"))
            }

            #[inline]
            fn sample(from: &SubscriberOf<Self>) -> Outcome<Option<SampleOf<Self>>> {
                from.receive().map_err(problem("receive a sample"))
            }

            #[inline]
            fn bytes(sample: &SampleOf<Self>) -> &[u8] {
                sample.payload()
            }

            #[inline]
            fn publish(
                to: &PublisherOf<Self>,
                $bytes: &[u8],
                edit: impl FnOnce(&mut [u8]),
            ) -> Outcome<()> {
                let loan = to.$loan($($len)?).map_err(problem("loan a sample"))?;
                let mut sample = loan.$write($value);
                edit(sample.payload_mut());
                sample.send().map_err(problem("publish"))?;
                Ok(())
            }
        }
    };
}

form!(
    [const N: usize] [u8; N],
    |_longest| ports,
    |bytes| loan_uninit().write_payload(*<&Self>::try_from(bytes)?)
);
form!([][u8], |longest| ports.initial_max_slice_len(longest), |bytes| loan_slice_uninit(
    bytes.len()
)
.write_from_slice(bytes));
