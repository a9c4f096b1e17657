//! The Rust end of the tests between languages (`ci/go`): a server, and a client for each row of the table in `docs/interop.md`.
//!
//! `interop serve DOORBELL`, `interop SCENARIO DOORBELL`; the run dir comes from `BELLWIRE_RUN_DIR`.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Read;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{
    CallError, Client, ClientConfig, Contract, Delivery, Doorbell, Dynamic, ErrorKind, Event,
    HandlerError, RunDir, Server, ServerConfig, Service, SnapshotCache, StartAt, Subscriber,
};

type Outcome = Result<(), Box<dyn Error>>;

#[derive(Service)]
#[service(name = "interop-echo", request = Vec<u8>, response = Vec<u8>)]
struct Echo;

/// Has a fingerprint, and answers as `Echo` does.
#[derive(Service)]
#[service(name = "interop-typed", schema = bellwire::schema("bytes -> bytes"), request = Vec<u8>, response = Vec<u8>)]
struct Typed;

/// A version that no server has.
#[derive(Service)]
#[service(name = "interop-echo", version = 9, request = Vec<u8>, response = Vec<u8>)]
struct OtherVersion;

/// The same service, of a client whose types are others.
#[derive(Service)]
#[service(name = "interop-typed", schema = bellwire::schema("bytes -> text"), request = Vec<u8>, response = Vec<u8>)]
struct Mistyped;

/// The service of the vectors, with the fingerprint of their HELLO.
#[derive(Service)]
#[service(name = "increment", schema = 0x0123_4567_89ab_cdef, request = Vec<u8>, response = Vec<u8>)]
struct Increment;

struct News;

impl Event for News {
    const NAME: &'static str = "interop-news";
    type Message = Vec<u8>;
}

const SNAPSHOTS: &str = "interop-clock";
const LONG: Duration = Duration::from_secs(20);

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, doorbell] = &args[..] else { return Err("SCENARIO DOORBELL".into()) };
    let doorbell = match doorbell.as_str() {
        "futex" => Doorbell::Futex,
        "eventfd" => Doorbell::Eventfd,
        "socket" => Doorbell::Socket,
        _ => return Err("futex, eventfd or socket".into()),
    };
    let run_dir = RunDir::from_environment();
    if scenario == "serve" {
        return serve(&run_dir, doorbell);
    }
    let config = ClientConfig::default().doorbell(doorbell).timeout(LONG);
    run(scenario, &run_dir, config)?;
    println!("ok");
    Ok(())
}

fn serve(run_dir: &RunDir, doorbell: Doorbell) -> Outcome {
    // A request may sleep: the others go on.
    let mut builder =
        Server::builder_with_config(run_dir, ServerConfig::default().doorbell(doorbell).workers(2));
    let posted = Mutex::new(0_u64);
    builder.serve::<Echo>(move |_, request| match request.as_slice() {
        b"fail" => Err(HandlerError::with_code(404, "as asked")),
        b"sleep" => {
            thread::sleep(Duration::from_millis(300));
            Ok(request)
        }
        b"+" => {
            *posted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            Ok(Vec::new())
        }
        b"pid" => Ok(std::process::id().to_le_bytes().to_vec()),
        b"count" => {
            Ok(posted.lock().unwrap_or_else(PoisonError::into_inner).to_le_bytes().to_vec())
        }
        _ => Ok(request),
    })?;
    builder.serve::<Typed>(|_, request| Ok(request))?;
    builder.serve::<Increment>(|_, request| Ok(request))?;
    let clock = builder.publish_dynamic(Contract::new(SNAPSHOTS.parse()?))?;
    let news = builder.events::<News>(64 << 10)?;
    let _server = builder.start()?;
    println!("ready");
    thread::spawn(move || {
        for number in 1_u64.. {
            let len = length_of(number);
            let published = clock.publish(&pattern(number, len));
            if published.is_err() || news.send(&number.to_le_bytes().to_vec()).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(if len > 1 << 20 { 20 } else { 2 }));
        }
    });
    // Until its input ends, or it is killed.
    let _ = std::io::stdin().read(&mut [0])?;
    Ok(())
}

