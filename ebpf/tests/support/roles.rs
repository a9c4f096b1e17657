//! What the processes do.

use std::collections::HashMap;
use std::time::Duration;

use bellwire::{
    CallError, Client, ClientConfig, Doorbell, Geometry, Limits, RunDir, Server, ServerConfig,
    Service,
};

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
    let config = ServerConfig { doorbell, ..ServerConfig::default() };
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

/// `calls N MICROS`: so many calls, each of which sleeps so long. `full N MICROS`: the same, each into a full lane.
/// `churn N`: so many sessions, one call each.
fn client(doorbell: Doorbell) -> Play {
    let lane = Geometry::new(4096).unwrap();
    // It may not grow: a lane that is full stays so.
    let limits = Limits { max_lane: lane, ..Limits::default() };
    let config = ClientConfig { doorbell, lane, limits, ..ClientConfig::default() };
    let run_dir = RunDir::from_environment();
    let open = move || Client::<Nap>::with_config(&run_dir, config.clone());
    let mut client = open();
    Box::new(move |line| {
        let mut words = line.split(' ');
        let what = words.next().unwrap();
        let mut number = || words.next().map_or(0, |word| word.parse::<u64>().unwrap());
        let count = number();
        let request = nap(number());
        for _ in 0..count {
            match what {
                "calls" => drop(client.call(&request).unwrap()),
                "full" => full(&mut client, &request),
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

/// Keeps its processor busy.
fn hog() -> Play {
    std::thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    Box::new(|_| "done".to_owned())
}
