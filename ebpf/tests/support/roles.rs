//! What the processes do.

use std::collections::HashMap;
use std::time::Duration;

use bellwire::{
    CallError, Client, ClientConfig, Doorbell, Geometry, Limits, RunDir, Server, ServerConfig,
    Service, SpinPolicy,
};

use super::lies;

/// Sleeps for so many microseconds, and answers.
struct Nap;

impl Service for Nap {
    const NAME: &'static str = "nap";
    type Request = Vec<u8>;
    type Response = u64;
}

/// A role: what it answers to each line.
pub(crate) type Play = Box<dyn FnMut(&str) -> String>;

/// Begins a role. `server` and `client` are followed by how they want to be rung: `futex`, `eventfd` or `socket`.
/// They sleep whenever they wait, so that somebody wakes them.
pub(crate) fn begin(role: &str) -> Play {
    let (role, doorbell) = role.split_once(' ').unwrap_or((role, "futex"));
    let doorbell = match doorbell {
        "futex" => Doorbell::Futex,
        "eventfd" => Doorbell::Eventfd,
        "socket" => Doorbell::Socket,
        other => panic!("no doorbell: {other}"),
    };
    match role {
        "server" => server(doorbell),
        "client" => client(doorbell),
        "hog" => hog(),
        other => panic!("no role: {other}"),
    }
}

fn server(doorbell: Doorbell) -> Play {
    let config = ServerConfig { doorbell, spin: SpinPolicy::NEVER, ..ServerConfig::default() };
    let mut builder = Server::builder_with(&RunDir::from_environment(), config);
    builder
        .serve::<Nap>(|_, request| {
            let micros = u64::from_le_bytes(request[..8].try_into().unwrap());
            std::thread::sleep(Duration::from_micros(micros));
            Ok(micros)
        })
        .unwrap();
    let server = builder.start().unwrap();
    Box::new(move |_| format!("{}", server.stats().admitted))
}

/// `calls N MICROS`: so many calls, each of which sleeps so long. `rested N MICROS`: the same, each to a server that
/// fell asleep. `full N MICROS`: the same, each into a full lane.
/// `churn N`: so many sessions, one call each. `grow N`: so many calls, each twice as long as the one before. `lie N`: so many pairs of calls, the second of each with false times.
fn client(doorbell: Doorbell) -> Play {
    let lane = Geometry::new(4096).unwrap();
    // It may not grow: a lane that is full stays so.
    let limits = Limits { max_lane: lane, ..Limits::default() };
    let spin = SpinPolicy::NEVER;
    let config = ClientConfig { doorbell, lane, spin, ..ClientConfig::default() };
    let run_dir = RunDir::from_environment();
    let mut growing = Client::<Nap>::with_config(&run_dir, config.clone());
    let config = ClientConfig { limits, ..config };
    let open = move || Client::<Nap>::with_config(&run_dir, config.clone());
    let mut client = open();
    Box::new(move |line| {
        let mut words = line.split(' ');
        let what = words.next().unwrap();
        let mut number = || words.next().map_or(0, |word| word.parse::<u64>().unwrap());
        let count = number();
        let request = nap(number());
        for at in 0..count {
            match what {
                "calls" => drop(client.call(&request).unwrap()),
                "rested" => rested(&mut client, &request),
                "full" => full(&mut client, &request),
                "grow" => grow(&mut growing, at),
                "lie" => lie(&mut client, at),
                "churn" => drop(open().call(&request).unwrap()),
                other => panic!("no such order: {other}"),
            }
        }
        "done".to_owned()
    })
}

fn nap(micros: u64) -> Vec<u8> {
    let mut request = micros.to_le_bytes().to_vec();
    request.resize(1000, 0);
    request
}

/// A call after a rest in which the server falls asleep.
fn rested(client: &mut Client<Nap>, request: &Vec<u8>) {
    std::thread::sleep(Duration::from_millis(3));
    client.call(request).unwrap();
}

/// Fills the lane, makes a call that has to wait for room, and takes all answers.
fn full(client: &mut Client<Nap>, request: &Vec<u8>) {
    let session = client.connect().unwrap();
    let mut sent = 0;
    loop {
        match session.submit(request) {
            Ok(_) => sent += 1,
            Err(CallError::WouldBlock) => break,
            Err(error) => panic!("{error}"),
        }
    }
    session.call(request).unwrap();
    let mut answers = HashMap::new();
    while answers.len() < sent {
        while let Some((ticket, answer)) = session.try_reply().unwrap() {
            answers.insert(ticket, answer.unwrap());
        }
        std::hint::spin_loop();
    }
}

/// A call that is twice as long as the one before.
fn grow(client: &mut Client<Nap>, at: u64) {
    client.call(&vec![0; 1000 << at]).unwrap();
}

/// Makes a call that keeps the server busy, and one that waits in the lane meanwhile, whose times become lies.
fn lie(client: &mut Client<Nap>, at: u64) {
    let session = client.connect().unwrap();
    for micros in [5000, 0] {
        session.submit(&nap(micros)).unwrap();
    }
    lies::tell(usize::try_from(at).unwrap());
    let mut left = 2;
    while left > 0 {
        if let Some((_, answer)) = session.try_reply().unwrap() {
            answer.unwrap();
            left -= 1;
        }
        std::hint::spin_loop();
    }
}

/// Keeps its processor busy.
fn hog() -> Play {
    std::thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    Box::new(|_| "done".to_owned())
}
