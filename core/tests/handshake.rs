//! The two handshake machines against each other, and against everything that has no place.

use bellwire_core::handshake::{
    Admission, ClientHandshake, ClientStep, HandshakeError, Rejection, ServerHandshake, ServerStep,
    SessionTerms,
};
use bellwire_core::lane::Epoch;
use bellwire_core::wire::{
    Attachment, ControlKind, Doorbell, Hello, Join, Message, PROTOCOL, Ready, Refuse, RefuseCode,
    SAMPLES, STATS_VERSION, Versions, Welcome,
};
use bellwire_core::{Geometry, Instant, Limits};

use crate::codec::encode;

const SESSION: u64 = 77;

fn limits(max_lane: u64) -> Limits {
    Limits { max_lane: Geometry::new(max_lane).unwrap(), ..Limits::default() }
}

fn hello() -> Hello {
    Hello {
        versions: PROTOCOL,
        features: 0,
        service: "cgroups-snapshot".parse().unwrap(),
        service_version: 2,
        token: [9; 16],
        lane: Geometry::new(8192).unwrap(),
        least_lane: Geometry::new(4096).unwrap(),
        limits: limits(1 << 20),
        doorbell: Doorbell::Futex,
        rings_eventfd: true,
        schema: 0,
    }
}

fn admission() -> Admission {
    let token = Some([9; 16]);
    Admission {
        service: hello().service,
        service_version: 2,
        token,
        limits: limits(1 << 16),
        features: SAMPLES,
        schema: 0,
    }
}

fn offer() -> SessionTerms {
    let (lane, least_lane) = (Geometry::DEFAULT, Geometry::new(8192).unwrap());
    SessionTerms {
        session: SESSION,
        lane,
        least_lane,
        doorbell: Doorbell::Eventfd,
        max_batch: 1000,
    }
}

fn client(hello: Hello) -> ClientHandshake {
    ClientHandshake::new(hello, Instant::from_nanos(100))
}

fn server() -> ServerHandshake {
    ServerHandshake::new(admission())
}

/// One message of each kind.
fn every_message() -> Vec<Message> {
    let welcome = Welcome {
        version: 1,
        features: 0,
        session: SESSION,
        lane: Geometry::DEFAULT,
        least_lane: Geometry::new(8192).unwrap(),
        limits: limits(1 << 16),
        doorbell: Doorbell::Eventfd,
        max_batch: 1000,
        schema: 0,
    };
    vec![
        Message::Hello(hello()),
        Message::Welcome(welcome),
        Message::Refuse(Refuse::new(RefuseCode::Stopping, "stopping")),
        Message::Join(Join { session: SESSION }),
        Message::Ready(Ready { session: SESSION }),
        Message::Attachment(Attachment { id: 1, generation: 2, len: 3 }),
        Message::Lane(Epoch::first(Geometry::DEFAULT)),
        Message::Ring,
    ]
}

fn to_client(
    client: &mut ClientHandshake,
    message: &Message,
    fds: usize,
) -> Result<ClientStep, HandshakeError> {
    client.on_message(&encode(message, fds), fds)
}

fn to_server(
    server: &mut ServerHandshake,
    message: &Message,
    fds: usize,
) -> Result<ServerStep, Rejection> {
    server.on_message(&encode(message, fds), fds)
}

/// A server at each step before the last: waiting for HELLO, admitted, waiting for JOIN, mapping, over.
fn servers() -> Vec<(&'static str, ServerHandshake)> {
    let mut servers = vec![("hello", server())];
    let mut admitted = server();
    to_server(&mut admitted, &Message::Hello(hello()), 0).unwrap();
    servers.push(("admitted", admitted));
    let mut joining = server();
    to_server(&mut joining, &Message::Hello(hello()), 0).unwrap();
    joining.welcome(offer()).unwrap();
    servers.push(("join", joining));
    let mut mapping = server();
    to_server(&mut mapping, &Message::Hello(hello()), 0).unwrap();
    mapping.welcome(offer()).unwrap();
    to_server(&mut mapping, &Message::Join(Join { session: SESSION }), 2).unwrap();
    servers.push(("mapping", mapping));
    let mut over = server();
    to_server(&mut over, &Message::Ring, 0).unwrap_err();
    servers.push(("over", over));
    servers
}

