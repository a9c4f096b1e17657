//! netipc: a client's HELLO and datagrams as a server takes them, and payloads as either end does.

#[path = "../../tests/support/netipc_wire.rs"]
pub(crate) mod wire;

use bellwire::Service;
use bellwire::netipc::{CallMethod, INCREMENT, lookup, snapshot};
use bellwire_apps::AppsLookup;
use bellwire_cgroups::CgroupsLookup;
use bellwire_core::batch::{BatchBuilder, BatchView};
use bellwire_core::wire::Status as Outcome;
use bellwire_netipc::Status;
use bellwire_netipc::handshake::{Agreed, Terms, answer_hello, is_netipc, refuse_hello};
use bellwire_netipc::method::Method;
use bellwire_netipc::server::{Request, SessionMachine, Wanted};

use crate::script::Script;

/// What the server grants at most.
const MOST: u32 = 4096;
/// The most requests of a service in one message.
const ITEMS: usize = 64;
/// The run of the provider.
const GENERATION: u64 = 3;

/// Runs a session, or reads a payload. A session agrees with a second implementation of the rules on each datagram, holds no
/// more than came, and answers with datagrams that the client puts together again. What is written is what a reader accepts.
pub fn run(input: &[u8]) {
    let script = Script::new(input);
    match script.byte() % 4 {
        0 | 1 => session(&script),
        2 => read_snapshot(script.rest()),
        _ => read_answers(&script),
    }
}

fn session(script: &Script<'_>) {
    let hello = script.sized();
    let terms = Terms { token: None, max_request: MOST, max_response: (64, MOST), session: 5 };
    let agreed = match answer_hello(hello, &terms) {
        Ok((agreed, ack)) => {
            assert!(is_acceptable(hello) && is_netipc(hello) && ack[14..16] == [0, 0]);
            agreed
        }
        Err((status, ack)) => {
            assert!(!is_acceptable(hello) && status != Status::Ok, "{status}");
            return assert_eq!(ack, refuse_hello(hello, status));
        }
    };
    assert!((33..=65_536).contains(&agreed.packet) && agreed.max_request <= MOST);
    assert!((64..=MOST).contains(&agreed.max_response));
    let (mut session, mut model) = (SessionMachine::new(agreed), Model { agreed, pending: None });
    while !script.is_over() && !session.is_over() {
        let datagram = datagram(script, &model);
        match (session.receive(&datagram), model.take(&datagram)) {
            (Err(_), None) => return,
            (Ok(None), Some(None)) => {
                let pending = model.pending.as_ref().expect("it is not whole");
                assert_eq!(session.held(), pending.payload.len());
            }
            (Ok(Some(request)), Some(Some(whole))) => {
                answer(script, &mut session, request, &whole);
            }
            (found, expected) => panic!("{found:?}, where {} is right", expected.is_some()),
        }
    }
}

/// The next datagram: any bytes, a request, or the next chunk of one, with a byte changed or not.
fn datagram(script: &Script<'_>, model: &Model) -> Vec<u8> {
    let op = script.byte();
    let room = model.agreed.packet as usize - 32;
    let mut datagram = match (op % 4, &model.pending) {
        (0, _) => script.sized().to_vec(),
        (_, Some(Pending { whole: Whole { id, total, .. }, payload, next, .. })) => {
            let count = (*total).div_ceil(room).max(1) as u32;
            let len = room.min(total - payload.len());
            let mut bytes = script.sized().to_vec();
            bytes.resize(len, 0);
            [wire::chunk(*id, total + 32, *next, count, len), bytes].concat()
        }
        (_, None) => {
            let [code, items, id, flag] = script.array();
            let payload = script.sized();
            let total = payload.len() + if op & 4 == 0 { 0 } else { usize::from(script.u16()) };
            let items = u32::from(items.max(1));
            let head =
                wire::header(1, (flag % 2).into(), u16::from(code % 8), total, items, id.into());
            let mut bytes = payload.to_vec();
            bytes.resize(total.min(room), 0);
            [head, bytes].concat()
        }
    };
    if op % 4 == 3 {
        let at = usize::from(script.u16()) % datagram.len().max(1);
        datagram.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= script.byte());
    }
    datagram
}

