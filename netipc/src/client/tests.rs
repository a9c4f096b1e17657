//! A reader, at providers of Bellwire that serve netipc, and at misbehaving providers.

use std::path::Path;
use std::thread;
use std::time::Duration;

use bellwire::{Lookup, RunDir, Server, ServerConfig};
use bellwire_apps::AppsLookup;
use bellwire_cgroups::{
    CgroupDetails, CgroupsLookup, CgroupsSnapshot, Meta, Mode, encode, synthetic,
};
use bellwire_memfd::endpoint::ConnectError;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};

use super::{Client, ClientConfig, ClientError};
use crate::handshake::refuse_hello;
use crate::lookup::{App, Cgroup};
use crate::{Status, Token};

fn client(dir: &Path) -> Client {
    let config = ClientConfig::default().token(Token::new(7)).timeout(Duration::from_secs(60));
    Client::with_config(dir, config)
}

/// Serves everything, until it is dropped.
fn provider(dir: &Path) -> Server {
    let config =
        ServerConfig::default().netipc(true).netipc_token(Some(bellwire::netipc::Token::new(7)));
    let mut builder = Server::builder_with_config(&RunDir::new(dir), config);
    let publisher = builder.publish::<CgroupsSnapshot>().unwrap();
    let entries = synthetic::entries(3000, 1);
    publisher.publish(&encode(&entries, Meta::now(Mode::V2)).unwrap()).unwrap();
    let look = move |path: String| {
        let found = entries.iter().find(|entry| entry.path == path);
        let details = found.map(|entry| CgroupDetails {
            id: entry.id,
            name: entry.name.clone(),
            options: entry.options,
            enabled: true,
            orchestrator: entry.orchestrator,
            labels: vec![("long".into(), "x".repeat(1000))],
        });
        details.map_or(Lookup::Unknown, Lookup::Known)
    };
    builder.serve::<CgroupsLookup>(move |_, path| Ok(look(path))).unwrap();
    builder.serve::<AppsLookup>(|_, _| Ok(Lookup::Unknown)).unwrap();
    builder.start().unwrap()
}

#[test]
fn a_reader_gets_the_snapshots_of_a_provider_of_both_protocols() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = client(dir.path());
    let absent = client.snapshot(|_| ()).unwrap_err();
    assert!(matches!(absent, ClientError::Connect(ConnectError::Absent { .. })), "{absent}");
    let server = provider(dir.path());
    let read = |client: &mut Client| {
        let own = |item: &crate::snapshot::Item<'_>| (item.name.to_owned(), item.path.to_owned());
        client.snapshot(|view| view.items.iter().map(own).collect::<Vec<_>>()).unwrap()
    };
    let entries = synthetic::entries(3000, 1);
    let mut expected: Vec<_> =
        entries.iter().map(|entry| (entry.name.clone(), entry.path.clone())).collect();
    expected.sort_by(|(_, a), (_, b)| a.cmp(b));
    assert_eq!(read(&mut client), expected);
    // More than one answer holds, in requests that the provider does not answer as a whole.
    let mut paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
    paths.push("/no/such");
    let found = client.lookup_cgroups(&paths).unwrap();
    assert_eq!(found.len(), paths.len());
    for (entry, found) in entries.iter().zip(&found) {
        assert!(matches!(found, Cgroup::Known { name, .. } if *name == entry.name), "{found:?}");
    }
    assert_eq!(found.last(), Some(&Cgroup::Unknown));
    assert_eq!(client.lookup_apps(&[1, 2]).unwrap(), [App::Unknown, App::Unknown]);
    assert_eq!(client.lookup_apps(&[]).unwrap(), []);
    assert!(server.stats().netipc_admitted >= 3);
    // Restarted: one call finds out, and connects again.
    server.stop();
    let server = provider(dir.path());
    assert_eq!(read(&mut client), expected);
    server.stop();
}

type Ack = fn(&[u8]) -> Vec<u8>;

/// Plays a provider that answers a HELLO with one datagram, and the request with others.
fn misbehaving_server(dir: &Path, ack: Ack, answers: Vec<Vec<u8>>) -> thread::JoinHandle<()> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let path = dir.join("cgroups-snapshot.sock");
    let _ = std::fs::remove_file(&path);
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    thread::spawn(move || {
        let client = rustix::net::accept(&socket).unwrap();
        let mut hello = vec![0; 1000];
        let (len, _) = rustix::net::recv(&client, &mut hello[..], RecvFlags::empty()).unwrap();
        let ack = ack(&hello[..len]);
        let _ = rustix::net::send(&client, &ack, SendFlags::NOSIGNAL);
        for answer in answers {
            let _ = rustix::net::send(&client, &answer, SendFlags::NOSIGNAL);
        }
    })
}

/// What an honest provider answers.
fn honest(hello: &[u8]) -> Vec<u8> {
    let terms = crate::handshake::Terms {
        token: None,
        max_request: 1 << 20,
        max_response: (1000, 1 << 20),
        session: 1,
    };
    crate::handshake::answer_hello(hello, &terms).unwrap().1.to_vec()
}

fn with(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

#[test]
fn a_reader_takes_nothing_from_a_misbehaving_provider() {
    use crate::wire::{Header, RESPONSE};
    use zerocopy::IntoBytes;
    let dir = tempfile::tempdir().unwrap();
    let payload = crate::snapshot::write([].into_iter(), true, 1);
    let header = |code, len, id| Header::new(RESPONSE, code, len, 1, id).as_bytes().to_vec();
    let message = |code, id| vec![[header(code, payload.len(), id), payload.clone()].concat()];
    let good = message(2, 1).concat();
    let lies: Vec<(&str, Ack, Vec<Vec<u8>>)> = vec![
        ("no answer", |_| b"x".to_vec(), vec![]),
        ("another profile", |hello| with(honest(hello), 32 + 12, 2), vec![]),
        ("a packet size of nothing", |hello| with(honest(hello), 32 + 34, 0), vec![]),
        ("an unknown status", |hello| with(honest(hello), 14, 9), vec![]),
        ("an answer cut short", honest, vec![good[..40].to_vec()]),
        ("another method", honest, message(4, 1)),
        ("another number", honest, message(2, 2)),
        ("a request", honest, vec![with(good.clone(), 8, 1)]),
        ("more than was agreed", honest, vec![header(2, 1 << 21, 1)]),
        ("a payload of another layout", honest, vec![with(good.clone(), 32, 2)]),
        ("a count that is not there", honest, vec![with(good.clone(), 36, 9)]),
    ];
    for (name, ack, answers) in lies {
        let misbehaving_server = misbehaving_server(dir.path(), ack, answers);
        let error = client(dir.path()).snapshot(|_| panic!("{name}: it was read")).unwrap_err();
        let is_told =
            matches!(error, ClientError::Violation { .. } | ClientError::Malformed { .. });
        assert!(is_told, "{name}: {error}");
        assert_eq!(error.fault(), bellwire_core::Fault::Peer, "{name}");
        misbehaving_server.join().unwrap();
    }
    let refused = misbehaving_server(
        dir.path(),
        |hello| refuse_hello(hello, Status::AuthFailed).to_vec(),
        vec![],
    );
    let error = client(dir.path()).snapshot(|_| ()).unwrap_err();
    assert!(matches!(error, ClientError::Refused { status: Status::AuthFailed, .. }), "{error}");
    refused.join().unwrap();
    let gone = misbehaving_server(dir.path(), honest, vec![]);
    let error = client(dir.path()).snapshot(|_| ()).unwrap_err();
    assert!(matches!(error, ClientError::Gone { .. }), "{error}");
    gone.join().unwrap();
}