fn clients() -> Vec<(&'static str, ClientHandshake)> {
    let welcome = &every_message()[1];
    let mut mapping = client(hello());
    to_client(&mut mapping, welcome, 4).unwrap();
    let mut ready = client(hello());
    to_client(&mut ready, welcome, 4).unwrap();
    ready.join().unwrap();
    let mut over = client(hello());
    to_client(&mut over, &Message::Ring, 0).unwrap_err();
    vec![("welcome", client(hello())), ("mapping", mapping), ("ready", ready), ("over", over)]
}

#[test]
fn both_ends_agree() {
    for (doorbell, rings_eventfd) in
        [(Doorbell::Futex, true), (Doorbell::Eventfd, false), (Doorbell::Socket, true)]
    {
        let hello = Hello { doorbell, rings_eventfd, ..hello() };
        let (mut client, mut server) = (client(hello), server());
        let step = to_server(&mut server, &client.hello(), 0).unwrap();
        assert_eq!(step, ServerStep::Admit(hello));
        let welcome = server.welcome(offer()).unwrap();
        let expected = if rings_eventfd { Doorbell::Eventfd } else { Doorbell::Socket };
        assert_eq!((welcome.version, welcome.session, welcome.doorbell), (1, SESSION, expected));
        assert_eq!((welcome.lane, welcome.limits), (Geometry::DEFAULT, limits(1 << 16)));
        assert_eq!(welcome.least_lane.size(), 8192);
        let fds = 3 + usize::from(rings_eventfd);
        let step = to_client(&mut client, &Message::Welcome(welcome), fds).unwrap();
        assert_eq!(step, ClientStep::Map(welcome));
        let join = client.join().unwrap();
        let fds = 2 + usize::from(doorbell == Doorbell::Eventfd);
        assert_eq!(to_server(&mut server, &join, fds).unwrap(), ServerStep::Map(hello, welcome));
        let ready = server.ready().unwrap();
        assert_eq!(to_client(&mut client, &ready, 0).unwrap(), ClientStep::Done(welcome));
    }
}

#[test]
fn a_message_that_has_no_place_ends_the_servers_handshake_at_every_step() {
    for step in 0..servers().len() {
        for message in every_message() {
            let (name, mut server) = servers().remove(step);
            let kind = message.kind();
            let belongs =
                matches!((name, kind), ("hello", ControlKind::Hello) | ("join", ControlKind::Join));
            if belongs {
                continue;
            }
            let rejection = to_server(&mut server, &message, 0).unwrap_err();
            assert_eq!(rejection.error, HandshakeError::Unexpected { kind }, "{name}");
            assert_eq!(rejection.refuse.code, RefuseCode::Protocol);
            assert_eq!(server.welcome(offer()), None, "{name}: it is over");
            assert_eq!(server.ready(), None, "{name}: it is over");
        }
    }
}

#[test]
fn a_message_that_has_no_place_ends_the_clients_handshake_at_every_step() {
    for step in 0..clients().len() {
        for message in every_message() {
            let (name, mut client) = clients().remove(step);
            let kind = message.kind();
            let belongs = matches!(
                (name, kind),
                ("welcome" | "ready", ControlKind::Refuse)
                    | ("welcome", ControlKind::Welcome)
                    | ("ready", ControlKind::Ready)
            );
            if belongs {
                continue;
            }
            let error = to_client(&mut client, &message, 0).unwrap_err();
            assert_eq!(error, HandshakeError::Unexpected { kind }, "{name}");
            assert_eq!(client.join(), None, "{name}: it is over");
        }
    }
}

#[test]
fn no_handshake_message_is_sent_before_its_turn() {
    let mut server = server();
    assert_eq!(server.welcome(offer()), None);
    assert_eq!(server.ready(), None);
    to_server(&mut server, &Message::Hello(hello()), 0).unwrap();
    assert_eq!(server.ready(), None);
    assert!(server.welcome(offer()).is_some());
    assert_eq!(server.welcome(offer()), None, "once");
    let mut client = client(hello());
    assert_eq!(client.join(), None);
    to_client(&mut client, &every_message()[1], 4).unwrap();
    assert!(client.join().is_some());
    assert_eq!(client.join(), None, "once");
}

