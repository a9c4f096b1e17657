//! What a peer may store in its words and its lane, and send on the socket, that an end must refuse by poisoning the session.

use bellwire_core::drive::{CallDriver, CallFailed, ServeDriver};
use bellwire_core::lane::Epoch;
use bellwire_core::resize::FollowError;
use bellwire_core::serve::Incoming;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{Attachment, Header, Kind, Message, Status};
use bellwire_core::{ErrorKind, Limits, OwnMemory, PeerFault, SpinPolicy, Word};
use bellwire_sim::{Sim, SimEnd, SimMemory};

use crate::control::{bytes_of, size};
use crate::text::{Case, hex, number, unhex};

/// The limits of both ends, whose lanes open with 4096 bytes.
const MAX_LANE: u64 = 8192;
const MAX_MESSAGE: u64 = 1024;

/// A header without a payload, as it lies in a lane.
fn of(kind: Kind, id: u64) -> Vec<u8> {
    record(kind as u8, 0, 0, id, 0)
}

fn record(kind: u8, flags: u8, status: u16, id: u64, len: u32) -> Vec<u8> {
    let mut header = Header::new(Kind::Request, Status::Ok, id, len);
    (header.kind, header.flags, header.status) = (kind, flags, status.into());
    header.to_bytes().to_vec()
}

fn switch(number: u32, bytes: u64) -> Vec<u8> {
    of(Kind::Switch, u64::from(number) | bytes << 32)
}

/// A case whose peer publishes `records` and nothing more.
fn published(name: &str, reader: &str, records: &[Vec<u8>], fault: &str) -> Case {
    let bytes = records.concat();
    let case = Case::new(name).with("reader", reader).with("tail", bytes.len());
    lane(case, 0, &bytes).with("fault", fault)
}

fn lane(case: Case, at: usize, bytes: &[u8]) -> Case {
    bytes
        .chunks(32)
        .zip((at..).step_by(32))
        .fold(case, |case, (bytes, at)| case.with("lane", format_args!("{at:#06x} {}", hex(bytes))))
}

/// A message on the control socket, with memory of so many bytes.
fn control(case: Case, message: &Message, memory: u64) -> Case {
    case.with("control", format_args!("{memory} {}", hex(&bytes_of(message, 1))))
}

pub fn bad() -> Vec<Case> {
    let cases = [words(), to_server(), to_client(), control_socket()].into_iter().flatten();
    let case = |case: Case| {
        let (code, _) = outcome(&case).code();
        case.with("code", code).with("kind", ErrorKind::ProtocolViolation.code())
    };
    cases.map(case).collect()
}

fn words() -> Vec<Case> {
    let server = |name| Case::new(name).with("reader", "server");
    let client = |name| Case::new(name).with("reader", "client").with("sent", 2);
    let two = [of(Kind::Request, 1), of(Kind::Request, 2)].concat();
    vec![
        server("tail-off-the-grid").with("tail", 8).with("fault", "Misaligned"),
        server("tail-too-far").with("tail", 4096 + 4 * MAX_LANE + 16).with("fault", "TailTooFar"),
        server("tail-of-all-bits").with("tail", "0xfffffffffffffff0").with("fault", "TailTooFar"),
        lane(server("tail-goes-back").with("tail", 32), 0, &two)
            .with("poll", 2)
            .with("tail", 16)
            .with("fault", "TailWentBack"),
        client("head-off-the-grid").with("head", 8).with("fault", "Misaligned"),
        client("head-past-what-was-published").with("head", 48).with("fault", "HeadTooFar"),
        client("head-goes-back")
            .with("head", 32)
            .with("poll", 0)
            .with("head", 16)
            .with("fault", "HeadWentBack"),
    ]
}

