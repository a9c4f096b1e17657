use std::error::Error;
use std::os::windows::io::{AsHandle, OwnedHandle};

use crate::check::{Check, CheckResult, Finding, Group};
use windows_sys::Win32::Foundation::ERROR_ACCESS_DENIED;
use windows_sys::Win32::Storage::FileSystem::WRITE_DAC;
use windows_sys::Win32::System::Memory::{SECTION_MAP_READ, SECTION_MAP_WRITE};

use bellwire_win::OsError;
use bellwire_win::handle::{Access, duplicate};
use bellwire_win::mapping::Mapping;
use bellwire_win::prelude::*;
use bellwire_win::region::{OwnRegion, PeerRegion, RegionError, VerifyError};
use bellwire_win::snapshot::SnapshotBuilder;

const PAGE: usize = 4096;
const NAME: &str = "bellwire-doctor";

/// Checks sections with read-only handles, which hold all of Bellwire's messages.
pub(super) fn checks() -> Vec<Check> {
    let mut group = Group::new("section objects");
    group.required(
        "unnamed section",
        "free some memory, or enlarge the paging file: see \"committed memory\" below",
        create(),
    );
    let old = "Windows 8.1 or newer looks at the rights of a section without a name";
    group.required("owner writes, peer reads", old, owner_alone_writes());
    group.required("a handle only reads", old, only_reads());
    group.required("no handle gets more rights", old, no_more_rights());
    group.optional(
        "rights stay as they are",
        "any process of the same user could change who may write; see docs/windows.md",
        rights_stay(),
    );
    group.required("size checked by the view", old, size());
    group.required("snapshot that nobody writes", old, snapshot());
    group.into_checks()
}

fn region() -> Result<(OwnRegion, OwnedHandle), RegionError> {
    OwnRegion::create(NAME, PAGE, |_| {})
}

fn create() -> CheckResult {
    region()?;
    Ok(Finding::ok("over the paging file, all of it committed, without a name to be taken"))
}

/// Runs the library's own code: map, give up the right to write, pass, examine, map read-only.
fn owner_alone_writes() -> CheckResult {
    let (own, handle) = region()?;
    let peer = PeerRegion::verify_and_map(handle, PAGE)?;
    own.write(100, b"bellwire");
    let mut read = [0; 8];
    peer.read(100, &mut read);
    same(&read, b"bellwire")?;
    Ok(Finding::ok("the owner's view still writes, the peer's view sees it"))
}

fn only_reads() -> CheckResult {
    let (_own, handle) = region()?;
    // Reading has to work, or the refusal to write proves nothing.
    Mapping::new(handle.as_handle(), false)?;
    refused(Mapping::new(handle.as_handle(), true).map(drop), "could be mapped for writing")?;
    Ok(Finding::ok("it maps for reading, and for writing it is refused"))
}

/// Checks that the section has an access control list: without one the system grants a duplicate any requested right.
fn no_more_rights() -> CheckResult {
    let (_own, handle) = region()?;
    duplicate(&handle, Access::Only(SECTION_MAP_READ))?;
    let more = duplicate(&handle, Access::Only(SECTION_MAP_READ | SECTION_MAP_WRITE));
    refused(more.map(drop), "was duplicated to one that writes")?;
    Ok(Finding::ok("a duplicate with the right to write is refused"))
}

fn rights_stay() -> CheckResult {
    let (_own, handle) = region()?;
    match duplicate(&handle, Access::Only(WRITE_DAC)) {
        Err(error) if error.code() == ERROR_ACCESS_DENIED => {
            Ok(Finding::ok("not even the owner may change who may write"))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Finding::missing("the owner may change who may write")),
    }
}

fn size() -> CheckResult {
    let (_own, handle) = region()?;
    match PeerRegion::check_and_map(handle.as_handle(), 2 * PAGE) {
        Err(VerifyError::Size { .. }) => {
            Ok(Finding::ok("a section that is too small is refused before it is read"))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err("a section of one page was taken for one of two".into()),
    }
}

fn snapshot() -> CheckResult {
    let mut builder = SnapshotBuilder::create(NAME, 8)?;
    builder.bytes().copy_from_slice(b"bellwire");
    let snapshot = builder.seal()?;
    refused(Mapping::new(snapshot.as_handle(), true).map(drop), "could be mapped for writing")?;
    same(&snapshot.map()?, b"bellwire")?;
    Ok(Finding::ok("no view and no handle is left that writes it"))
}

/// Checks that a call was refused for lack of access rights.
fn refused(result: Result<(), OsError>, otherwise: &str) -> Result<(), Box<dyn Error>> {
    match result {
        Err(error) if error.code() == ERROR_ACCESS_DENIED => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(format!("a handle that only reads {otherwise}").into()),
    }
}

fn same(read: &[u8], written: &[u8]) -> Result<(), Box<dyn Error>> {
    if read == written { Ok(()) } else { Err("what was read is not what was written".into()) }
}
