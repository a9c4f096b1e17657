#![allow(unsafe_code, reason = "the attacks map memory by hand")]

use std::os::windows::io::{AsHandle, AsRawHandle, OwnedHandle};

use bellwire_win::prelude::*;
use bellwire_win::snapshot::{SnapshotBuilder, SnapshotMap, VerifyError};
use windows_sys::Win32::System::Memory::{FILE_MAP_WRITE, MapViewOfFile};

use crate::region::{UPGRADES, duplicate};

fn built(text: &[u8]) -> bellwire_win::snapshot::Snapshot {
    let mut builder = SnapshotBuilder::create("test", text.len()).unwrap();
    builder.bytes().copy_from_slice(text);
    builder.seal().unwrap()
}

fn sent(snapshot: &bellwire_win::snapshot::Snapshot) -> OwnedHandle {
    snapshot.as_handle().try_clone_to_owned().unwrap()
}

#[test]
fn readers_see_the_built_bytes() {
    let text = b"built once, read by many";
    let snapshot = built(text);
    assert_eq!((snapshot.len(), snapshot.is_empty()), (text.len(), false));
    let mapped = SnapshotMap::of_peer(sent(&snapshot), text.len(), true).unwrap();
    let copied = SnapshotMap::of_peer(sent(&snapshot), text.len(), false).unwrap();
    let own = snapshot.map().unwrap();
    drop(snapshot);
    for map in [mapped, copied, own] {
        assert_eq!(&*map, text);
    }
}

#[test]
fn a_sealed_snapshot_cannot_be_written_any_more() {
    let snapshot = built(b"untouched");
    // SAFETY: a mapping that is never made.
    let view =
        unsafe { MapViewOfFile(snapshot.as_handle().as_raw_handle(), FILE_MAP_WRITE, 0, 0, 0) };
    assert!(view.Value.is_null(), "its own maker mapped it for writing");
    for access in UPGRADES {
        assert_eq!(duplicate(snapshot.as_handle(), access).map(|_| ()), Err(5), "{access:#x}");
    }
    assert_eq!(&*snapshot.map().unwrap(), b"untouched");
}

#[test]
fn an_empty_snapshot_is_one_page_of_nothing() {
    let snapshot = built(b"");
    assert!(snapshot.is_empty());
    assert_eq!(&*SnapshotMap::of_peer(sent(&snapshot), 0, false).unwrap(), b"");
}

#[test]
fn another_length_than_announced_is_refused() {
    let snapshot = built(&[1; 5000]);
    let map = |len| SnapshotMap::of_peer(sent(&snapshot), len, false).map(|_| ());
    assert_eq!(map(5000), Ok(()));
    assert_eq!(map(4096), Err(VerifyError::Size { found: 8192, expected: 4096 }));
    assert_eq!(map(8193), Err(VerifyError::Size { found: 8192, expected: 12288 }));
    assert!(matches!(map(usize::MAX), Err(VerifyError::Size { found: 8192, .. })));
}
