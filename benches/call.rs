//! One call in flight, its answer checked.

use std::hint::black_box;

use criterion::{Criterion, Throughput};

use crate::provider::{Echo, Provider, Wait, timed};
use bellwire_floor::Cpus;

pub fn benches(criterion: &mut Criterion, cpus: Cpus) {
    for (name, wait) in [("call-hot", Wait::Spin), ("call-parked", Wait::Park)] {
        let provider = Provider::start(cpus, wait);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        let mut client = provider.client::<Echo<64>>();
        group.bench_function("64", |bench| {
            let request = [0x5a; 64];
            bench.iter_custom(|n| {
                timed(n, || assert_eq!(client.call(black_box(&request)).unwrap(), request))
            });
        });
        let mut client = provider.client::<Echo<1024>>();
        group.bench_function("1024", |bench| {
            let request = [0x5a; 1024];
            bench.iter_custom(|n| {
                timed(n, || assert_eq!(client.call(black_box(&request)).unwrap(), request))
            });
        });
    }
}
