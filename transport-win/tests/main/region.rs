#![allow(unsafe_code, reason = "the attacks map memory by hand")]

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use bellwire_win::doorbell::Event;
use bellwire_win::prelude::*;
use bellwire_win::region::{OwnRegion, PeerRegion, RegionError, VerifyError};
use windows_sys::Win32::Foundation::{DuplicateHandle, GetLastError, HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, FILE_MAP_EXECUTE, FILE_MAP_READ, FILE_MAP_WRITE, MEMORY_BASIC_INFORMATION,
    MapViewOfFile, PAGE_READONLY, PAGE_READWRITE, SEC_COMMIT, SEC_NOCACHE, SEC_RESERVE,
    SECTION_ALL_ACCESS, SECTION_EXTEND_SIZE, SECTION_MAP_EXECUTE, SECTION_MAP_READ,
    SECTION_MAP_WRITE, UnmapViewOfFile, VirtualProtect, VirtualQuery,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use crate::support::region;

const SIZE: usize = 16 << 10;

/// Rights that whoever holds a reading handle may ask for when he duplicates it.
pub(crate) const UPGRADES: [u32; 5] = [
    SECTION_MAP_WRITE,
    SECTION_MAP_READ | SECTION_MAP_WRITE,
    SECTION_MAP_EXECUTE,
    SECTION_EXTEND_SIZE,
    SECTION_ALL_ACCESS,
];

/// Duplicates a handle within this process with these rights; else the system's error.
pub(crate) fn duplicate(handle: BorrowedHandle<'_>, access: u32) -> Result<OwnedHandle, u32> {
    let mut made: HANDLE = ptr::null_mut();
    // SAFETY: a pseudo-handle, always valid.
    let me = unsafe { GetCurrentProcess() };
    // SAFETY: `made` is a live local.
    let done = unsafe { DuplicateHandle(me, handle.as_raw_handle(), me, &mut made, access, 0, 0) };
    if done == 0 {
        // SAFETY: asks for a number.
        return Err(unsafe { GetLastError() });
    }
    // SAFETY: made just now; nobody else knows it.
    Ok(unsafe { OwnedHandle::from_raw_handle(made) })
}

/// A section made by hand, as a hostile peer would.
pub(crate) fn section(file: HANDLE, size: usize, kind: u32) -> OwnedHandle {
    let size = u32::try_from(size).unwrap();
    // SAFETY: no name and no rights are given.
    let handle = unsafe { CreateFileMappingW(file, ptr::null(), kind, 0, size, ptr::null()) };
    // SAFETY: asks for a number.
    assert!(!handle.is_null(), "error {}", unsafe { GetLastError() });
    // SAFETY: made just now; nobody else knows it.
    unsafe { OwnedHandle::from_raw_handle(handle) }
}

fn refused(section: OwnedHandle) -> VerifyError {
    PeerRegion::verify_and_map(section, SIZE).expect_err("it must be refused")
}

#[test]
fn a_new_region_is_zeroed() {
    let (_own, peer) = region(SIZE);
    let mut bytes = vec![1; SIZE];
    peer.read(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn the_peer_keeps_a_region_that_its_owner_has_unmapped() {
    let (own, peer) = region(SIZE);
    own.write(0, b"still here");
    drop(own);
    assert_eq!(peer.read_header::<10>(0), *b"still here");
}

#[test]
fn no_attack_from_the_receiving_side_changes_a_byte() {
    let (own, section) = OwnRegion::create("victim", SIZE, |_| {}).unwrap();
    own.write(0, b"untouched");
    let map = |access| {
        // SAFETY: a fresh mapping that is only unmapped, or never made.
        unsafe { MapViewOfFile(section.as_raw_handle(), access, 0, 0, 0) }
    };
    assert!(map(FILE_MAP_WRITE).Value.is_null(), "map for writing");
    assert!(map(FILE_MAP_READ | FILE_MAP_WRITE).Value.is_null(), "map for both");
    assert!(map(FILE_MAP_READ | FILE_MAP_EXECUTE).Value.is_null(), "map for executing");
    for access in UPGRADES {
        let error = duplicate(section.as_handle(), access).map(|_| ());
        assert_eq!(error, Err(5), "duplicate with more rights: {access:#x}");
    }
    let again = duplicate(section.as_handle(), SECTION_MAP_READ).unwrap();
    assert_eq!(
        duplicate(again.as_handle(), SECTION_MAP_WRITE).map(|_| ()),
        Err(5),
        "duplicate a duplicate"
    );
    let view = map(FILE_MAP_READ);
    assert!(!view.Value.is_null());
    let mut before = 0;
    // SAFETY: the mapping made above; it fails.
    let protect = unsafe { VirtualProtect(view.Value, SIZE, PAGE_READWRITE, &mut before) };
    assert_eq!(protect, 0, "VirtualProtect");
    // SAFETY: the mapping made above, not used any more.
    unsafe { UnmapViewOfFile(view) };
    let peer = PeerRegion::verify_and_map(section, SIZE).unwrap();
    assert_eq!(peer.read_header::<9>(0), *b"untouched");
    own.write(0, b"owner ok ");
    assert_eq!(peer.read_header::<9>(0), *b"owner ok ");
}

#[test]
fn without_a_list_of_rights_a_reading_handle_would_become_a_writing_one() {
    // Why every section here has one: this is what a plain unnamed section lets its reader do.
    let plain = section(INVALID_HANDLE_VALUE, SIZE, PAGE_READWRITE | SEC_COMMIT);
    let reads = duplicate(plain.as_handle(), SECTION_MAP_READ).unwrap();
    assert!(duplicate(reads.as_handle(), SECTION_MAP_WRITE).is_ok());
}

#[test]
fn another_size_than_announced_is_refused() {
    for found in [4096, SIZE - 4096, SIZE + 4096, 2 * SIZE] {
        let error = refused(section(INVALID_HANDLE_VALUE, found, PAGE_READWRITE | SEC_COMMIT));
        assert_eq!(error, VerifyError::Size { found: found as u64, expected: SIZE as u64 });
    }
    let exact = section(INVALID_HANDLE_VALUE, SIZE, PAGE_READWRITE | SEC_COMMIT);
    assert!(PeerRegion::verify_and_map(exact, SIZE).is_ok());
}

#[test]
fn no_region_has_no_bytes() {
    let some = section(INVALID_HANDLE_VALUE, SIZE, PAGE_READWRITE | SEC_COMMIT);
    let error = PeerRegion::verify_and_map(some, 0).expect_err("nothing to map");
    assert_eq!(error, VerifyError::Size { found: SIZE as u64, expected: 0 });
    let error = OwnRegion::create("empty", 0, |_| {}).expect_err("nothing to make");
    assert!(matches!(error, RegionError::Allocate { size: 0, .. }), "{error}");
}

#[test]
fn pages_without_memory_are_refused() {
    let reserved = section(INVALID_HANDLE_VALUE, SIZE, PAGE_READWRITE | SEC_RESERVE);
    assert_eq!(refused(reserved), VerifyError::Uncommitted { size: SIZE as u64 });
}

#[test]
fn a_section_of_a_file_is_refused() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE as u64).unwrap();
    for kind in [PAGE_READONLY, PAGE_READWRITE] {
        let mapped = section(file.as_raw_handle(), SIZE, kind);
        assert_eq!(refused(mapped), VerifyError::FileBacked);
    }
}

#[test]
fn memory_that_is_not_cached_is_refused() {
    let kind = PAGE_READWRITE | SEC_COMMIT | SEC_NOCACHE;
    let uncached = section(INVALID_HANDLE_VALUE, SIZE, kind);
    // SAFETY: a fresh mapping that is only looked at.
    let view = unsafe { MapViewOfFile(uncached.as_raw_handle(), FILE_MAP_READ, 0, 0, 0) };
    let mut found = MEMORY_BASIC_INFORMATION::default();
    // SAFETY: `found` is a live local of the size given.
    unsafe { VirtualQuery(view.Value, &mut found, size_of_val(&found)) };
    // SAFETY: the mapping made above, not used any more.
    unsafe { UnmapViewOfFile(view) };
    if found.Protect == PAGE_READONLY {
        eprintln!("skipped: this system has no memory without a cache");
        return;
    }
    assert_eq!(refused(uncached), VerifyError::Special);
}

#[test]
fn a_handle_that_is_no_section_is_refused() {
    let file = OwnedHandle::from(tempfile::tempfile().unwrap());
    let event = Event::create().unwrap().as_handle().try_clone_to_owned().unwrap();
    for handle in [file, event] {
        assert!(matches!(refused(handle), VerifyError::NotMemory { .. }));
    }
}

#[test]
fn a_section_without_the_right_to_read_is_refused() {
    let plain = section(INVALID_HANDLE_VALUE, SIZE, PAGE_READWRITE | SEC_COMMIT);
    let blind = duplicate(plain.as_handle(), 1).unwrap();
    assert_eq!(refused(blind), VerifyError::Unreadable);
}

#[test]
fn more_than_there_is_is_an_error() {
    let error = OwnRegion::create("vast", 1 << 46, |_| {}).expect_err("64 TiB");
    assert!(matches!(error, RegionError::Allocate { .. } | RegionError::Map { .. }), "{error}");
}
