//! The services that describe processes and cgroups one by one.

use std::ffi::{c_char, c_int};

use bellwire::{CallError, Client, Contract, Dynamic, Lookup, Message, Payload, Service};
use bellwire_apps::{App, AppsLookup};
use bellwire_cgroups::{CgroupDetails, CgroupsLookup};

use crate::bytes::{array, bw_text, free, give, object, put, text};
use crate::config::{self, bw_client_config};
use crate::error::{Failure, bw_error, run};

/// It is described.
pub const BW_LOOKUP_KNOWN: u32 = 1;
/// Nothing yet: ask again later.
pub const BW_LOOKUP_RETRY_LATER: u32 = 2;
/// It does not exist, or no longer does.
pub const BW_LOOKUP_UNKNOWN: u32 = 3;
/// The description does not fit in one answer.
pub const BW_LOOKUP_TOO_LARGE: u32 = 4;

/// Asks the service apps-lookup about processes. By one thread at a time.
pub struct bw_apps(Lookups<App>);

/// Asks the service cgroups-lookup about cgroups. By one thread at a time.
pub struct bw_cgroup_lookup(Lookups<CgroupDetails>);

/// Encodes and decodes by itself: a session for each service's types would double the library's code of sessions.
struct Lookups<T> {
    client: Client<Dynamic>,
    /// What the last answers lend.
    answers: Vec<Lookup<T>>,
}

/// One process. Its texts stay until the next look-up.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_app {
    /// One of BW_LOOKUP_…; the rest is 0 and empty unless it is known.
    pub outcome: u32,
    /// Its parent's pid.
    pub ppid: u32,
    /// Its user.
    pub uid: u32,
    /// The software that manages its cgroup, as of bw_cgroup.
    pub orchestrator: u8,
    /// When it started, in nanoseconds since the machine did.
    pub started_ns: u64,
    /// Its name, as the kernel has it.
    pub comm: bw_text,
    /// Its cgroup's path.
    pub cgroup: bw_text,
    /// Its cgroup's display name.
    pub cgroup_name: bw_text,
    /// How many labels its cgroup has, for bw_apps_label.
    pub labels: usize,
    /// 1 while the provider waits for the cgroup's name: it is made from the path, and may change.
    pub pending: u8,
}

/// One cgroup's description. Its texts stay until the next look-up.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_cgroup_details {
    /// One of BW_LOOKUP_…; the rest is 0 and empty unless it is known.
    pub outcome: u32,
    /// Of BW_CGROUP_….
    pub options: u32,
    /// As of bw_cgroup.
    pub orchestrator: u8,
    /// Whether there is something to collect.
    pub enabled: u8,
    /// As of bw_cgroup.
    pub id: u64,
    /// As of bw_cgroup.
    pub name: bw_text,
    /// How many labels it has, for bw_cgroup_lookup_label.
    pub labels: usize,
}

/// What has labels besides its name.
trait Labeled {
    fn labels(&self) -> &[(String, String)];
}

impl Labeled for App {
    fn labels(&self) -> &[(String, String)] {
        &self.labels
    }
}

impl Labeled for CgroupDetails {
    fn labels(&self) -> &[(String, String)] {
        &self.labels
    }
}

impl<T: Message + Labeled> Lookups<T> {
    /// # Safety
    /// As of [`bw_apps_new`].
    unsafe fn new<S: Service<Response = Lookup<T>>>(
        dir: *const c_char,
        config: *const bw_client_config,
    ) -> Result<Self, Failure> {
        // SAFETY: as the caller promises.
        let (dir, config) = unsafe { config::client_in(dir, config) }?;
        let client = Client::with_contract(&dir, Contract::of::<S>(), config);
        Ok(Self { client, answers: Vec::new() })
    }

    fn ask<R: Message>(&mut self, requests: &[R]) -> Result<&[Lookup<T>], Failure> {
        self.answers.clear();
        let payload = |request: &R| {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            Payload::build(bytes.len(), |into| into.copy_from_slice(&bytes))
        };
        let requests = requests.iter().map(payload).collect::<Result<Vec<_>, _>>()?;
        for answer in call(&mut self.client, &requests)? {
            self.answers.push(Lookup::decode(&answer).map_err(CallError::from)?);
        }
        Ok(&self.answers)
    }

