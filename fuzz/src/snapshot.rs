//! Snapshots of cgroups: arbitrary bytes in the memfd.

use bellwire_cgroups::{Cgroup, CgroupEntry, Index, encode, name_hash, same_content};

/// Validates a snapshot. A valid one is indexed correctly, and its writer would have written the same bytes.
pub fn run(input: &[u8]) {
    let index = match Index::validate(input) {
        Ok(index) => index,
        Err(malformed) => {
            assert!(malformed.offset <= input.len(), "{malformed}");
            return;
        }
    };
    let view = index.view();
    let all: Vec<Cgroup<'_>> = view.iter().collect();
    assert_eq!(all.len(), view.len());
    for (at, cgroup) in all.iter().enumerate() {
        assert_eq!(view.find_by_path(cgroup.path), Some(*cgroup));
        assert_eq!(view.find_by_id(cgroup.id), Some(*cgroup));
        assert_eq!(cgroup.name_hash, name_hash(cgroup.name));
        let same = |other: &&Cgroup<'_>| other.name == cgroup.name;
        let first = all.iter().find(same).copied();
        assert_eq!(view.find_by_name(cgroup.name_hash, cgroup.name), first);
        let named = view.all_named(cgroup.name_hash, cgroup.name).count();
        assert_eq!(named, all.iter().filter(same).count());
        assert!(at == 0 || all[at - 1].path < cgroup.path, "paths ascend");
    }
    let entries: Vec<CgroupEntry> = all.iter().map(|cgroup| CgroupEntry::from(*cgroup)).collect();
    let again = encode(&entries, view.meta()).expect("the reader accepts what the writer rejects");
    // The encoding of the time is unique too, so all bytes are the same.
    assert_eq!(again, input, "the same contents have another encoding");
    assert!(same_content(&again, input));
}
