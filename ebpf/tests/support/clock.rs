//! A server and a client that measure their calls by their own clock.

use std::time::{Duration, Instant};

use bellwire::{
    Client, ClientConfig, LaneConfig, RunDir, Server, ServerConfig, Service, SpinPolicy,
};

use super::roles::Role;

/// Is busy for as many microseconds as the request begins with, and returns the nanoseconds that took.
struct Clocked;

impl Service for Clocked {
    const NAME: &'static str = "clocked";
    type Request = Vec<u8>;
    type Response = u64;
}

/// `hot` spins, `parked` never does, `workers` has two.
pub(crate) fn server(how: &str) -> Role {
    let mut config = ServerConfig::default();
    match how {
        "hot" => {}
        "workers" => config = config.spin(SpinPolicy::NEVER).workers(2),
        _ => config = config.spin(SpinPolicy::NEVER),
    }
    let mut builder = Server::builder_with_config(&RunDir::from_environment(), config);
    builder
        .serve::<Clocked>(|_, request| {
            let began = Instant::now();
            let span = u64::from_le_bytes(request[..8].try_into().unwrap());
            while began.elapsed() < Duration::from_micros(span) {
                std::hint::spin_loop();
            }
            Ok(nanos(began.elapsed()))
        })
        .unwrap();
    let server = builder.start().unwrap();
    Box::new(move |_| format!("{}", server.stats().admitted))
}

/// `COUNT BYTES MICROS [PAUSE]` makes that many calls, a pause of so many microseconds after each. Answers with the medians of
/// the calls and of the handlers, in nanoseconds.
pub(crate) fn client(how: &str) -> Role {
    let spin = if how == "hot" { SpinPolicy::default() } else { SpinPolicy::NEVER };
    // A lane of its final size: none grows meanwhile.
    let lane = LaneConfig::default().size(bellwire::Geometry::new(8 << 20).unwrap());
    let config = ClientConfig::default().spin(spin).lane(lane);
    let mut client = Client::<Clocked>::with_config(&RunDir::from_environment(), config);
    Box::new(move |line| {
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let mut request = words[2].to_le_bytes().to_vec();
        request.resize(usize::try_from(words[1]).unwrap(), 7);
        let pause = words.get(3).map(|micros| Duration::from_micros(*micros));
        let (mut calls, mut handlers) = (Vec::new(), Vec::new());
        for _ in 0..words[0] {
            let began = Instant::now();
            let handler = client.call(&request).unwrap();
            calls.push(nanos(began.elapsed()));
            handlers.push(handler);
            pause.into_iter().for_each(std::thread::sleep);
        }
        format!("{} {}", median(calls), median(handlers))
    })
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}
