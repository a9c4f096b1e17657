//! The machine's cgroups.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bellwire::{ErrorKind, SnapshotCache};
use bellwire_cgroups::{Cgroup, CgroupsSnapshot, View, chart_id, name_hash, name_hash32};

use crate::bytes::{bw_text, bytes, free, give, object, put, put_unless_null, shared, text};
use crate::cache::{self, refresh};
use crate::config::{self, bw_client_config};
use crate::error::{Failure, bw_error, run};

/// In bw_cgroup.options: the root of the hierarchy.
pub const BW_CGROUP_ROOT: u32 = 0x01;
/// Of the unified hierarchy (v2).
pub const BW_CGROUP_UNIFIED: u32 = 0x02;
/// Of a v1 hierarchy.
pub const BW_CGROUP_LEGACY: u32 = 0x04;
/// There are processes in it or below.
pub const BW_CGROUP_POPULATED: u32 = 0x08;
/// It has no children.
pub const BW_CGROUP_LEAF: u32 = 0x10;
/// A systemd service.
pub const BW_CGROUP_SYSTEM_SERVICE: u32 = 0x20;
/// Below a container.
pub const BW_CGROUP_NESTED: u32 = 0x40;
/// Of the hierarchy that is not the primary one, on a hybrid machine: its id is not that of
/// bpf_get_current_cgroup_id.
pub const BW_CGROUP_SECONDARY: u32 = 0x80;
/// Its provider waits for its name: the name is made from the path, and may change.
pub const BW_CGROUP_PENDING: u32 = 0x100;

/// All cgroups of the machine, as the service cgroups-snapshot publishes them. By one thread at a time.
pub struct bw_cgroups(SnapshotCache<CgroupsSnapshot>);

/// One cgroup. Its texts stay until bw_cgroups_refresh or bw_cgroups_free.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_cgroup {
    /// The inode of its directory: what bpf_get_current_cgroup_id returns, unless it is secondary.
    pub id: u64,
    /// bw_cgroup_name_hash of its name.
    pub name_hash: u64,
    /// A readable name, not necessarily unique.
    pub name: bw_text,
    /// Its path below the hierarchy's root, unique.
    pub path: bw_text,
    /// Of BW_CGROUP_….
    pub options: u32,
    /// The software that manages it: 0 unknown, 1 systemd, 2 Docker, 3 Kubernetes, 4 a virtual machine, 5 LXC, 6 Podman,
    /// 7 systemd-nspawn, 8 containerd, 9 Nomad.
    pub orchestrator: u8,
    /// Whether there is something to collect.
    pub enabled: u8,
    /// How many labels it has, for bw_cgroups_label.
    pub labels: u8,
}

impl From<Cgroup<'_>> for bw_cgroup {
    fn from(cgroup: Cgroup<'_>) -> Self {
        let Cgroup { id, name_hash, name, path, options, enabled, orchestrator, labels, .. } =
            cgroup;
        Self {
            id,
            name_hash,
            name: name.into(),
            path: path.into(),
            options: options.bits(),
            orchestrator: orchestrator.code(),
            enabled: enabled.into(),
            labels: u8::try_from(labels.len()).unwrap_or(u8::MAX),
        }
    }
}

/// Returns the hash of a name: 64-bit FNV-1a. 0 for NULL or invalid UTF-8.
///
/// # Safety
/// NULL, or a terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroup_name_hash(name: *const c_char) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { text(name) }.ok().flatten().map_or(0, name_hash)
}

/// Returns a shorter hash of a name: 32-bit FNV-1a. 0 for NULL or invalid UTF-8.
///
/// # Safety
/// NULL, or a terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroup_name_hash32(name: *const c_char) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { text(name) }.ok().flatten().map_or(0, name_hash32)
}