    /// Writes a label of what the last look-up described.
    ///
    /// # Safety
    /// `name` and `value` are NULL or may be written.
    unsafe fn label(
        &self,
        at: usize,
        label: usize,
        name: *mut bw_text,
        value: *mut bw_text,
    ) -> Result<(), Failure> {
        let found = match self.answers.get(at) {
            Some(Lookup::Known(known)) => known.labels().get(label),
            _ => None,
        };
        let none = || Failure::of(bellwire::ErrorKind::Absent, "there is no such label");
        let (of, text) = found.ok_or_else(none)?;
        // SAFETY: as the caller promises.
        unsafe { put(name, of.as_str().into()) }?;
        // SAFETY: as the caller promises.
        unsafe { put(value, text.as_str().into()) }
    }
}

fn call(client: &mut Client<Dynamic>, requests: &[Payload]) -> Result<Vec<Payload>, CallError> {
    let answers = client.connect().and_then(|session| {
        session.call_batch(requests)?.map(|answer| answer.map_err(|error| *error)).collect()
    });
    if answers.is_err() {
        // Has the next one open another session, if this one is over.
        client.refresh();
    }
    answers
}

fn outcome<T>(lookup: &Lookup<T>) -> u32 {
    match lookup {
        Lookup::Known(_) => BW_LOOKUP_KNOWN,
        Lookup::RetryLater => BW_LOOKUP_RETRY_LATER,
        Lookup::Unknown => BW_LOOKUP_UNKNOWN,
        Lookup::TooLarge => BW_LOOKUP_TOO_LARGE,
    }
}

impl From<&Lookup<App>> for bw_app {
    fn from(lookup: &Lookup<App>) -> Self {
        let (outcome, none) = (outcome(lookup), bw_text::from(""));
        let Lookup::Known(app) = lookup else {
            return Self {
                outcome,
                ppid: 0,
                uid: 0,
                orchestrator: 0,
                started_ns: 0,
                comm: none,
                cgroup: none,
                cgroup_name: none,
                labels: 0,
                pending: 0,
            };
        };
        Self {
            outcome,
            ppid: app.ppid,
            uid: app.uid,
            orchestrator: app.orchestrator.code(),
            started_ns: u64::try_from(app.started.as_nanos()).unwrap_or(u64::MAX),
            comm: app.comm.as_str().into(),
            cgroup: app.cgroup.as_str().into(),
            cgroup_name: app.cgroup_name.as_str().into(),
            labels: app.labels.len(),
            pending: app.pending.into(),
        }
    }
}

impl From<&Lookup<CgroupDetails>> for bw_cgroup_details {
    fn from(lookup: &Lookup<CgroupDetails>) -> Self {
        let outcome = outcome(lookup);
        let Lookup::Known(details) = lookup else {
            return Self {
                outcome,
                options: 0,
                orchestrator: 0,
                enabled: 0,
                id: 0,
                name: bw_text::from(""),
                labels: 0,
            };
        };
        Self {
            outcome,
            options: details.options.bits(),
            orchestrator: details.orchestrator.code(),
            enabled: details.enabled.into(),
            id: details.id,
            name: details.name.as_str().into(),
            labels: details.labels.len(),
        }
    }
}

/// Writes what was found for each request.
///
/// # Safety
/// `out` points to `count` elements that may be written.
unsafe fn fill<'a, T: 'a, C: From<&'a Lookup<T>>>(
    answers: &'a [Lookup<T>],
    out: *mut C,
    count: usize,
) -> Result<(), Failure> {
    for (at, answer) in answers.iter().enumerate().take(count) {
        // SAFETY: within the array, as the caller promises.
        unsafe { put(out.wrapping_add(at), C::from(answer)) }?;
    }
    Ok(())
}

/// Creates a client of apps-lookup: `dir` and `config` as of bw_client_new. Free it with bw_apps_free.
///
/// # Safety
/// Pointers are NULL where that is allowed, or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_apps_new(
    dir: *const c_char,
    config: *const bw_client_config,
    out: *mut *mut bw_apps,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let lookups = unsafe { Lookups::new::<AppsLookup>(dir, config) }?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_apps(lookups)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Describes `count` processes in one message: `out` has as many elements as `pids`.