/// Answers as a service does, and puts the answer together again.
fn answer(script: &Script<'_>, session: &mut SessionMachine, request: Request, whole: &Whole) {
    assert_eq!((request.code, request.is_batch()), (whole.code, whole.items > 1));
    assert_eq!((request.len(), request.is_empty()), (whole.total, whole.total == 0));
    let room = session.agreed().max_response as usize;
    let method = match request.code {
        1 => Some(INCREMENT),
        4 => CgroupsLookup::netipc(),
        5 => AppsLookup::netipc(),
        _ => None,
    };
    let answered: Result<Vec<Vec<u8>>, Status> =
        method.ok_or(Status::Unsupported).and_then(|method| {
            let payloads = request.payloads().map_err(|_| Status::BadEnvelope)?;
            assert_eq!(payloads.len(), whole.items as usize);
            assert!(payloads.iter().map(|payload| payload.len()).sum::<usize>() <= whole.total);
            let payloads: Vec<Vec<u8>> = payloads.into_iter().map(<[u8]>::to_vec).collect();
            let answered = call(script, session, method, request)?;
            assert!(answered.len() == payloads.len() && (whole.items == 1 || method.takes_batches));
            for (payload, answer) in payloads.iter().zip(&answered) {
                read_answer(method, payload, answer, room);
            }
            Ok(answered)
        });
    let (status, answered) = match answered {
        Ok(payloads) => {
            session.answer(session.joined(&payloads));
            (Status::Ok, payloads)
        }
        Err(status) => {
            session.refuse(status);
            (status, Vec::new())
        }
    };
    let payload = match &answered[..] {
        [payload] if whole.items == 1 => payload.clone(),
        payloads => wire::table(payloads),
    };
    // What does not fit is refused instead.
    let (status, payload) = match payload.len() <= room {
        true => (status, payload),
        false => (Status::LimitExceeded, Vec::new()),
    };
    let items = if status == Status::Ok { whole.items } else { 1 };
    let mut head =
        wire::header(2, u16::from(items > 1), whole.code, payload.len(), items, whole.id);
    head[14..16].copy_from_slice(&(status as u16).to_ne_bytes());
    let space = session.agreed().packet as usize - 32;
    let mut pieces = payload.chunks(space);
    let mut expected = vec![[&head[..], pieces.next().unwrap_or_default()].concat()];
    let count = payload.len().div_ceil(space) as u32;
    expected.extend(pieces.zip(1..).map(|(piece, index)| {
        let head = wire::chunk(whole.id, payload.len() + 32, index, count, piece.len());
        [&head[..], piece].concat()
    }));
    let (mut sent, mut datagram) = (Vec::new(), Vec::new());
    while session.datagram(&mut datagram) {
        sent.push(datagram.clone());
        session.sent();
    }
    assert!(sent == expected, "another answer");
    let goes_on = matches!(status, Status::Ok | Status::Unsupported);
    assert_eq!((session.is_over(), session.held()), (!goes_on, 0));
}

/// Has a service answer a request with what the input says.
fn call(
    script: &Script<'_>,
    session: &mut SessionMachine,
    method: CallMethod,
    request: Request,
) -> Result<Vec<Vec<u8>>, Status> {
    let len = request.len();
    let wanted = session.begin(request, &Method::Calls(method), ITEMS)?;
    let Wanted::Calls(batch) = wanted else { panic!("a snapshot of {}", method.code) };
    assert!(session.is_handling() && session.held() == len);
    let asked = BatchView::parse(&batch).expect("it was built here");
    assert!(asked.len() <= ITEMS.min(len), "more requests than bytes");
    let (mut answers, mut numbers) = (BatchBuilder::new(usize::MAX), Vec::new());
    for _ in asked {
        let (status, bytes) = match script.byte() % 8 {
            0 => (Outcome::Malformed, &[][..]),
            1 => (Outcome::TooLarge, &[][..]),
            2 => (Outcome::Failed, &[][..]),
            _ => (Outcome::Ok, script.sized()),
        };
        answers.push_with(status, |into| into.extend_from_slice(bytes)).expect("there is room");
        let number = <[u8; 8]>::try_from(bytes).ok().filter(|_| status == Outcome::Ok);
        numbers.extend(number.map(|number| u64::from_le_bytes(number).to_ne_bytes().to_vec()));
    }
    let translated = session.translate(Outcome::Ok, answers.finish(), GENERATION);
    if method.code == INCREMENT.code && numbers.len() == asked.len() {
        assert_eq!(translated.as_ref(), Ok(&numbers), "each number answers one payload");
    }
    translated
}

/// Reads the answer to one payload as a client does.
fn read_answer(method: CallMethod, payload: &[u8], answer: &[u8], room: usize) {
    if method.code != INCREMENT.code {
        assert!(answer.len() <= room, "an answer of {} in {room}", answer.len());
    }
    match method.code {
        4 => {
            let paths = lookup::paths(payload).expect("it was read before");
            let paths = paths.into_iter().map(std::str::from_utf8);
            if let Ok(paths) = paths.collect::<Result<Vec<_>, _>>() {
                let read = lookup::read_cgroups(answer, &paths).expect("what a provider wrote");
                assert_eq!((read.generation, read.items.len()), (GENERATION, paths.len()));
            }
        }
        5 => {
            let pids = lookup::pids(payload).expect("it was read before");
            let read = lookup::read_apps(answer, &pids).expect("what a provider wrote");
            assert_eq!((read.generation, read.items.len()), (GENERATION, pids.len()));
        }
        _ => {}
    }
}

/// A snapshot that a provider sent: a valid one is written again to one with the same items.
fn read_snapshot(payload: &[u8]) {
    let Ok(view) = snapshot::View::parse(payload) else { return };
    let written = snapshot::write(view.items.iter().copied(), view.systemd, view.generation);
    let again = snapshot::View::parse(&written).expect("it was written here");
    assert!(again == view && view.items.len() <= payload.len());
}