fn to_server() -> Vec<Case> {
    let request = |id| of(Kind::Request, id);
    let long = |kind, flags, id, len| {
        let mut bytes = record(kind, flags, 0, id, len);
        bytes.resize(16 + usize::try_from(len).unwrap().next_multiple_of(16), 0);
        bytes
    };
    let part = |id, len| long(1, 2, id, len);
    let case = |name, records: &[Vec<u8>], fault| published(name, "server", records, fault);
    let crossing = lane(
        Case::new("record-across-the-lanes-end").with("reader", "server"),
        0,
        &record(1, 0, 0, 1, 4096),
    );
    vec![
        case("kind-0", &[record(0, 0, 0, 0, 0)], "UnknownKind"),
        case("kind-9", &[record(9, 0, 0, 0, 0)], "UnknownKind"),
        case("flag-1", &[record(1, 1, 0, 1, 0)], "UnknownFlags"),
        case("flag-8", &[record(1, 8, 0, 1, 0)], "UnknownFlags"),
        case("more-of-a-cancel", &[request(1), record(6, 2, 0, 1, 0)], "UnknownFlags"),
        case("batch-of-an-attach", &[record(5, 4, 0, 1, 0)], "UnknownFlags"),
        case("part-without-bytes", &[record(1, 2, 0, 1, 0)], "Unexpected"),
        case("record-past-the-tail", &[record(1, 0, 0, 1, 1)], "RecordTooLong"),
        crossing.with("tail", 4112).with("fault", "RecordTooLong"),
        case("payload-of-a-trim", &[long(8, 0, 0, 16)], "Unexpected"),
        case("pad-in-the-middle", &[long(3, 0, 0, 16)], "Unexpected"),
        case("message-above-the-limit", &[long(1, 0, 1, 1040)], "MessageTooLong"),
        case("parts-above-the-limit", &[part(1, 1024), part(1, 16)], "MessageTooLong"),
        case("id-again", &[request(1), request(1)], "ReusedId"),
        case("id-that-goes-back", &[request(5), request(4)], "ReusedId"),
        case("attach-of-a-used-id", &[request(1), of(Kind::Attach, 1)], "ReusedId"),
        case("response-to-a-server", &[of(Kind::Response, 1)], "Unexpected"),
        case("cancel-of-what-was-never-asked", &[of(Kind::Cancel, 1)], "UnknownId"),
        case("close-without-a-reason", &[of(Kind::Close, 0)], "Unexpected"),
        case("close-of-reason-5", &[record(7, 0, 5, 0, 0)], "Unexpected"),
        case("another-request-between-parts", &[part(1, 16), request(2)], "Unexpected"),
        case("trim-between-parts", &[part(1, 16), of(Kind::Trim, 0)], "Unexpected"),
        case("switch-to-epoch-3", &[switch(3, 8192)], "Switch"),
        case("switch-to-5000-bytes", &[switch(2, 5000)], "Switch"),
        case("switch-above-the-limit", &[switch(2, 16_384)], "Switch"),
        case("switch-without-lane", &[switch(2, 8192)], "Memory"),
        case("attach-without-attachment", &[of(Kind::Attach, 1)], "Memory"),
    ]
}

fn to_client() -> Vec<Case> {
    let response = |id| of(Kind::Response, id);
    let case = |name, sent: u64, records: &[Vec<u8>], fault| {
        let mut case = published(name, "client", records, fault);
        case.lines.insert(1, ("sent".into(), sent.to_string()));
        case
    };
    vec![
        case("answer-to-nothing", 0, &[response(1)], "UnknownId"),
        case("answer-to-what-comes-later", 1, &[response(2)], "UnknownId"),
        case("answer-with-id-0", 1, &[response(0)], "UnknownId"),
        case("second-answer", 1, &[response(1), response(1)], "UnknownId"),
        case("status-10", 1, &[record(2, 0, 10, 1, 0)], "Unexpected"),
        case("batch-of-a-response", 1, &[record(2, 4, 0, 1, 0)], "UnknownFlags"),
        case("request-to-a-client", 1, &[of(Kind::Request, 1)], "Unexpected"),
        case("cancel-to-a-client", 1, &[of(Kind::Cancel, 1)], "Unexpected"),
    ]
}

fn control_socket() -> Vec<Case> {
    let epoch = |number, bytes| Message::Lane(Epoch { number, size: size(bytes) });
    let attachment = |id, len| Message::Attachment(Attachment { id, generation: 0, len });
    let before = |record: Vec<u8>| {
        move |name, message: &Message, memory, fault| {
            let case = Case::new(name).with("reader", "server");
            let case = control(case, message, memory).with("tail", 16);
            lane(case, 0, &record).with("fault", fault)
        }
    };
    let (switched, attached) = (before(switch(2, 8192)), before(of(Kind::Attach, 1)));
    let alone = |name, message: &Message, memory, fault| {
        control(Case::new(name).with("reader", "server"), message, memory).with("fault", fault)
    };
    let fifth = (2..=6).fold(Case::new("fifth-lane").with("reader", "server"), |case, number| {
        control(case, &epoch(number, 4096), 4096)
    });
    vec![
        switched("lane-of-another-number", &epoch(3, 8192), 8192, "Memory"),
        switched("lane-of-another-size", &epoch(2, 4096), 4096, "Memory"),
        switched("lane-whose-memory-has-another-size", &epoch(2, 8192), 4096, "Memory"),
        attached("attachment-of-another-id", &attachment(2, 10), 4096, "Memory"),
        attached("attachment-whose-memory-has-another-size", &attachment(1, 1000), 8192, "Memory"),
        alone("lane-above-the-limit", &epoch(2, 16_384), 16_384, "Control"),
        fifth.with("fault", "Control"),
        alone("attachment-above-the-limit", &attachment(1, 1025), 4096, "Control"),
        Case::new("junk-on-the-socket")
            .with("reader", "client")
            .with("control", "0 474554202f20485454502f312e310d0a")
            .with("fault", "Control"),
        Case::new("hello-in-an-open-session")
            .with("reader", "server")
            .with(
                "control",
                format_args!("0 {}", hex(&bytes_of(&Message::Hello(crate::control::hello()), 0))),
            )
            .with("fault", "Control"),
    ]
}

