//! Messages that panic in encoding or decoding, and handlers whose panic payload panics when dropped: one call fails,
//! and the server continues.

use bellwire::{CallError, Client, Malformed, Message, Server, ServerConfig, Service, Status};

use crate::support::guard::until;
use crate::support::test_server::{Dir, client_config, provide_with};

/// A byte that selects where its call panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PanicsAt(u8);

const HELD: PanicsAt = PanicsAt(0);
const PANICS_IN_DECODE: PanicsAt = PanicsAt(1);
const PANICS_IN_ENCODE: PanicsAt = PanicsAt(2);

/// The answer to one.
#[derive(Debug, PartialEq, Eq)]
struct Answer(u8);

impl Message for PanicsAt {
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(self.0);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        assert_ne!(bytes, [PANICS_IN_DECODE.0]);
        u8::decode(bytes).map(Self)
    }
}

impl Message for Answer {
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(self.0);
        assert_ne!(self.0, PANICS_IN_ENCODE.0);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        u8::decode(bytes).map(Self)
    }
}

struct ByItem;
struct ByBatch;

impl Service for ByItem {
    const NAME: &'static str = "panics-by-item";
    type Request = PanicsAt;
    type Response = Answer;
}

impl Service for ByBatch {
    const NAME: &'static str = "panics-by-batch";
    type Request = PanicsAt;
    type Response = Answer;
}

fn panicked<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::Declined { status: Status::Panicked }))
}

fn survives_panics<S: Service<Request = PanicsAt, Response = Answer>>(client: &mut Client<S>) {
    for panics in [PANICS_IN_DECODE, PANICS_IN_ENCODE] {
        let session = client.connect().unwrap();
        assert!(panicked(&session.call(&panics)), "{panics:?}");
        assert_eq!(session.call(&HELD).unwrap(), Answer(0), "after {panics:?}");
        let whole = session.call_batch(&[HELD, panics]).map(Iterator::count);
        assert!(panicked(&whole), "{panics:?} in a batch");
        let replies = session.call_batch(&[HELD, HELD]).unwrap();
        let held = replies.filter(|reply| *reply.as_ref().unwrap() == Answer(0)).count();
        assert_eq!(held, 2, "after {panics:?} in a batch");
    }
}

#[test]
fn a_message_that_panics_fails_its_call_and_nothing_else() {
    for workers in [0, 2] {
        let dir = Dir::new();
        let config = ServerConfig::default().workers(workers);
        let mut builder = Server::builder_with_config(&dir.run_dir, config);
        builder.serve::<ByItem>(|_, request| Ok(Answer(request.0))).unwrap();
        builder
            .serve_batches::<ByBatch>(|_, requests, answers| {
                answers.extend(requests.iter().map(|request| Answer(request.0)));
            })
            .unwrap();
        let server = builder.start().unwrap();
        survives_panics(&mut Client::<ByItem>::with_config(&dir.run_dir, client_config()));
        survives_panics(&mut Client::<ByBatch>::with_config(&dir.run_dir, client_config()));
        // Two alone, and two batches that count as one request each, with each service; counted when the server sleeps.
        until("all are counted", || server.stats().panics == 8);
        assert_eq!(server.stats().admitted, 2, "one session each, all along");
    }
}

/// The payload of a handler's panic; dropping it panics with another one, this many times.
struct Bomb(u8);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Self(self.0 - 1));
        }
    }
}

#[test]
fn a_panic_whose_payload_panics_when_dropped_fails_its_call_alone() {
    for workers in [0, 2] {
        let dir = Dir::new();
        let config = ServerConfig::default().workers(workers);
        let _server = provide_with::<ByItem>(&dir.run_dir, config, |_, request| {
            if request != HELD {
                std::panic::panic_any(Bomb(request.0));
            }
            Ok(Answer(0))
        });
        let mut client = Client::<ByItem>::with_config(&dir.run_dir, client_config());
        for nested in 2..5 {
            let session = client.connect().unwrap();
            assert!(panicked(&session.call(&PanicsAt(nested))));
            let mut replies = session.call_batch(&[HELD, PanicsAt(nested)]).unwrap();
            assert_eq!(*replies.next().unwrap().as_ref().unwrap(), Answer(0));
            assert!(replies.next().unwrap().is_err());
        }
        assert_eq!(client.connect().unwrap().call(&HELD).unwrap(), Answer(0));
    }
}
