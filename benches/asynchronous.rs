//! The same calls from the tasks of a tokio runtime of one thread, next to a blocking one.

use criterion::{Criterion, Throughput};

use bellwire::{AsyncClient, AsyncSession};
use tokio::runtime::{Builder, Runtime};

use crate::provider::{Echo, Provider, Wait, timed};
use bellwire_floor::Cpus;

const REQUEST: [u8; 64] = [0x5a; 64];

pub fn benches(criterion: &mut Criterion, cpus: Cpus) {
    let provider = Provider::start(cpus, Wait::Spin);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let client = AsyncClient::<Echo<64>>::with_config(&provider.run_dir(), provider.config());
    let session = runtime.block_on(client.connect()).unwrap();
    let mut group = criterion.benchmark_group("call-async");
    group.throughput(Throughput::Elements(1));
    let mut blocking = provider.client::<Echo<64>>();
    group.bench_function("blocking", |bench| {
        bench.iter_custom(|n| timed(n, || assert_eq!(blocking.call(&REQUEST).unwrap(), REQUEST)));
    });
    group.bench_function("1", |bench| {
        bench.iter(|| runtime.block_on(async { session.call(&REQUEST).await.unwrap() }));
    });
    for tasks in [16, 256] {
        group.throughput(Throughput::Elements(tasks));
        group.bench_function(tasks.to_string(), |bench| {
            bench.iter(|| together(&runtime, &session, tasks));
        });
    }
}

/// One call by each of so many tasks.
fn together(runtime: &Runtime, session: &AsyncSession<Echo<64>>, tasks: u64) {
    runtime.block_on(async {
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let session = session.clone();
                tokio::spawn(async move { session.call(&REQUEST).await.unwrap() })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), REQUEST);
        }
    });
}
