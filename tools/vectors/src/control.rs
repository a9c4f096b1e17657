//! Control messages, and bytes in their place that an end must refuse.

use bellwire_core::handshake::{
    Admission, ClientHandshake, HandshakeError, ServerHandshake, SessionTerms,
};
use bellwire_core::lane::Epoch;
use bellwire_core::wire::{
    Attachment, ControlError, Doorbell, Hello, Join, MAX_CONTROL, Message, PROTOCOL, Ready, Refuse,
    RefuseCode, Welcome,
};
use bellwire_core::{Geometry, Instant, Limits, ServiceName};

use crate::text::{Case, variant};

pub const SERVICE: ServiceName = ServiceName::constant("increment");
pub const SESSION: u64 = 7;
const TOKEN: [u8; 16] = *b"0123456789abcdef";
const SCHEMA: u64 = 0x0123_4567_89ab_cdef;

pub fn size(bytes: u64) -> Geometry {
    Geometry::new(bytes).unwrap()
}

pub fn hello() -> Hello {
    Hello {
        versions: PROTOCOL,
        features: 1,
        service: SERVICE,
        service_version: 1,
        token: TOKEN,
        lane: size(4096),
        least_lane: size(4096),
        limits: Limits { max_lane: size(8192), max_message: 65_536, ..Limits::default() },
        doorbell: Doorbell::Futex,
        rings_eventfd: true,
        schema: SCHEMA,
    }
}

fn admission() -> Admission {
    let limits = Limits { max_lane: size(8192), ..Limits::default() };
    Admission {
        service: SERVICE,
        service_version: 1,
        token: Some(TOKEN),
        limits,
        features: 0,
        schema: SCHEMA,
    }
}

/// Both ends of a handshake, and what the server agrees to.
pub fn handshake() -> (ClientHandshake, ServerHandshake, SessionTerms) {
    let deadline = Instant::from_nanos(u64::MAX);
    let terms = SessionTerms {
        session: SESSION,
        lane: size(4096),
        least_lane: size(4096),
        doorbell: Doorbell::Futex,
        max_batch: 1 << 17,
    };
    (ClientHandshake::new(hello(), deadline), ServerHandshake::new(admission()), terms)
}

fn welcome() -> Welcome {
    let (client, mut server, terms) = handshake();
    server.on_message(&bytes_of(&client.hello(), 0), 0).unwrap();
    server.welcome(terms).unwrap()
}

pub fn bytes_of(message: &Message, fds: u16) -> Vec<u8> {
    let mut bytes = [0; MAX_CONTROL];
    let len = message.encode(fds, &mut bytes);
    bytes[..len].to_vec()
}

pub fn valid() -> Vec<Case> {
    let attachment = |id, generation, len| Message::Attachment(Attachment { id, generation, len });
    let refuse = Refuse::new(RefuseCode::Service, "this endpoint serves another version");
    let messages = [
        ("hello", "server", 0, Message::Hello(hello())),
        ("hello-without-token", "server", 0, Message::Hello(Hello { token: [0; 16], ..hello() })),
        ("welcome", "client", 3, Message::Welcome(welcome())),
        (
            "welcome-with-eventfd",
            "client",
            4,
            Message::Welcome(Welcome { doorbell: Doorbell::Eventfd, ..welcome() }),
        ),
        ("refuse", "client", 0, Message::Refuse(refuse)),
        ("join", "server", 2, Message::Join(Join { session: SESSION })),
        ("join-with-eventfd", "server", 3, Message::Join(Join { session: SESSION })),
        ("ready", "client", 0, Message::Ready(Ready { session: SESSION })),
        ("attachment", "both", 1, attachment(3, 0, 5_000)),
        ("attachment-one-way", "server", 1, attachment(0, 0, 1)),
        ("attachment-snapshot", "client", 1, attachment(4, 12, 70_000)),
        ("ring", "both", 0, Message::Ring),
        ("lane", "both", 1, Message::Lane(Epoch { number: 2, size: size(8192) })),
    ];
    let case = |(name, to, fds, message): (&str, &str, u16, Message)| {
        let case = Case::new(name).with("to", to).with("fds", fds);
        case.bytes("bytes", &bytes_of(&message, fds))
    };
    messages.into_iter().map(case).collect()
}

/// A message comes back as the same bytes.
pub fn run(case: &Case) {
    let (bytes, fds) = (case.all("bytes"), case.number("fds"));
    let message = Message::parse(&bytes, usize::try_from(fds).unwrap()).unwrap();
    assert_eq!(bytes_of(&message, u16::try_from(fds).unwrap()), bytes, "{}", case.name);
}

