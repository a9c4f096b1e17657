//! Publishing a snapshot, a refresh that finds nothing new, and look-ups.

use std::hint::black_box;

use bellwire::{Refreshed, RunDir, Server, SnapshotCache};
use bellwire_cgroups::{CgroupEntry, CgroupsSnapshot, Meta, Mode, encode, name_hash, synthetic};

use crate::count;

const CGROUPS: usize = 1_000;
const INDEXES: usize = 8;

pub fn count_all() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let mut builder = Server::builder(&run_dir);
    let publisher = builder.publish::<CgroupsSnapshot>().unwrap();
    let server = builder.start().unwrap();
    let entries = synthetic::entries(CGROUPS, 7);
    let bytes = encode(&entries, Meta::now(Mode::V2)).unwrap();
    count("publish-1000", 3, || {
        publisher.publish(black_box(&bytes)).unwrap();
    });

    let mut cache = SnapshotCache::<CgroupsSnapshot>::new(&run_dir);
    while cache.refresh().unwrap() != Refreshed::Changed {
        std::thread::yield_now();
    }
    count("refresh-unchanged", 1_000, || {
        assert_eq!(black_box(&mut cache).refresh().unwrap(), Refreshed::Unchanged);
    });

    let keys: Vec<(&CgroupEntry, u64)> =
        entries.iter().map(|entry| (entry, name_hash(&entry.name))).collect();
    // The hasher of each index is another one, and the environment decides which: the best of several counts.
    for _ in 0..INDEXES {
        publisher.publish(&bytes).unwrap();
        while cache.refresh().unwrap() != Refreshed::Changed {
            std::thread::yield_now();
        }
        let current = cache.current().unwrap();
        let view = current.index().view();
        look_up("look-up-by-id", &keys, |(key, _)| black_box(view).find_by_id(key.id).is_some());
        look_up("look-up-by-name", &keys, |(key, hash)| {
            black_box(view).find_by_name(*hash, &key.name).is_some()
        });
        look_up("look-up-by-path", &keys, |(key, _)| {
            black_box(view).find_by_path(&key.path).is_some()
        });
    }
    drop(cache);
    server.stop();
}

/// Every cgroup once.
fn look_up(name: &str, keys: &[(&CgroupEntry, u64)], find: impl Fn(&(&CgroupEntry, u64)) -> bool) {
    let mut keys = keys.iter().cycle();
    count(name, CGROUPS as u64, || assert!(find(black_box(keys.next().unwrap()))));
}
