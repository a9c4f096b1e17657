//! The roles of the child processes.

use std::collections::HashMap;
use std::time::Duration;

use bellwire::{
    CallError, Client, ClientConfig, Doorbell, Geometry, LaneConfig, Limits, RunDir, Server,
    ServerConfig, Service, SpinPolicy,
};

use super::{clock, deliveries, false_times};

/// Sleeps for the requested number of microseconds, and responds.
struct Nap;

impl Service for Nap {
    const NAME: &'static str = "nap";
    type Request = Vec<u8>;
    type Response = u64;
}

/// A role: maps each line from the test to an answer.
pub(crate) type Role = Box<dyn FnMut(&str) -> String>;

/// Begins a role. `server` and `client` are followed by their doorbell: `futex`, `eventfd` or `socket`. They never spin,
/// so that every wait is a sleep.
pub(crate) fn begin(role: &str) -> Role {
    let (role, how) = role.split_once(' ').unwrap_or((role, "futex"));
    let doorbell = match how {
        "eventfd" => Doorbell::Eventfd,
        "socket" => Doorbell::Socket,
        _ => Doorbell::Futex,
    };
    match role {
        "server" if how == "workers" => server(doorbell, 2),
        "server" => server(doorbell, 0),
        "publisher" => deliveries::publisher(),
        "subscriber" => deliveries::subscriber(),
        "cache" => deliveries::cache(),
        "client" => client(doorbell),
        "hog" => hog(),
        "clocked-server" => clock::server(how),
        "clocked-client" => clock::client(how),
        other => panic!("unknown role: {other}"),
    }
}

fn server(doorbell: Doorbell, workers: usize) -> Role {
    let config = ServerConfig::default().doorbell(doorbell).spin(SpinPolicy::NEVER);
    let config = config.workers(workers);
    let mut builder = Server::builder_with_config(&RunDir::from_environment(), config);
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

/// Commands: `calls N MICROS` makes N calls whose handler sleeps for MICROS, `posts N MICROS` the same
/// without answers, and three calls; `call-after-idle N MICROS` does the same, each time
/// after the server fell asleep; `full N MICROS` does the same, each time with a full lane; `churn N` opens N sessions,
/// each for one call; `grow N` makes N calls, each twice as long as the previous one; `false-times N` makes N pairs of
/// calls, the second of each with false times; `hogs N` starts N threads that keep processors busy.
fn client(doorbell: Doorbell) -> Role {
    let lane = Geometry::new(4096).unwrap();
    // The lane must not grow, so that a full lane stays full.
    let limits = Limits { max_lane: lane, ..Limits::default() };
    let spin = SpinPolicy::NEVER;
    let config = ClientConfig::default()
        .doorbell(doorbell)
        .spin(spin)
        .lane(LaneConfig::default().size(lane));
    let run_dir = RunDir::from_environment();
    let mut growing = Client::<Nap>::with_config(&run_dir, config.clone());
    let lane = config.lane.clone().limits(limits);
    let config = config.lane(lane);
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
                "posts" => client.connect().unwrap().post(&request).unwrap(),
                "call-after-idle" => call_after_idle(&mut client, &request),
                "full" => full(&mut client, &request),
                "grow" => grow(&mut growing, at),
                "false-times" => call_with_false_times(&mut client, at),
                "churn" => drop(open().call(&request).unwrap()),
                "hogs" => spin_for_ever(),
                other => panic!("unknown command: {other}"),
            }
        }
        if what == "posts" {
            // With workers, the last posts may still run when a call is answered.
            for _ in 0..3 {
                client.call(&nap(2000)).unwrap();
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

/// Makes a call after a pause in which the server falls asleep.
fn call_after_idle(client: &mut Client<Nap>, request: &Vec<u8>) {
    std::thread::sleep(Duration::from_millis(3));
    client.call(request).unwrap();
}

/// Fills the lane, makes a call that has to wait for room, and receives all answers.
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

/// Makes a call that is twice as long as the previous one.
fn grow(client: &mut Client<Nap>, at: u64) {
    client.call(&vec![0; 1000 << at]).unwrap();
}

/// Makes a call that keeps the server busy, and one that waits in the lane meanwhile and whose times are then falsified.
fn call_with_false_times(client: &mut Client<Nap>, at: u64) {
    let session = client.connect().unwrap();
    for micros in [5000, 0] {
        session.submit(&nap(micros)).unwrap();
    }
    false_times::write(usize::try_from(at).unwrap());
    let mut left = 2;
    while left > 0 {
        if let Some((_, answer)) = session.try_reply().unwrap() {
            answer.unwrap();
            left -= 1;
        }
        std::hint::spin_loop();
    }
}

/// Keeps a CPU busy.
fn hog() -> Role {
    spin_for_ever();
    Box::new(|_| "done".to_owned())
}

fn spin_for_ever() {
    let spin = || {
        loop {
            std::hint::spin_loop();
        }
    };
    std::thread::Builder::new().name("hog".to_owned()).spawn(spin).unwrap();
}