/// Writes the name of a cgroup as an identifier for charts, terminated: letters, digits, '_' and '-' stay, a dot becomes '-', and any
/// other character '_'. `size` is that of `out`; the name's length and one byte are enough. BW_E_INVALID where it does not fit.
///
/// # Safety
/// The text is one that the library lent, `out` has `size` bytes, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroup_chart_id(
    name: bw_text,
    out: *mut c_char,
    size: usize,
    error: *mut bw_error,
) -> c_int {
    let write = || {
        // SAFETY: as the caller promises.
        let name = unsafe { bytes(name.data.cast(), name.len) }?;
        let name = str::from_utf8(name).map_err(|_| Failure::invalid("a text is not UTF-8"))?;
        let id = chart_id(name);
        if out.is_null() || size <= id.len() {
            return Err(Failure::invalid("the identifier does not fit"));
        }
        for (at, byte) in id.bytes().chain([0]).enumerate() {
            // SAFETY: within `size`, as the caller promises.
            unsafe { put(out.wrapping_add(at), c_char::from_ne_bytes([byte])) }?;
        }
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, write) }
}

/// Creates a reader of the machine's cgroups: `dir` and `config` as of bw_client_new. Free it with bw_cgroups_free.
///
/// # Safety
/// Pointers are NULL where that is allowed, or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_new(
    dir: *const c_char,
    config: *const bw_client_config,
    out: *mut *mut bw_cgroups,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let (dir, config) = unsafe { config::client_in(dir, config) }?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_cgroups(SnapshotCache::with_config(&dir, config))) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Looks for newer cgroups and takes them, as bw_cache_refresh does. They are validated as a whole: afterwards, no look-up
/// allocates or fails.
///
/// # Safety
/// A reader, and pointers that are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_refresh(
    cgroups: *mut bw_cgroups,
    within_ns: u64,
    outcome: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let refresh = || {
        // SAFETY: as the caller promises.
        let cgroups = unsafe { object(cgroups) }?;
        let refreshed = refresh(&mut cgroups.0, within_ns)?;
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(outcome, refreshed) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, refresh) }
}

/// Makes bw_cgroups_fd readable when a refresh has something to do, as bw_cache_arm does.
///
/// # Safety
/// A reader, `is_ready` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_arm(
    cgroups: *mut bw_cgroups,
    is_ready: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let arm = || {
        // SAFETY: as the caller promises.
        let cgroups = unsafe { object(cgroups) }?;
        let may = cgroups.0.arm()?;
        // SAFETY: as the caller promises.
        unsafe { put(is_ready, may.into()) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, arm) }
}

/// Writes a descriptor to `fd`, and after how long to refresh in any case to `timeout_ns`, as bw_cache_fd does. It stays the reader's.
///
/// # Safety
/// A reader, `fd` may be written, other pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_fd(
    cgroups: *mut bw_cgroups,
    fd: *mut c_int,
    timeout_ns: *mut u64,
    error: *mut bw_error,
) -> c_int {
    let of = || {
        // SAFETY: as the caller promises.
        let cgroups = unsafe { object(cgroups) }?;
        let found = cgroups.0.pollable()?.as_raw_fd();
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(timeout_ns, cache::timeout_of(cgroups.0.poll_timeout())) };
        // SAFETY: as the caller promises.
        unsafe { put(fd, found) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, of) }
}

/// Returns how many cgroups there are: 0 before the first refresh that found some. Of NULL: 0.
///
/// # Safety
/// NULL, or a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_count(cgroups: *const bw_cgroups) -> usize {
    let count = || {
        // SAFETY: as the caller promises.
        let cgroups = unsafe { shared(cgroups) }.ok()?;
        cgroups.0.current().map(|current| current.index().view().len())
    };
    catch_unwind(AssertUnwindSafe(count)).ok().flatten().unwrap_or(0)
}

/// # Safety
/// As of the functions below.
unsafe fn find<T>(
    cgroups: *const bw_cgroups,
    out: *mut T,
    error: *mut bw_error,
    find: impl FnOnce(View<'_>) -> Result<Option<T>, Failure>,
) -> c_int {
    let find = || {
        // SAFETY: as the caller promises.
        let cgroups = unsafe { shared(cgroups) }?;
        let none = || Failure::of(ErrorKind::Absent, "there is no such cgroup in the snapshot");
        let current = cgroups.0.current().ok_or_else(none)?;
        let found = find(current.index().view())?.ok_or_else(none)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, found) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, find) }
}

