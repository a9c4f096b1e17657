//! One way: requests as fast as the lane takes them, with empty answers taken in passing, or with none.

use std::time::{Duration, Instant};

use bellwire::{CallError, Client, Service};
use criterion::{Criterion, Throughput};

use crate::provider::{Provider, Sink, Wait};
use bellwire_floor::Cpus;

pub fn benches(criterion: &mut Criterion, cpus: Cpus) {
    let provider = Provider::start(cpus, Wait::Spin);
    let mut group = criterion.benchmark_group("stream");
    let mut client = provider.client::<Sink<64>>();
    group.throughput(Throughput::Bytes(64));
    group.bench_function("64", |bench| bench.iter_custom(|n| stream(&mut client, &[1; 64], n)));
    let mut client = provider.client::<Sink<1024>>();
    group.throughput(Throughput::Bytes(1024));
    group.bench_function("1024", |bench| bench.iter_custom(|n| stream(&mut client, &[1; 1024], n)));
}

/// Sends `n` requests; the clock stops when the last of them was answered: the receiver has it.
pub fn stream<S: Service<Response = ()>>(
    client: &mut Client<S>,
    request: &S::Request,
    n: u64,
) -> Duration {
    let session = client.session().expect("the session is gone");
    let began = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < n {
        while sent < n {
            match session.submit(request) {
                Ok(_) => sent += 1,
                Err(CallError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some((_, answer)) = session.try_reply().expect("the provider is gone") {
            answer.expect("no answer");
            answered += 1;
        }
    }
    began.elapsed()
}

/// Sends `n` one-way requests; the clock stops when the receiver has taken the last of them.
pub fn posts<S: Service>(client: &mut Client<S>, request: &S::Request, n: u64) -> Duration {
    let session = client.session().expect("the session is gone");
    let began = Instant::now();
    for _ in 0..n {
        session.post(request).expect("no room");
    }
    session.flush(Duration::from_secs(5)).expect("the provider is gone");
    began.elapsed()
}
