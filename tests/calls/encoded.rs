//! A request that finds room is encoded once, on the fast path and on the slow path.

use bellwire::{Backpressure, Client, Malformed, Message};
use bellwire_core::sync::{AtomicU64, Ordering};

use crate::support::guard::TEST_TIMEOUT;
use crate::support::services::services;
use crate::support::test_server::{Dir, client_config, provide};

static ENCODED: AtomicU64 = AtomicU64::new(0);

#[derive(PartialEq, Eq)]
struct Counted(Vec<u8>);

impl Message for Counted {
    fn encode(&self, into: &mut Vec<u8>) {
        ENCODED.fetch_add(1, Ordering::Relaxed);
        into.extend_from_slice(&self.0);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(Self(bytes.to_vec()))
    }
}

services! {
    Mirror("mirror"): Counted => Vec<u8>;
}

/// Of these, a lane of 16 KiB takes the first three in one record each, the next after it has grown, or in parts; the
/// last one travels in a memfd.
const LENGTHS: [usize; 6] = [0, 64, 5_000, 9_000, 60_000, 200_000];

#[test]
fn a_request_that_finds_room_is_encoded_once_in_lane_or_attached() {
    let dir = Dir::new();
    let _server = provide::<Mirror>(&dir.run_dir, |_, request| Ok(request.0));
    let requests: Vec<_> = LENGTHS.iter().map(|len| Counted(vec![7; *len])).collect();
    for backpressure in [Backpressure::Adapt, Backpressure::Grow, Backpressure::Wait] {
        let config = client_config()
            .backpressure(backpressure)
            .lane(client_config().lane.attach_from(Some(100_000)));
        let mut client = Client::<Mirror>::with_config(&dir.run_dir, config);
        let session = client.connect().unwrap();
        let before = ENCODED.load(Ordering::Relaxed);
        for request in &requests {
            assert!(session.call(request).unwrap() == request.0);
            let ticket = session.submit(request).unwrap();
            let (of, answer) = session.wait_reply(TEST_TIMEOUT).unwrap();
            assert!(of == ticket && answer.unwrap() == request.0);
        }
        session
            .call_many(&requests, |nth, answer| assert!(answer.unwrap() == requests[nth].0))
            .unwrap();
        let encoded = ENCODED.load(Ordering::Relaxed) - before;
        assert_eq!(encoded, 3 * requests.len() as u64, "{backpressure:?}");
        let requests = session.stats().requests;
        assert_eq!(requests.attaches, 3, "{backpressure:?}");
    }
}