/// Writes the cgroup of this id; BW_E_ABSENT where there is none. Constant time, as all look-ups.
///
/// # Safety
/// A reader, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_by_id(
    cgroups: *const bw_cgroups,
    id: u64,
    out: *mut bw_cgroup,
    error: *mut bw_error,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { find(cgroups, out, error, |view| Ok(view.find_by_id(id).map(Into::into))) }
}

/// Writes the cgroup of this path; BW_E_ABSENT where there is none.
///
/// # Safety
/// A reader, `path` is terminated, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_by_path(
    cgroups: *const bw_cgroups,
    path: *const c_char,
    out: *mut bw_cgroup,
    error: *mut bw_error,
) -> c_int {
    let by_path = |view: View<'_>| {
        // SAFETY: as the caller promises.
        let path = unsafe { text(path) }?.ok_or_else(|| Failure::invalid("a path is NULL"))?;
        Ok(view.find_by_path(path).map(Into::into))
    };
    // SAFETY: as the caller promises.
    unsafe { find(cgroups, out, error, by_path) }
}

/// Writes the cgroup of this name, of several the one whose path sorts first; BW_E_ABSENT where there is none.
///
/// # Safety
/// A reader, `name` is terminated, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_by_name(
    cgroups: *const bw_cgroups,
    name: *const c_char,
    out: *mut bw_cgroup,
    error: *mut bw_error,
) -> c_int {
    let by_name = |view: View<'_>| {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name) }?.ok_or_else(|| Failure::invalid("a name is NULL"))?;
        Ok(view.find_by_name(name_hash(name), name).map(Into::into))
    };
    // SAFETY: as the caller promises.
    unsafe { find(cgroups, out, error, by_name) }
}

/// Writes the cgroup at a position, in the order of their paths; BW_E_ABSENT from bw_cgroups_count on.
///
/// # Safety
/// A reader, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_at(
    cgroups: *const bw_cgroups,
    position: usize,
    out: *mut bw_cgroup,
    error: *mut bw_error,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { find(cgroups, out, error, |view| Ok(view.iter().nth(position).map(Into::into))) }
}

/// Writes a label of the cgroup of this id, from the source of its name. BW_E_ABSENT if there is none; both texts
/// stay as those of the cgroup.
///
/// # Safety
/// A reader, `name` and `value` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_label(
    cgroups: *const bw_cgroups,
    id: u64,
    label: usize,
    name: *mut bw_text,
    value: *mut bw_text,
    error: *mut bw_error,
) -> c_int {
    let by_id = |view: View<'_>| {
        let cgroup = view.find_by_id(id);
        let Some((of, text)) = cgroup.and_then(|cgroup| cgroup.labels.iter().nth(label)) else {
            return Ok(None);
        };
        // SAFETY: as the caller promises.
        unsafe { put(name, of.into()) }?;
        Ok(Some(text.into()))
    };
    // SAFETY: as the caller promises.
    unsafe { find(cgroups, value, error, by_id) }
}

/// Writes the directory below which the paths of a cgroup's hierarchy start in the provider's mount namespace, such as
/// /sys/fs/cgroup: its path follows, and then "/cgroup.procs". BW_E_ABSENT where the provider does not say. The cgroup is that of
/// this id.
///
/// # Safety
/// A reader, `root` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_root(
    cgroups: *const bw_cgroups,
    id: u64,
    root: *mut bw_text,
    error: *mut bw_error,
) -> c_int {
    let of = |view: View<'_>| {
        let cgroup = view.find_by_id(id);
        Ok(cgroup.and_then(|cgroup| view.root_of(&cgroup)).map(bw_text::from))
    };
    // SAFETY: as the caller promises.
    unsafe { find(cgroups, root, error, of) }
}

/// Frees a reader and its texts. NULL is fine.
///
/// # Safety
/// NULL, or a reader that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroups_free(cgroups: *mut bw_cgroups) {
    // SAFETY: as the caller promises.
    unsafe { free(cgroups) }
}
