//! Snapshots of cgroups: arbitrary bytes in the memfd, and as what changed since another snapshot.

use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

use bellwire_cgroups::{
    Cgroup, CgroupEntry, Hierarchy, Index, Meta, Mode, SnapshotWriter, name_hash, same_content,
    synthetic,
};

/// The snapshot before, of 20 cgroups.
static BEFORE: LazyLock<Index> = LazyLock::new(|| Index::validate(&before()).expect("valid"));

/// Returns the bytes of the snapshot before.
pub fn before() -> Vec<u8> {
    let meta = Meta { scanned_at: UNIX_EPOCH, mode: Mode::V2, skipped: 0 };
    bytes_of(&mut synthetic::entries(20, 7), meta)
}

/// Gives cgroups with even ids labels, and encodes them below one hierarchy.
pub fn bytes_of(entries: &mut [CgroupEntry], meta: Meta) -> Vec<u8> {
    for entry in entries.iter_mut().filter(|entry| entry.id % 2 == 0) {
        entry.labels = vec![("image".into(), "example/web:1".into()), ("empty".into(), "".into())];
    }
    let mounted = [Hierarchy { name: "unified".into(), root: "/sys/fs/cgroup".into() }];
    write(entries, &mounted, meta)
}

fn write(entries: &[CgroupEntry], mounted: &[Hierarchy], meta: Meta) -> Vec<u8> {
    let writer = SnapshotWriter::with_hierarchies(entries, mounted)
        .expect("the reader accepts what the writer rejects");
    let mut bytes = vec![0; writer.encoded_len()];
    writer.write_to(meta, &mut bytes).expect("it has this length");
    bytes
}

/// Validates a snapshot. A valid one is indexed correctly, its writer would have written the same bytes, and an index that is
/// updated to it, by the bytes or by what differs, is the same. As what differs, the bytes are refused, or lead to an index that
/// validating its snapshot leads to, too.
pub fn run(input: &[u8]) {
    let mut index = BEFORE.clone();
    if index.apply_delta(input) {
        let bytes = index.to_bytes();
        check(&index, &bytes);
        assert!(Index::validate(&bytes).is_ok_and(|whole| whole.view().iter().eq(&index.view())));
    } else {
        assert!(index.to_bytes() == before(), "it was refused, and changed");
    }
    let index = match Index::validate(input) {
        Ok(index) => index,
        Err(malformed) => {
            assert!(malformed.offset <= input.len(), "{malformed}");
            return;
        }
    };
    check(&index, input);
    let mut updated = BEFORE.clone();
    updated.update(input).expect("it is valid");
    check(&updated, input);
    if let Some(delta) = BEFORE.delta(input) {
        let mut updated = BEFORE.clone();
        assert!(updated.apply_delta(&delta), "an honest provider's delta is refused");
        check(&updated, input);
    }
}

/// Checks the index of a valid snapshot.
fn check(index: &Index, input: &[u8]) {
    assert!(index.to_bytes() == input, "the index is of another snapshot");
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
    let mounted = view.hierarchies();
    let mounted: Vec<Hierarchy> =
        mounted.map(|(name, root)| Hierarchy { name: name.into(), root: root.into() }).collect();
    let again = write(&entries, &mounted, view.meta());
    // The encoding of the time is unique too, so all bytes are the same.
    assert_eq!(again, input, "the same contents have another encoding");
    assert!(same_content(&again, input));
}
