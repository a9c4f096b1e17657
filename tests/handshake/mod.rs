//! Peers that break the handshake with bytes alone. Violations by memory and descriptors are in `tests/linux`.

use std::thread;
use std::time::Duration;

use bellwire::{Client, ErrorKind, RefuseCode, RunDir, ServerConfig, Service};
use bellwire_core::wire::{Doorbell, Hello, MAX_CONTROL, Message, PROTOCOL, Versions};
use bellwire_core::{Geometry, Limits};

use crate::support::guard::{test_deadline, until};
use crate::support::services::{Echo, echo};
use crate::support::test_server::{Dir, TestServer, client_config, provide};
use crate::support::transport::endpoint::Endpoint;
use crate::support::transport::pass::{Channel, ReceiveError};
use crate::support::transport::{Os, prelude::*};

fn hello() -> Hello {
    Hello {
        versions: PROTOCOL,
        features: 0,
        service: Client::<Echo>::SERVICE,
        service_version: Echo::VERSION,
        token: [0; 16],
        lane: Geometry::DEFAULT,
        least_lane: Geometry::DEFAULT,
        limits: Limits::default(),
        doorbell: Doorbell::Eventfd,
        rings_eventfd: true,
        schema: 0,
    }
}

fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = [0; MAX_CONTROL];
    let len = message.encode(0, &mut bytes);
    bytes[..len].to_vec()
}

fn connect(run_dir: &RunDir) -> Channel {
    let service = Client::<Echo>::SERVICE;
    Endpoint::connect(run_dir.path(), service, &[], Some(test_deadline())).unwrap()
}

/// The next message; `None` when the other end is closed.
fn receive(channel: &Channel) -> Option<Message> {
    let mut bytes = [0; MAX_CONTROL];
    loop {
        match channel.receive(&mut bytes, 8) {
            Ok(received) => {
                let message = Message::parse(&bytes[..received.len], received.count());
                return Some(message.unwrap());
            }
            Err(ReceiveError::WouldBlock) => {
                assert!(Os::wait_any(&[channel.arrived()], Some(test_deadline())).unwrap());
            }
            Err(ReceiveError::Closed) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The client's message is refused for this reason, the connection closed, and others are served.
#[track_caller]
fn refuses(messages: &[&[u8]], code: RefuseCode, part: &str) {
    let fixture = TestServer::open();
    let mut good = fixture.client::<Echo>();
    let rogue = connect(fixture.run_dir());
    for message in messages {
        rogue.send(message, &[]).unwrap();
    }
    is_refused(&rogue, code, part);
    assert_eq!(good.call(&b"still here".to_vec()).unwrap(), b"still here");
    assert_eq!(fixture.client::<Echo>().call(&vec![1]).unwrap(), [1]);
    drop(good);
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.handshakes_failed, stats.poisoned), (2, 1, 0), "{stats:?}");
}

#[track_caller]
fn is_refused(rogue: &Channel, code: RefuseCode, part: &str) {
    loop {
        match receive(rogue).expect("it is told why") {
            Message::Welcome(_) => {}
            Message::Refuse(refuse) => {
                assert_eq!(refuse.code, code, "{}", refuse.reason());
                assert!(refuse.reason().contains(part), "{:?} lacks {part:?}", refuse.reason());
                break;
            }
            message => panic!("{message:?}"),
        }
    }
    assert_eq!(receive(rogue), None);
}

#[test]
fn an_invalid_message_is_refused() {
    refuses(&[b"GET / HTTP/1.1\r\n\r\n"], RefuseCode::Protocol, "not a Bellwire peer");
}

#[test]
fn a_client_of_another_version_is_refused_as_incompatible() {
    let next = PROTOCOL.max + 1;
    let hello = Hello { versions: Versions { min: next, max: next }, ..hello() };
    refuses(&[&encode(&Message::Hello(hello))], RefuseCode::Incompatible, "");
}

#[test]
fn a_client_that_sends_hello_twice_is_refused() {
    let hello = encode(&Message::Hello(hello()));
    refuses(&[&hello, &hello], RefuseCode::Protocol, "");
}

#[test]
fn a_client_that_hangs_up_at_any_point_is_forgotten() {
    let fixture = TestServer::open();
    let silent = connect(fixture.run_dir());
    let greeting = connect(fixture.run_dir());
    greeting.send(&encode(&Message::Hello(hello())), &[]).unwrap();
    assert!(matches!(receive(&greeting), Some(Message::Welcome(_))));
    drop((silent, greeting));
    until("both are forgotten", || fixture.stats().handshakes_failed == 2);
    assert_eq!(fixture.client::<Echo>().call(&vec![1]).unwrap(), [1]);
    assert_eq!(fixture.close().admitted, 1);
}

#[test]
fn a_silent_client_is_refused_at_the_handshake_timeout() {
    let handshake_timeout = Duration::from_millis(20);
    let fixture = TestServer::with(ServerConfig::default().handshake_timeout(handshake_timeout));
    let rogue = connect(fixture.run_dir());
    is_refused(&rogue, RefuseCode::Protocol, "not finished in time");
}

#[test]
fn a_server_that_stops_refuses_clients_in_the_handshake() {
    let fixture = TestServer::open();
    let rogue = connect(fixture.run_dir());
    rogue.send(&encode(&Message::Hello(hello())), &[]).unwrap();
    assert!(matches!(receive(&rogue), Some(Message::Welcome(_))));
    let stats = fixture.close();
    is_refused(&rogue, RefuseCode::Stopping, "stopping");
    assert_eq!(stats.admitted, 0);
}

/// What a provider says to a HELLO, which makes the client fail in this way; then it finds an honest one.
#[track_caller]
fn fails(answer: &[u8], kind: ErrorKind, part: &str) {
    let dir = Dir::new();
    let bind = || {
        let (path, service) = (dir.run_dir.path(), Client::<Echo>::SERVICE);
        let same_user = bellwire::Admission::SameUser;
        let endpoint = Endpoint::reserve(path, service, &same_user, false, None).unwrap();
        endpoint.listen(1).unwrap();
        endpoint
    };
    let endpoint = bind();
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    let error = thread::scope(|scope| {
        let call = scope.spawn(|| client.call(&vec![1]).unwrap_err());
        let rogue = loop {
            match endpoint.accept().unwrap() {
                Some(channel) => break channel,
                None => thread::yield_now(),
            }
        };
        assert!(matches!(receive(&rogue), Some(Message::Hello(_))));
        rogue.send(answer, &[]).unwrap();
        call.join().unwrap()
    });
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "{error}");
    drop(endpoint);
    let _server = provide::<Echo>(&dir.run_dir, echo);
    let mut again = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(again.call(&vec![1]).unwrap(), [1]);
}

#[test]
fn a_provider_that_answers_with_no_message_is_none() {
    fails(b"HTTP/1.1 400 Bad Request\r\n\r\n", ErrorKind::ProtocolViolation, "not a Bellwire peer");
}

#[test]
fn a_provider_that_sends_hello_violates_the_protocol() {
    fails(&encode(&Message::Hello(hello())), ErrorKind::ProtocolViolation, "");
}

#[test]
fn a_refused_call_has_the_providers_reason() {
    let refuse = bellwire_core::wire::Refuse::new(RefuseCode::Quota, "come again later");
    fails(&encode(&Message::Refuse(refuse)), ErrorKind::Refused, "come again later");
}