/// The end that reads.
enum Reader {
    Client(Box<CallDriver<SimEnd>>),
    Server(Box<ServeDriver<SimEnd>>),
}

/// The end raises this fault, once everything is there that the case says.
pub fn run(case: &Case) {
    let (code, name) = outcome(case).code();
    assert_eq!(
        (case.number("code"), case.get("fault")),
        (code.into(), Some(name)),
        "{}",
        case.name
    );
}

/// Does what the lines say, and returns the fault that an end raises then.
fn outcome(case: &Case) -> PeerFault {
    let limits = Limits { max_lane: size(MAX_LANE), max_message: MAX_MESSAGE, ..Limits::default() };
    let lane = size(4096);
    let sim =
        Sim { lane, peer_lane: lane, least: lane, limits: Some([limits; 2]), ..Sim::default() };
    let [client, server] = sim.ends();
    let is_client = case.get("reader") == Some("client");
    let (end, writer) = if is_client { (client, server) } else { (server, client) };
    let mut reader = if is_client {
        Reader::Client(Box::new(CallDriver::new(end.clone(), end.lanes(), SpinPolicy::NEVER)))
    } else {
        Reader::Server(Box::new(ServeDriver::new(end.clone(), end.lanes(), u64::MAX, ())))
    };
    for (key, value) in &case.lines {
        let (first, rest) = value.split_once(' ').unwrap_or((value, ""));
        let word = |word| writer.own().store(word, number(value), Ordering::Release);
        match key.as_str() {
            "reader" => {}
            "sent" => (0..number(value)).for_each(|_| reader.send()),
            "tail" => word(Word::Tail),
            "head" => word(Word::Head),
            "lane" => writer.own().write(usize::try_from(number(first)).unwrap(), &unhex(rest)),
            "control" => {
                let memory = Some(number(first)).filter(|bytes| *bytes > 0).map(SimMemory::new);
                writer.post(&unhex(rest), memory.into_iter().collect());
            }
            "poll" => {
                let taken = (0..number(value)).all(|_| reader.poll(&end) == Ok(true));
                assert!(taken && reader.head().is_ok(), "{}", case.name);
            }
            "fault" => break,
            key => panic!("{key:?} in {}", case.name),
        }
    }
    // It may lie behind records that are in order.
    let fault = (0..64).find_map(|_| reader.poll(&end).err());
    fault.unwrap_or_else(|| panic!("{}: no fault", case.name))
}

impl Reader {
    fn send(&mut self) {
        if let Self::Client(client) = self {
            client.submit(&[]).unwrap();
        }
    }

    /// Polls the peer's Head.
    fn head(&mut self) -> Result<(), PeerFault> {
        match self {
            Self::Client(client) => client.end_mut().taken().map(|_| ()),
            Self::Server(server) => server.end_mut().taken().map(|_| ()),
        }
    }

    /// Takes one record; false when there is none, and everything else is in order.
    fn poll(&mut self, end: &SimEnd) -> Result<bool, PeerFault> {
        let mut buffer = Vec::new();
        let found = match self {
            Self::Client(client) => match client.try_reply(&mut buffer) {
                Ok(reply) => reply.map(|reply| reply.attached.then(|| reply.ticket.id())),
                Err(CallFailed::Peer(fault)) => return Err(fault),
                Err(failed) => panic!("{failed}"),
            },
            Self::Server(server) => match server.next(&mut buffer)? {
                Some(Incoming::Switch(switch)) => {
                    server.end_mut().follow(&switch).map_err(of_peer)?;
                    Some(None)
                }
                Some(Incoming::Attached { id }) => Some(Some(id)),
                incoming => incoming.map(|_| None),
            },
        };
        match found {
            Some(Some(id)) => end.take(id).map(|_| true).map_err(of_peer),
            Some(None) => Ok(true),
            None => {
                end.take_control().map_err(of_peer)?;
                self.head().map(|()| false)
            }
        }
    }
}

fn of_peer(error: FollowError) -> PeerFault {
    match error {
        FollowError::Peer(fault) => fault,
        FollowError::Short(shortage) => panic!("{shortage}"),
    }
}