pub fn bad() -> Vec<Case> {
    let hello = bytes_of(&Message::Hello(hello()), 0);
    let welcome = bytes_of(&Message::Welcome(welcome()), 3);
    let changed = |bytes: &[u8], at: usize, with: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + with.len()].copy_from_slice(with);
        bytes
    };
    let le = |number: u32| number.to_le_bytes();
    let ready = bytes_of(&Message::Ready(Ready { session: SESSION }), 0);
    let of_hello = |name, at, with: &[u8], fault| (name, 0, changed(&hello, at, with), fault);
    let of_welcome = |name, at, with: &[u8], fault| (name, 3, changed(&welcome, at, with), fault);
    let to_server = [
        ("nothing", 0, Vec::new(), "Length"),
        ("half-a-prefix", 0, hello[..4].to_vec(), "Length"),
        ("hello-without-its-last-byte", 0, hello[..147].to_vec(), "Length"),
        ("hello-and-a-byte", 0, [&hello[..], &[0]].concat(), "Length"),
        of_hello("another-protocol", 0, b"HTTP", "Magic"),
        of_hello("hello-of-kind-0", 4, &[0, 0], "Kind"),
        of_hello("hello-of-kind-9", 4, &[9, 0], "Kind"),
        of_hello("hello-that-promises-a-descriptor", 6, &[1, 0], "Field descriptor count"),
        ("hello-with-a-descriptor", 1, changed(&hello, 6, &[1, 0]), "Descriptors"),
        of_hello("hello-versions-2-to-9", 8, &[2, 0, 9, 0], "Incompatible"),
        (
            "hello-version-9-and-short",
            0,
            changed(&hello, 8, &[9, 0, 9, 0])[..12].to_vec(),
            "Incompatible",
        ),
        of_hello("hello-versions-2-to-1", 8, &[2, 0, 1, 0], "Field version range"),
        of_hello("hello-of-another-service-version", 0x0c, &[2, 0, 0, 0], "Terms service"),
        of_hello("hello-name-in-capitals", 0x18, b"I", "Name"),
        of_hello("hello-name-with-a-zero-inside", 0x19, &[0], "Name"),
        of_hello("hello-of-another-service", 0x18, b"o", "Terms service"),
        of_hello("hello-with-another-token", 0x58, &[1], "Terms token"),
        of_hello("hello-lane-5000", 0x68, &le(5000), "Field lane size"),
        of_hello("hello-lane-above-the-servers", 0x68, &le(16_384), "Terms lane size"),
        of_hello("hello-doorbell-4", 0x6c, &[4], "Field doorbell"),
        of_hello("hello-rings-2", 0x70, &[2], "Field eventfd flag"),
        of_hello("hello-least-lane-above-lane", 0x74, &le(8192), "Field least lane size"),
        of_hello("hello-max-lane-12345", 0x78, &le(12_345), "Field lane limit"),
        of_hello("hello-max-shared-8191", 0x84, &le(8191), "Field shared memory limit"),
        (
            "hello-lane-as-large-as-max-shared",
            0,
            changed(&changed(&hello, 0x68, &le(8192)), 0x84, &le(8192)),
            "Field lane size beside the shared memory limit",
        ),
        of_hello("hello-of-another-schema", 0x8c, &[1], "Schema"),
        ("ready-in-place-of-hello", 0, ready.clone(), "Unexpected"),
        ("ring-in-place-of-hello", 0, bytes_of(&Message::Ring, 0), "Unexpected"),
    ];
    let refuse = bytes_of(&Message::Refuse(Refuse::new(RefuseCode::Quota, "no")), 0);
    let to_client = [
        of_welcome("welcome-version-2", 0x08, &[2], "Terms version"),
        of_welcome("welcome-reserved-1", 0x0a, &[1], "Field reserved field"),
        of_welcome("welcome-lane-above-the-clients", 0x0c, &le(16_384), "Terms lane size"),
        of_welcome("welcome-feature-that-was-not-offered", 0x10, &[2], "Terms features"),
        of_welcome("welcome-eventfd-without-one", 0x20, &[2], "Descriptors"),
        of_welcome("welcome-max-shared-4096", 0x38, &le(4096), "Field shared memory limit"),
        of_welcome("welcome-of-another-schema", 0x40, &[1], "Schema"),
        ("refuse-code-0", 0, changed(&refuse, 8, &[0]), "Field code"),
        ("refuse-code-10", 0, changed(&refuse, 8, &[10]), "Field code"),
        ("refuse-reason-of-257-bytes", 0, changed(&refuse, 0x0e, &[1, 1]), "Field reason"),
        ("refuse-reason-that-is-no-text", 0, changed(&refuse, 0x10, &[0xff]), "Field reason"),
        ("refuse-reason-with-an-escape", 0, changed(&refuse, 0x10, &[0x1b]), "Field reason"),
        ("ready-in-place-of-welcome", 0, ready.clone(), "Unexpected"),
    ];
    let case = |to, (name, fds, bytes, fault): (&str, usize, Vec<u8>, &str)| {
        let mut case = Case::new(name).with("to", to).with("fds", fds).with("fault", fault);
        if let Some(code) = outcome(to, fds, &bytes).1 {
            case.push("refuse", code);
        }
        case.bytes("bytes", &bytes)
    };
    let to_server = to_server.into_iter().map(|row| case("server", row));
    to_server.chain(to_client.into_iter().map(|row| case("client", row))).collect()
}

/// The first message is refused with this fault, and by a server with this code.
pub fn run_bad(case: &Case) {
    let fds = usize::try_from(case.number("fds")).unwrap();
    let (fault, refuse) = outcome(case.get("to").unwrap(), fds, &case.all("bytes"));
    assert_eq!(case.get("fault"), Some(fault.as_str()), "{}", case.name);
    assert_eq!(
        case.get("refuse").map(str::to_owned),
        refuse.map(|code| code.to_string()),
        "{}",
        case.name
    );
}

/// The fault that the first message to an end raises, and the code of the REFUSE that it gets.
fn outcome(to: &str, fds: usize, bytes: &[u8]) -> (String, Option<u16>) {
    let (mut client, mut server, _) = handshake();
    if to == "client" {
        return (name(&client.on_message(bytes, fds).unwrap_err()), None);
    }
    let rejection = server.on_message(bytes, fds).unwrap_err();
    (name(&rejection.error), Some(rejection.refuse.code as u16))
}

fn name(error: &HandshakeError) -> String {
    match error {
        HandshakeError::Control(ControlError::Field { field }) => format!("Field {field}"),
        HandshakeError::Control(error) => variant(error),
        HandshakeError::Terms { field, .. } => format!("Terms {field}"),
        other => variant(other),
    }
}
