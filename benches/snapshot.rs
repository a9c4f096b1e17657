//! Refreshes, unchanged and changed, and look-ups.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bellwire::{Refreshed, SnapshotCache};
use bellwire_cgroups::CgroupsSnapshot;
use bellwire_cgroups::{Cgroup, CgroupEntry};
use criterion::{BenchmarkId, Criterion};

use crate::provider::{PATIENCE, Provider, Wait, timed};
use bellwire_floor::Cpus;

pub const COUNTS: [usize; 3] = [16, 1_000, 10_000];

pub fn benches(criterion: &mut Criterion, cpus: Cpus) {
    let provider = Provider::start(cpus, Wait::Spin);
    for count in COUNTS {
        let mut cache = provider.cache(count);
        let mut group = criterion.benchmark_group("refresh-unchanged");
        group.bench_function(BenchmarkId::from_parameter(count), |bench| {
            bench.iter_custom(|n| unchanged(&mut cache, n));
        });
        group.finish();
        let mut group = criterion.benchmark_group("refresh-changed");
        group.bench_function(BenchmarkId::from_parameter(count), |bench| {
            bench.iter_custom(|n| changed(&provider, &mut cache, count, n));
        });
        group.finish();
        let keys = keys(&cache);
        let mut group = criterion.benchmark_group("look-up");
        for (name, look) in LOOKS {
            group.bench_function(BenchmarkId::new(name, count), |bench| {
                bench.iter_custom(|n| look_ups(&cache, &keys, n, look));
            });
        }
    }
}

pub fn unchanged(cache: &mut SnapshotCache<CgroupsSnapshot>, n: u64) -> Duration {
    timed(n, || assert_eq!(black_box(&mut *cache).refresh().unwrap(), Refreshed::Unchanged))
}

/// The provider's work is outside the clock; fetching, mapping, validating and indexing are inside.
fn changed(
    provider: &Provider,
    cache: &mut SnapshotCache<CgroupsSnapshot>,
    count: usize,
    n: u64,
) -> Duration {
    let mut took = Duration::ZERO;
    for _ in 0..n {
        provider.publish(count);
        let began = Instant::now();
        assert_eq!(cache.refresh_within(PATIENCE).unwrap(), Refreshed::Changed);
        took += began.elapsed();
    }
    took
}

pub type Look = fn(&SnapshotCache<CgroupsSnapshot>, &CgroupEntry, u64) -> bool;

pub const LOOKS: [(&str, Look); 3] = [
    ("name", |cache, key, hash| found(cache, |view| view.find_by_name(hash, &key.name), key)),
    ("path", |cache, key, _| found(cache, |view| view.find_by_path(&key.path), key)),
    ("id", |cache, key, _| found(cache, |view| view.find_by_id(key.id), key)),
];

fn found<'a>(
    cache: &'a SnapshotCache<CgroupsSnapshot>,
    find: impl FnOnce(bellwire_cgroups::View<'a>) -> Option<Cgroup<'a>>,
    key: &CgroupEntry,
) -> bool {
    let current = cache.current().unwrap();
    find(current.index().view()).is_some_and(|found| found.id == key.id || found.name == key.name)
}

/// Every cgroup of the snapshot, in an order that no prefetcher guesses, with its name's hash.
pub fn keys(cache: &SnapshotCache<CgroupsSnapshot>) -> Vec<(CgroupEntry, u64)> {
    let current = cache.current().unwrap();
    let mut keys: Vec<_> = current
        .index()
        .view()
        .iter()
        .map(|cgroup| (CgroupEntry::from(cgroup), cgroup.name_hash))
        .collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..keys.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        keys.swap(at, (random % (at as u64 + 1)) as usize);
    }
    keys
}

pub fn look_ups(
    cache: &SnapshotCache<CgroupsSnapshot>,
    keys: &[(CgroupEntry, u64)],
    n: u64,
    look: Look,
) -> Duration {
    let mut keys = keys.iter().cycle();
    timed(n, || {
        let (key, hash) = keys.next().unwrap();
        assert!(look(black_box(cache), key, *hash));
    })
}