///
/// # Safety
/// A client of apps-lookup, arrays of `count` elements, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_apps_find(
    apps: *mut bw_apps,
    pids: *const u32,
    count: usize,
    out: *mut bw_app,
    error: *mut bw_error,
) -> c_int {
    let find = || {
        // SAFETY: as the caller promises.
        let apps = unsafe { object(apps) }?;
        // SAFETY: as the caller promises.
        let pids = unsafe { array(pids, count) }?;
        if count == 0 {
            return Ok(());
        }
        if out.is_null() {
            return Err(Failure::invalid("an array is NULL"));
        }
        let answers = apps.0.ask(pids)?;
        // SAFETY: as the caller promises.
        unsafe { fill(answers, out, count) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, find) }
}

/// Writes a label of the cgroup of a process that the last look-up described: its place among the pids, and the label's.
/// BW_E_ABSENT where there is none.
///
/// # Safety
/// A client of apps-lookup, `name` and `value` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_apps_label(
    apps: *mut bw_apps,
    at: usize,
    label: usize,
    name: *mut bw_text,
    value: *mut bw_text,
    error: *mut bw_error,
) -> c_int {
    let find = || {
        // SAFETY: as the caller promises.
        let apps = unsafe { object(apps) }?;
        // SAFETY: as the caller promises.
        unsafe { apps.0.label(at, label, name, value) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, find) }
}

/// Frees a client of apps-lookup. NULL is fine.
///
/// # Safety
/// NULL, or one that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_apps_free(apps: *mut bw_apps) {
    // SAFETY: as the caller promises.
    unsafe { free(apps) }
}

/// Creates a client of cgroups-lookup: `dir` and `config` as of bw_client_new. Free it with bw_cgroup_lookup_free.
///
/// # Safety
/// Pointers are NULL where that is allowed, or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroup_lookup_new(
    dir: *const c_char,
    config: *const bw_client_config,
    out: *mut *mut bw_cgroup_lookup,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let lookups = unsafe { Lookups::new::<CgroupsLookup>(dir, config) }?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_cgroup_lookup(lookups)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Describes `count` cgroups by their paths in one message: `out` has as many elements as `paths`.
///
/// # Safety
/// A client of cgroups-lookup, arrays of `count` elements, paths are terminated, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroup_lookup_find(
    lookup: *mut bw_cgroup_lookup,
    paths: *const *const c_char,
    count: usize,
    out: *mut bw_cgroup_details,
    error: *mut bw_error,
) -> c_int {
    let find = || {
        // SAFETY: as the caller promises.
        let lookup = unsafe { object(lookup) }?;
        // SAFETY: as the caller promises.
        let paths = unsafe { array(paths, count) }?;
        if count == 0 {
            return Ok(());
        }
        if out.is_null() {
            return Err(Failure::invalid("an array is NULL"));
        }
        let path = |path: &*const c_char| {
            // SAFETY: as the caller promises.
            let path = unsafe { text(*path) }?;
            path.map(str::to_owned).ok_or_else(|| Failure::invalid("a path is NULL"))
        };
        let paths = paths.iter().map(path).collect::<Result<Vec<_>, _>>()?;
        let answers = lookup.0.ask(&paths)?;
        // SAFETY: as the caller promises.
        unsafe { fill(answers, out, count) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, find) }
}

/// Writes a label of a cgroup that the last look-up described: its place among the paths, and the label's. BW_E_ABSENT
/// where there is none.
///
/// # Safety
/// A client of cgroups-lookup, `name` and `value` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroup_lookup_label(
    lookup: *mut bw_cgroup_lookup,
    at: usize,
    label: usize,
    name: *mut bw_text,
    value: *mut bw_text,
    error: *mut bw_error,
) -> c_int {
    let find = || {
        // SAFETY: as the caller promises.
        let lookup = unsafe { object(lookup) }?;
        // SAFETY: as the caller promises.
        unsafe { lookup.0.label(at, label, name, value) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, find) }
}

/// Frees a client of cgroups-lookup. NULL is fine.
///
/// # Safety
/// NULL, or one that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_cgroup_lookup_free(lookup: *mut bw_cgroup_lookup) {
    // SAFETY: as the caller promises.
    unsafe { free(lookup) }
}
