//! The lanes that long messages go through in parts.

use bellwire::Payload;

use crate::support::blob_server::{BlobServer, request};
use crate::support::services::services;

services! {
    Long("resize-parts"): Payload => Payload;
}

/// Not for the first message: its pages are expensive.
#[test]
fn lanes_become_large_when_much_has_gone_through_them_in_parts() {
    let blob_server = BlobServer::open::<Long>("");
    let mut client = blob_server.client::<Long>("");
    let session = client.session().unwrap();
    let mut sizes = Vec::new();
    for _ in 0..70 {
        let answer = session.call(&request(128 << 10, 128 << 10)).unwrap();
        assert_eq!(answer.len(), 128 << 10);
        let stats = session.stats();
        sizes.push([stats.requests.size, stats.answers.size]);
    }
    assert_eq!(sizes.first(), Some(&[256 << 10; 2]));
    assert_eq!(sizes.get(60), Some(&[256 << 10; 2]), "{sizes:?}");
    assert_eq!(sizes.last(), Some(&[1 << 20; 2]), "{sizes:?}");
}