/// Keys, and what a provider answered to them: what is known is written again to an answer that says the same.
fn read_answers(script: &Script<'_>) {
    let count = usize::from(script.byte() % 8);
    let keys: Vec<&[u8]> = (0..count).map(|_| script.sized()).collect();
    let payload = script.rest();
    let paths: Result<Vec<&str>, _> = keys.iter().map(|key| std::str::from_utf8(key)).collect();
    if let Ok(read) =
        paths.as_ref().map_or(Err(()), |paths| lookup::read_cgroups(payload, paths).map_err(drop))
    {
        let known = keys.iter().copied().zip(&read.items);
        let known: Option<Vec<_>> = known.map(|(key, item)| Some((key, item.clone()?))).collect();
        let (Some(known), Ok(paths)) = (known, paths) else { return };
        let mut written = Vec::new();
        let fits = lookup::write_cgroups(&known, read.generation, usize::MAX, &mut written);
        assert_eq!(fits, Ok(()));
        assert_eq!(lookup::read_cgroups(&written, &paths), Ok(read));
    }
    let number = |key: &&[u8]| u32::from_le_bytes(Script::new(key).array());
    let pids: Vec<u32> = keys.iter().map(number).collect();
    if let Ok(read) = lookup::read_apps(payload, &pids) {
        let known = pids.iter().copied().zip(&read.items);
        let Some(known) = known.map(|(pid, item)| Some((pid, item.clone()?))).collect() else {
            return;
        };
        let known: Vec<_> = known;
        let mut written = Vec::new();
        let fits = lookup::write_apps(&known, read.generation, usize::MAX, &mut written);
        assert_eq!(fits, Ok(()));
        assert_eq!(lookup::read_apps(&written, &pids), Ok(read));
    }
}

/// A second implementation of the rules about what a client may send.
struct Model {
    agreed: Agreed,
    pending: Option<Pending>,
}

/// A request of which something is missing.
struct Pending {
    whole: Whole,
    payload: Vec<u8>,
    next: u32,
    count: Option<u32>,
}

#[derive(Clone, Copy)]
struct Whole {
    code: u16,
    /// More than one in a batch.
    items: u32,
    id: u64,
    total: usize,
}

impl Model {
    /// Returns the request that a datagram completes, if it does; `None` if the datagram breaks a rule.
    fn take(&mut self, datagram: &[u8]) -> Option<Option<Whole>> {
        let (head, bytes) = datagram.split_at_checked(32)?;
        let (half, word) = (|at| u16_at(head, at), |at| u32_at(head, at));
        let mut pending = match self.pending.take() {
            None => {
                let halves = [4, 6, 8, 14].map(half);
                let (flags, total, items) = (half(10), word(16), word(20));
                let most = if flags == 1 && items > 1 { self.agreed.max_items } else { 1 };
                let is_sound = &head[..4] == b"CPIN" && halves == [1, 32, 1, 0] && flags <= 1;
                if !is_sound || total > self.agreed.max_request || !(1..=most).contains(&items) {
                    return None;
                }
                let total = total as usize;
                if bytes.len() != total.min(self.agreed.packet as usize - 32) {
                    return None;
                }
                let whole = Whole { code: half(12), items, id: u64_at(head, 24), total };
                Pending { whole, payload: Vec::new(), next: 0, count: None }
            }
            Some(pending) => {
                let Whole { id, total, .. } = pending.whole;
                let missing = total - pending.payload.len();
                let is_sound = word(0) == 0x4e43_484b && (half(4), half(6)) == (1, 0);
                let (of, count) = ((u64_at(head, 8), word(16) as usize, word(20)), word(24));
                let is_next = of == (id, total + 32, pending.next)
                    && pending.count.is_none_or(|told| told == count)
                    && word(28) as usize == bytes.len();
                let is_last = u64::from(pending.next) + 1 == u64::from(count);
                let fits = (1..=missing).contains(&bytes.len()) && pending.next < count;
                if !is_sound || !is_next || !fits || is_last != (bytes.len() == missing) {
                    return None;
                }
                Pending { count: Some(count), ..pending }
            }
        };
        pending.payload.extend_from_slice(bytes);
        pending.next += 1;
        if pending.payload.len() < pending.whole.total {
            self.pending = Some(pending);
            return Some(None);
        }
        Some(Some(pending.whole))
    }
}

/// A second implementation of the rules about a HELLO.
fn is_acceptable(hello: &[u8]) -> bool {
    let Some((head, payload)) = hello.split_at_checked(32) else { return false };
    let halves = [4, 6, 8, 10, 12].map(|at| u16_at(head, at));
    let is_sound = &head[..4] == b"CPIN" && halves == [1, 32, 3, 0, 1];
    is_sound
        && (u32_at(head, 16), payload.len()) == (44, 44)
        && u32_at(head, 20) <= 1
        && (u16_at(payload, 0), u16_at(payload, 2), u32_at(payload, 28)) == (1, 0, 0)
        && u32_at(payload, 4) & 1 == 1
        && u32_at(payload, 12) <= MOST
        && u32_at(payload, 40) > 32
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(*bytes[at..].first_chunk().expect("inside"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(*bytes[at..].first_chunk().expect("inside"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(*bytes[at..].first_chunk().expect("inside"))
}
