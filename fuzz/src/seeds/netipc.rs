//! Sessions of netipc, and its payloads, as inputs of `netipc`.

use std::time::Duration;

use bellwire::netipc::lookup::{self, Cgroup};
use bellwire::netipc::snapshot::{self, Item};
use bellwire::{Lookup, Message};
use bellwire_apps::App;
use bellwire_cgroups::{CgroupDetails, Options, Orchestrator};

use super::sized;
use crate::netipc::wire::{APPS, CGROUPS, Hello, INCREMENT, keys, table};

pub(super) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let number = 41_u64.to_ne_bytes();
    let batch = table(&vec![number.to_vec(); 20]);
    let paths = keys(&[b"/a\0".to_vec(), b"/b\0".to_vec()]);
    let pids = keys(&[vec![1, 0, 0, 0, 0, 0, 0, 0]]);
    // Each answer of a service is one of these.
    let ok = |bytes: &[u8]| [&[3][..], &sized(bytes)].concat();
    let labels = || vec![("k".to_owned(), "v".to_owned())];
    let details = CgroupDetails {
        id: 7,
        name: "web".into(),
        options: Options::UNIFIED,
        enabled: true,
        orchestrator: Orchestrator::Docker,
        labels: labels(),
    };
    let app = App {
        ppid: 1,
        uid: 1000,
        started: Duration::from_secs(9),
        comm: "nginx".into(),
        cgroup: "/a".into(),
        orchestrator: Orchestrator::Docker,
        cgroup_name: "web".into(),
        labels: labels(),
        pending: false,
    };
    let details = ok(&encoded(&Lookup::Known(details)));
    let unknown = ok(&encoded(&Lookup::<App>::Unknown));
    let answers = ok(&number).repeat(20);
    let item = Item { options: 6, enabled: true, name: "web", path: "/a" };
    let snapshot = snapshot::write([item, Item { name: "", ..item }].into_iter(), true, 3);
    let known = Cgroup::Known { orchestrator: 2, name: "web".into(), labels: labels() };
    let mut found = Vec::new();
    let written = lookup::write_cgroups(&[(b"/a", known)], 3, 4096, &mut found);
    assert_eq!(written, Ok(()));
    vec![
        ("a-number", session(&[request(INCREMENT, 1, &number), ok(&number)])),
        // In chunks: a datagram carries 68 bytes.
        ("a-batch", session(&[request(INCREMENT, 20, &batch), rest(&batch), answers])),
        ("cgroups", session(&[request(CGROUPS, 1, &paths), details, unknown])),
        ("a-process", session(&[request(APPS, 1, &pids), ok(&encoded(&Lookup::Known(app)))])),
        ("an-unknown-method", session(&[request(7, 1, &[]), request(INCREMENT, 1, &number)])),
        ("a-snapshot", [&[2], &snapshot[..]].concat()),
        ("found-cgroups", [&[3, 1][..], &sized(b"/a"), &found].concat()),
    ]
}

fn encoded(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn session(rest: &[Vec<u8>]) -> Vec<u8> {
    let hello = Hello { max_request: 4096, max_response: 4096, packet: 100, ..Hello::default() };
    [&[0][..], &sized(&hello.datagram()), &rest.concat()].concat()
}

/// The first datagram of a request, all of whose bytes are told.
fn request(code: u16, items: u8, payload: &[u8]) -> Vec<u8> {
    let first = payload.get(..68).unwrap_or(payload);
    let left = (payload.len() - first.len()) as u16;
    let head = [1 + 4, code as u8, items, 9, u8::from(items > 1)];
    [&head[..], &sized(first), &left.to_le_bytes()].concat()
}

/// The chunks after the first.
fn rest(payload: &[u8]) -> Vec<u8> {
    let chunks = payload.chunks(68).skip(1);
    chunks.flat_map(|chunk| [&[1][..], &sized(chunk)].concat()).collect()
}