#[test]
fn a_client_of_another_version_learns_and_reports_both_ranges() {
    let theirs = Versions { min: 2, max: 7 };
    let mut bytes = encode(&Message::Hello(hello()), 0);
    bytes[8..10].copy_from_slice(&theirs.min.to_le_bytes());
    bytes[10..12].copy_from_slice(&theirs.max.to_le_bytes());
    let rejection = server().on_message(&bytes, 0).unwrap_err();
    assert_eq!(rejection.error, HandshakeError::Incompatible { ours: PROTOCOL, theirs });
    assert_eq!(rejection.refuse.code, RefuseCode::Incompatible);
    assert_eq!(rejection.refuse.versions, PROTOCOL);
    assert!(rejection.refuse.reason().contains("1-1") && rejection.refuse.reason().contains("2-7"));

    let mut refuse = Refuse::new(RefuseCode::Incompatible, "no");
    refuse.versions = theirs;
    let error = to_client(&mut client(hello()), &Message::Refuse(refuse), 0).unwrap_err();
    assert_eq!(error, HandshakeError::Incompatible { ours: PROTOCOL, theirs });
}

#[test]
fn a_client_of_more_versions_agrees_on_the_common_one() {
    let mut server = server();
    let hello = Hello { versions: Versions { min: 0, max: 9 }, ..hello() };
    to_server(&mut server, &Message::Hello(hello), 0).unwrap();
    assert_eq!(server.welcome(offer()).unwrap().version, 1);
}

#[test]
fn ends_with_different_types_find_out_whichever_end_checks() {
    for (here, there, fits) in
        [(0, 0, true), (0, 7, true), (7, 0, true), (7, 7, true), (7, 8, false)]
    {
        let admission = Admission { schema: there, ..admission() };
        let mut server = ServerHandshake::new(admission);
        let hello = Hello { schema: here, ..hello() };
        let admitted = to_server(&mut server, &Message::Hello(hello), 0);
        assert_eq!(admitted.is_ok(), fits);
        if let Err(rejection) = admitted {
            let error = HandshakeError::Schema { ours: there, theirs: here };
            assert_eq!((rejection.refuse.code, rejection.error), (RefuseCode::Schema, error));
            let reason = rejection.refuse.reason();
            assert!(reason.contains("0000000000000008 here and 0000000000000007 at the peer"));
        } else {
            assert_eq!(server.welcome(offer()).unwrap().schema, there);
        }
        // A server that does not look.
        let mut server = ServerHandshake::new(Admission { schema: 0, ..admission });
        to_server(&mut server, &Message::Hello(hello), 0).unwrap();
        let welcome = Welcome { schema: there, ..server.welcome(offer()).unwrap() };
        let fds = 3 + usize::from(welcome.doorbell == Doorbell::Eventfd);
        let met = to_client(&mut client(hello), &Message::Welcome(welcome), fds);
        let error = HandshakeError::Schema { ours: here, theirs: there };
        assert_eq!(met.err(), (!fits).then_some(error));
    }
    // Counters have nothing to do with the service's types.
    let mut server = ServerHandshake::new(Admission { schema: 8, ..admission() });
    let hello = Hello { schema: 7, service_version: STATS_VERSION, ..hello() };
    to_server(&mut server, &Message::Hello(hello), 0).unwrap();
    assert_eq!(server.welcome(offer()).unwrap().schema, 0);
}

#[test]
fn a_server_without_a_token_admits_any() {
    let admission = Admission { token: None, ..admission() };
    let mut server = ServerHandshake::new(admission);
    let hello = Hello { token: [1; 16], ..hello() };
    assert!(to_server(&mut server, &Message::Hello(hello), 0).is_ok());
}

#[test]
fn a_server_lane_is_cut_to_the_clients_limit() {
    for (max_lane, size, least) in
        [(4096, 4096, 4096), (16384, 16384, 8192), (1 << 30, 16384, 8192)]
    {
        let (mut client, mut server) =
            (client(Hello { limits: limits(max_lane), ..hello() }), server());
        to_server(&mut server, &client.hello(), 0).unwrap();
        let welcome = server.welcome(offer()).unwrap();
        assert_eq!((welcome.lane.size(), welcome.least_lane.size()), (size, least));
        to_client(&mut client, &Message::Welcome(welcome), 4).unwrap();
    }
}

#[test]
fn a_server_that_agrees_to_an_eventfd_that_was_not_offered_is_left() {
    let mut client = client(Hello { rings_eventfd: false, ..hello() });
    let error = to_client(&mut client, &every_message()[1], 4).unwrap_err();
    let kind = ControlKind::Welcome;
    assert_eq!(error, HandshakeError::Terms { kind, field: "doorbell" });
}

#[test]
fn the_handshake_is_over_at_its_deadline() {
    let client = client(hello());
    assert_eq!(client.deadline(), Instant::from_nanos(100));
    assert_eq!(client.on_time(Instant::from_nanos(99)), Ok(()));
    assert_eq!(client.on_time(Instant::from_nanos(100)), Err(HandshakeError::Deadline));
}