/// Snapshots of 16 bytes to 100 000 cgroups' worth.
fn length_of(number: u64) -> usize {
    match (number % 40, number % 4) {
        (39, _) => 12_000_000,
        (_, 0) => 16,
        (_, 1) => 1000,
        (_, 2) => 100_000,
        _ => 300_000,
    }
}

/// Bytes of which every one depends on `number`, which is in the first eight.
fn pattern(number: u64, len: usize) -> Vec<u8> {
    let [low, ..] = number.to_le_bytes();
    let mut bytes: Vec<u8> = (0..=250).map(|at: u8| at ^ low).collect();
    while bytes.len() < len {
        bytes.extend_from_within(..);
    }
    bytes.truncate(len);
    if let Some(head) = bytes.get_mut(..8) {
        head.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn run(scenario: &str, run_dir: &RunDir, config: ClientConfig) -> Outcome {
    let mut client = Client::<Echo>::with_config(run_dir, config.clone());
    match scenario {
        "calls" => {
            for len in [0, 1, 16, 2000, 8145, 100_000, 1 << 20, 5 << 20] {
                call(&mut client, len)?;
            }
            match client.call(&b"fail".to_vec()) {
                Err(CallError::Handler { code: Some(404), reason }) if &*reason == "as asked" => {
                    Ok(())
                }
                other => Err(format!("fail: {other:?}").into()),
            }
        }
        "largest" => call(&mut client, (64 << 20) - 64),
        "pipeline" => pipeline(&mut client),
        "batches" => {
            let requests: Vec<Vec<u8>> =
                (0..1000).map(|n| pattern(n as u64, 8 + n % 100)).collect();
            let session = client.connect()?;
            let mut answers = Vec::new();
            session.call_batch(&requests)?.append_to(&mut answers)?;
            expect(answers == requests, "the answers of a batch")
        }
        "posts" => posts(&mut client),
        "resize" => {
            for _ in 0..3 {
                call(&mut client, 900_000)?;
                client.connect()?.trim()?;
                call(&mut client, 10)?;
            }
            Ok(())
        }
        "cancel" => {
            let session = client.connect()?;
            let ticket = session.submit(&b"sleep".to_vec())?;
            session.abandon(ticket);
            call(&mut client, 100)
        }
        "deadlines" => {
            match client.call_within(&b"sleep".to_vec(), Duration::from_millis(30)) {
                Err(CallError::Deadline { .. }) => {}
                other => return Err(format!("deadline: {other:?}").into()),
            }
            call(&mut client, 100)
        }
        "fingerprint" => {
            let mut right = Client::<Typed>::with_config(run_dir, config.clone());
            expect(right.call(&vec![7])? == [7], "the answer")?;
            let mut wrong = Client::<Mistyped>::with_config(run_dir, config);
            expect(wrong.call(&vec![7]).is_err(), "other types were accepted")
        }
        "version" => {
            let mut other = Client::<OtherVersion>::with_config(run_dir, config);
            match other.call(&vec![7]) {
                Err(CallError::Refused { .. }) => Ok(()),
                answer => Err(format!("another version: {answer:?}").into()),
            }
        }
        // A provider that opens no session.
        "vectors" => match Client::<Increment>::with_config(run_dir, config).call(&vec![7]) {
            Err(error)
                if [ErrorKind::ProtocolViolation, ErrorKind::Incompatible]
                    .contains(&error.kind()) =>
            {
                Ok(())
            }
            answer => Err(format!("not the provider's fault: {answer:?}").into()),
        },
        "snapshots" => snapshots(run_dir, config),
        "events" => events(run_dir, config),
        "restart" => restart(&mut client),
        "forever" => loop {
            call(&mut client, 100_000)?;
        },
        _ => Err("no such scenario".into()),
    }
}

fn expect(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn call(client: &mut Client<Echo>, len: usize) -> Outcome {
    let request = pattern(len as u64, len);
    expect(client.call(&request)? == request, &format!("the answer to {len} bytes"))
}

fn pipeline(client: &mut Client<Echo>) -> Outcome {
    let session = client.connect()?;
    let (mut tickets, mut answers) = (Vec::new(), 0);
    while answers < 20_000 {
        // As many as there is room for, and then an answer.
        while tickets.len() < 20_000 {
            match session.submit(&(tickets.len() as u64).to_le_bytes().to_vec()) {
                Ok(ticket) => tickets.push(ticket),
                Err(CallError::WouldBlock) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let (ticket, answer) = session.wait_reply(LONG)?;
        let at = tickets.binary_search(&ticket).map_err(|_| "an unknown ticket")?;
        expect(answer? == (at as u64).to_le_bytes(), "an answer of the pipeline")?;
        answers += 1;
    }
    Ok(())
}

fn posts(client: &mut Client<Echo>) -> Outcome {
    let session = client.connect()?;
    let count = |session: &mut bellwire::Session<Echo>| -> Result<u64, Box<dyn Error>> {
        let answer = session.call(&b"count".to_vec())?;
        Ok(u64::from_le_bytes(answer.as_slice().try_into()?))
    };
    let before = count(session)?;
    for _ in 0..10_000 {
        session.post(&b"+".to_vec())?;
    }
    session.flush(LONG)?;
    // Taken is not handled, where there are workers.
    let begun = Instant::now();
    while count(session)? != before + 10_000 {
        expect(begun.elapsed() < LONG, "not every one-way request was handled")?;
    }
    Ok(())
}

fn snapshots(run_dir: &RunDir, config: ClientConfig) -> Outcome {
    let contract = Contract::new(SNAPSHOTS.parse()?);
    let mut cache = SnapshotCache::<Dynamic>::with_contract(run_dir, contract, config);
    let mut lengths = BTreeSet::new();
    let begun = Instant::now();
    while lengths.len() < 5 {
        expect(begun.elapsed() < LONG, "not every length was seen")?;
        cache.wait_for_change(Some(Duration::from_millis(100)))?;
        let Some(current) = cache.current() else { continue };
        let bytes = current.bytes();
        let number = u64::from_le_bytes(bytes.get(..8).ok_or("a short snapshot")?.try_into()?);
        expect(bytes == pattern(number, length_of(number)), "a snapshot's bytes")?;
        expect(number == current.generation(), "a snapshot's generation")?;
        lengths.insert(bytes.len());
    }
    Ok(())
}

fn events(run_dir: &RunDir, config: ClientConfig) -> Outcome {
    let mut subscriber = Subscriber::<News>::with_config(run_dir, StartAt::Oldest, config);
    let (mut last, mut events) = (0, 0);
    while events < 200 {
        match subscriber.next(Some(LONG))?.ok_or("no event")? {
            Delivery::Event { sequence, event } => {
                expect(event == sequence.to_le_bytes(), "an event's bytes")?;
                expect(last == 0 || sequence == last + 1, "the order of events")?;
                (last, events) = (sequence, events + 1);
            }
            Delivery::Missed { events } => last += events,
            Delivery::Restarted => return Err("restarted".into()),
        }
    }
    Ok(())
}

/// Calls until another provider has answered 500 calls. None has to fail meanwhile: a call that was not taken is repeated.
fn restart(client: &mut Client<Echo>) -> Outcome {
    let request = b"pid".to_vec();
    let first = client.call(&request)?;
    println!("called");
    let begun = Instant::now();
    let mut answers = 0;
    while answers < 500 {
        expect(begun.elapsed() < 2 * LONG, "no other provider came")?;
        match client.call(&request) {
            Ok(pid) if pid != first => answers += 1,
            Ok(_) => {}
            Err(_) => answers = 0,
        }
    }
    Ok(())
}
