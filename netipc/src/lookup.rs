//! The payloads of `cgroups-lookup` and `apps-lookup`.

use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{Reader, TableWriter, aligned, put_text, word};
use crate::{Malformed, Status};

/// Labels, in their order.
pub type Labels = Vec<(String, String)>;

/// What a provider knows of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cgroup {
    /// Its description.
    Known {
        /// The number of the software that manages it.
        orchestrator: u16,
        /// Its name.
        name: String,
        /// Its labels.
        labels: Labels,
    },
    /// Nothing yet: ask later.
    RetryLater,
    /// Nothing, and asking again is useless.
    Unknown,
    /// The description does not fit in one answer.
    Oversized,
}

/// What a provider knows of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum App {
    /// Its description.
    Known(Process),
    /// The provider does not know the process.
    Unknown,
    /// The description does not fit in one answer.
    Oversized,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The parent's pid, or 0.
    pub ppid: u32,
    /// The user.
    pub uid: u32,
    /// When it started, in ticks of 10 ms since boot.
    pub started: u64,
    /// Its name: 1 to 15 bytes.
    pub comm: String,
    /// Its cgroup.
    pub cgroup: ProcessCgroup,
}

/// The cgroup of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessCgroup {
    /// Its path, and what the provider knows of it.
    Known(String, CgroupName),
    /// Not yet, with its path or without one.
    RetryLater(String),
    /// A path without a cgroup that is known.
    Unknown(String),
    /// The root of the hierarchy.
    HostRoot,
}

/// What a cgroup is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupName {
    /// The number of the software that manages it.
    pub orchestrator: u16,
    /// Its name; may be empty.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
}

/// The user of a process that is not known.
const NO_UID: u32 = u32::MAX;
/// The statuses of an item that was left out: for good, or for the next request.
const CGROUP_EXCEEDED: u16 = 3;
const CGROUP_OVERSIZED: u16 = 4;
const APP_EXCEEDED: u16 = 2;
const APP_OVERSIZED: u16 = 3;
/// The longest name of a process, in bytes.
pub const MAX_COMM: usize = 15;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RequestHead {
    layout: U16,
    flags: U16,
    items: U32,
    zero: [U32; 2],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ResponseHead {
    layout: U16,
    flags: U16,
    items: U32,
    generation: U64,
}

/// Where a text lies in its item.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Span {
    offset: U32,
    len: U32,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CgroupHead {
    layout: U16,
    status: U16,
    orchestrator: U16,
    zero: U16,
    path: Span,
    name: Span,
    labels: U16,
    zero2: U16,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AppHead {
    layout: U16,
    status: U16,
    orchestrator: U16,
    cgroup_status: U16,
    pid: U32,
    ppid: U32,
    uid: U32,
    zero: U32,
    started: U64,
    comm: Span,
    path: Span,
    name: Span,
    labels: U16,
    zero2: U16,
}

const HEAD: usize = 16;
const CGROUP_HEAD: usize = 28;
const APP_HEAD: usize = 60;
const LABEL: usize = 2 * size_of::<Span>();
const _: () = assert!(size_of::<RequestHead>() == HEAD && size_of::<ResponseHead>() == HEAD);
const _: () = assert!(size_of::<CgroupHead>() == CGROUP_HEAD && size_of::<AppHead>() == APP_HEAD);

/// Reads the paths of a request of `cgroups-lookup`.
///
/// # Errors
/// [`Malformed`] says where it breaks which rule.
pub fn paths(payload: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let reader = Reader(payload);
    let keys = request_keys(reader)?;
    let path = |key: &'_ [u8]| match key.split_last() {
        Some((0, path)) if !path.is_empty() && !path.contains(&0) => Some(path.len()),
        _ => None,
    };
    let paths = keys.into_iter().map(|key| {
        let wrong = reader.malformed(HEAD, "a key that is no path with a NUL behind it");
        path(key).and_then(|len| key.get(..len)).ok_or(wrong)
    });
    paths.collect()
}

/// Reads the pids of a request of `apps-lookup`.
///
/// # Errors
/// [`Malformed`] says where it breaks which rule.
pub fn pids(payload: &[u8]) -> Result<Vec<u32>, Malformed> {
    let reader = Reader(payload);
    let wrong = reader.malformed(HEAD, "a key that is no pid");
    let pid = |key| match <[U32; 2]>::read_from_bytes(key) {
        Ok([pid, zero]) if zero.get() == 0 => Ok(pid.get()),
        _ => Err(wrong),
    };
    request_keys(reader)?.into_iter().map(pid).collect()
}

fn request_keys(reader: Reader<'_>) -> Result<Vec<&[u8]>, Malformed> {
    let head: RequestHead = reader.head()?;
    if head.layout.get() != 1 || head.flags.get() != 0 || head.zero != [U32::ZERO; 2] {
        return Err(reader.malformed(0, "another layout, or reserved bits"));
    }
    reader.table(HEAD, head.items.get())
}

/// Writes a request: paths with their NUL, or pids with four zero bytes.
pub fn write_request(keys: &[Vec<u8>]) -> Vec<u8> {
    let (layout, flags, items) = (1.into(), 0.into(), word(keys.len()).into());
    let head = RequestHead { layout, flags, items, zero: [U32::ZERO; 2] };
    let mut payload = head.as_bytes().to_vec();
    let mut table = TableWriter::begin(&mut payload, keys.len());
    for key in keys {
        table.item(|into| into.extend_from_slice(key));
    }
    payload
}

/// Writes the answer to a request of `cgroups-lookup`: for each path, in order, what is known. What does not fit `room` bytes
/// is left for the client's next request.
///
/// # Errors
/// [`Status::LimitExceeded`] when not even the first item fits.
pub fn write_cgroups(
    items: &[(&[u8], Cgroup)],
    generation: u64,
    room: usize,
    into: &mut Vec<u8>,
) -> Result<(), Status> {
    write(items, generation, room, into)
}

/// Writes the answer to a request of `apps-lookup`, like [`write_cgroups`].
///
/// # Errors
/// Like [`write_cgroups`].
pub fn write_apps(
    items: &[(u32, App)],
    generation: u64,
    room: usize,
    into: &mut Vec<u8>,
) -> Result<(), Status> {
    write(items, generation, room, into)
}

/// An item of an answer.
trait Item {
    const EXCEEDED: u16;
    const OVERSIZED: u16;

    /// Appends everything.
    fn put(&self, into: &mut Vec<u8>);

    /// Appends nothing but the key.
    fn put_bare(&self, status: u16, into: &mut Vec<u8>);
}

fn write<I: Item>(
    items: &[I],
    generation: u64,
    room: usize,
    into: &mut Vec<u8>,
) -> Result<(), Status> {
    let (layout, flags, count) = (1.into(), 0.into(), word(items.len()).into());
    let head = ResponseHead { layout, flags, items: count, generation: generation.into() };
    into.extend_from_slice(head.as_bytes());
    let mut bytes = Vec::new();
    let mut bare_len = |item: &I| {
        bytes.clear();
        item.put_bare(I::EXCEEDED, &mut bytes);
        aligned(bytes.len())
    };
    let bare: Vec<usize> = items.iter().map(&mut bare_len).collect();
    // What the items after this one take at least.
    let mut rest: usize = bare.iter().sum();
    let mut table = TableWriter::begin(into, items.len());
    let mut is_full = false;
    for (nth, (item, bare)) in items.iter().zip(bare).enumerate() {
        rest -= bare;
        bytes.clear();
        item.put(&mut bytes);
        if is_full {
            bytes.clear();
            item.put_bare(I::EXCEEDED, &mut bytes);
        } else if HEAD + crate::bytes::ENTRY + bytes.len() > room {
            bytes.clear();
            item.put_bare(I::OVERSIZED, &mut bytes);
        } else if aligned(table.len()) + aligned(bytes.len()) + rest > room {
            // A client that gets nothing at all would ask for the same again.
            if nth == 0 {
                return Err(Status::LimitExceeded);
            }
            is_full = true;
            bytes.clear();
            item.put_bare(I::EXCEEDED, &mut bytes);
        }
        table.item(|into| into.extend_from_slice(&bytes));
    }
    if table.len() > room { Err(Status::LimitExceeded) } else { Ok(()) }
}

/// Places texts behind a head, each with its NUL.
struct Spans(usize);

impl Spans {
    fn place(&mut self, text: &[u8]) -> Span {
        let span = Span { offset: word(self.0).into(), len: word(text.len()).into() };
        self.0 += text.len() + 1;
        span
    }
}

/// Appends texts and labels to the head of an item that is alone in `into`.
fn put_texts(into: &mut Vec<u8>, texts: &[&[u8]], labels: &[(String, String)]) {
    for text in texts {
        put_text(into, text);
    }
    if labels.is_empty() {
        return;
    }
    into.resize(aligned(into.len()), 0);
    let mut spans = Spans(into.len() + labels.len() * LABEL);
    for text in texts_of(labels) {
        into.extend_from_slice(spans.place(text).as_bytes());
    }
    for text in texts_of(labels) {
        put_text(into, text);
    }
}

fn texts_of(labels: &[(String, String)]) -> impl Iterator<Item = &[u8]> {
    labels.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()])
}

/// Returns the labels that a message can carry: those with a name.
fn named(labels: &Labels) -> (Labels, u16) {
    let named = labels.iter().filter(|(name, _)| !name.is_empty());
    let named: Labels = named.take(u16::MAX.into()).cloned().collect();
    let count = u16::try_from(named.len()).unwrap_or(u16::MAX);
    (named, count)
}

impl Item for (&[u8], Cgroup) {
    const EXCEEDED: u16 = CGROUP_EXCEEDED;
    const OVERSIZED: u16 = CGROUP_OVERSIZED;

    fn put(&self, into: &mut Vec<u8>) {
        let (path, Cgroup::Known { orchestrator, name, labels }) = self else {
            let status = match self.1 {
                Cgroup::RetryLater => 1,
                Cgroup::Oversized => CGROUP_OVERSIZED,
                _ => 2,
            };
            return self.put_bare(status, into);
        };
        let (labels, count) = named(labels);
        let mut spans = Spans(CGROUP_HEAD);
        let head = CgroupHead {
            layout: 1.into(),
            orchestrator: (*orchestrator).into(),
            path: spans.place(path),
            name: spans.place(name.as_bytes()),
            labels: count.into(),
            ..CgroupHead::default()
        };
        into.extend_from_slice(head.as_bytes());
        put_texts(into, &[path, name.as_bytes()], &labels);
    }

    fn put_bare(&self, status: u16, into: &mut Vec<u8>) {
        let mut spans = Spans(CGROUP_HEAD);
        let head = CgroupHead {
            layout: 1.into(),
            status: status.into(),
            path: spans.place(self.0),
            name: spans.place(b""),
            ..CgroupHead::default()
        };
        into.extend_from_slice(head.as_bytes());
        put_texts(into, &[self.0, b""], &[]);
    }
}

impl Item for (u32, App) {
    const EXCEEDED: u16 = APP_EXCEEDED;
    const OVERSIZED: u16 = APP_OVERSIZED;

    fn put(&self, into: &mut Vec<u8>) {
        let (pid, App::Known(process)) = self else {
            let is_oversized = self.1 == App::Oversized;
            return self.put_bare(if is_oversized { APP_OVERSIZED } else { 1 }, into);
        };
        let none = CgroupName { orchestrator: 0, name: String::new(), labels: Vec::new() };
        let (cgroup_status, path, cgroup) = match &process.cgroup {
            ProcessCgroup::Known(path, cgroup) => (0, path.as_str(), cgroup),
            ProcessCgroup::RetryLater(path) => (1, path.as_str(), &none),
            ProcessCgroup::Unknown(path) => (2, path.as_str(), &none),
            ProcessCgroup::HostRoot => (3, "", &none),
        };
        let (labels, count) = named(&cgroup.labels);
        let texts = [process.comm.as_bytes(), path.as_bytes(), cgroup.name.as_bytes()];
        let mut spans = Spans(APP_HEAD);
        let [comm, path, name] = texts.map(|text| spans.place(text));
        let head = AppHead {
            layout: 1.into(),
            orchestrator: cgroup.orchestrator.into(),
            cgroup_status: cgroup_status.into(),
            pid: (*pid).into(),
            ppid: process.ppid.into(),
            uid: process.uid.into(),
            started: process.started.into(),
            comm,
            path,
            name,
            labels: count.into(),
            ..AppHead::default()
        };
        into.extend_from_slice(head.as_bytes());
        put_texts(into, &texts, &labels);
    }

    fn put_bare(&self, status: u16, into: &mut Vec<u8>) {
        let mut spans = Spans(APP_HEAD);
        let [comm, path, name] = [(); 3].map(|()| spans.place(b""));
        let head = AppHead {
            layout: 1.into(),
            status: status.into(),
            pid: self.0.into(),
            uid: NO_UID.into(),
            comm,
            path,
            name,
            ..AppHead::default()
        };
        into.extend_from_slice(head.as_bytes());
        put_texts(into, &[b"", b"", b""], &[]);
    }
}

/// An answer that was received: its generation, and its items; `None` is one that has to be asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers<T> {
    /// What tells one run of the provider from the next.
    pub generation: u64,
    /// What is known of each key, in their order.
    pub items: Vec<Option<T>>,
}

/// Checks all of an answer of `cgroups-lookup` to a request for these paths.
///
/// # Errors
/// [`Malformed`] says where it breaks which rule.
pub fn read_cgroups(payload: &[u8], paths: &[&str]) -> Result<Answers<Cgroup>, Malformed> {
    read(payload, paths, |reader, path| {
        let head: CgroupHead = reader.head()?;
        let (zeros, layout) = ([head.zero, head.zero2], head.layout.get());
        let mut texts = Texts::new(reader, CGROUP_HEAD);
        let [found, name] = [texts.next(head.path)?, texts.next(head.name)?];
        if layout != 1 || zeros != [U16::ZERO; 2] || found != *path {
            return Err(reader.malformed(0, "another layout, reserved bits, or another path"));
        }
        let labels = texts.labels(head.labels.get())?;
        let orchestrator = head.orchestrator.get();
        let is_bare = orchestrator == 0 && name.is_empty() && labels.is_empty();
        Ok(Some(match head.status.get() {
            0 => Cgroup::Known { orchestrator, name: name.into(), labels },
            1 if is_bare => Cgroup::RetryLater,
            2 if is_bare => Cgroup::Unknown,
            CGROUP_EXCEEDED if is_bare => return Ok(None),
            CGROUP_OVERSIZED if is_bare => Cgroup::Oversized,
            _ => return Err(reader.malformed(2, "an unknown status, or what it does not go with")),
        }))
    })
}

/// Checks all of an answer of `apps-lookup` to a request for these pids.
///
/// # Errors
/// [`Malformed`] says where it breaks which rule.
pub fn read_apps(payload: &[u8], pids: &[u32]) -> Result<Answers<App>, Malformed> {
    read(payload, pids, |reader, pid| {
        let head: AppHead = reader.head()?;
        let wrong = |at| reader.malformed(at, "an unknown status, or what it does not go with");
        let mut texts = Texts::new(reader, APP_HEAD);
        let [comm, path, name] = [head.comm, head.path, head.name].map(|span| texts.next(span));
        let (comm, path, name) = (comm?, path?, name?);
        let zero = head.zero.get() == 0 && head.zero2.get() == 0;
        if head.layout.get() != 1 || !zero || head.pid.get() != *pid {
            return Err(reader.malformed(0, "another layout, reserved bits, or another pid"));
        }
        let labels = texts.labels(head.labels.get())?;
        let orchestrator = head.orchestrator.get();
        let is_unnamed = orchestrator == 0 && name.is_empty() && labels.is_empty();
        let (ppid, uid, started) = (head.ppid.get(), head.uid.get(), head.started.get());
        if head.status.get() != 0 {
            let nothing = (ppid, uid, started, head.cgroup_status.get()) == (0, NO_UID, 0, 0);
            if !is_unnamed || !nothing || !comm.is_empty() || !path.is_empty() {
                return Err(wrong(2));
            }
        }
        match head.status.get() {
            0 if (1..=MAX_COMM).contains(&comm.len()) => {}
            1 => return Ok(Some(App::Unknown)),
            APP_EXCEEDED => return Ok(None),
            APP_OVERSIZED => return Ok(Some(App::Oversized)),
            _ => return Err(wrong(2)),
        }
        let named = CgroupName { orchestrator, name: name.into(), labels };
        let cgroup = match (head.cgroup_status.get(), path.is_empty()) {
            (0, false) => ProcessCgroup::Known(path.into(), named),
            (1, _) if is_unnamed => ProcessCgroup::RetryLater(path.into()),
            (2, false) if is_unnamed => ProcessCgroup::Unknown(path.into()),
            (3, true) if is_unnamed => ProcessCgroup::HostRoot,
            _ => return Err(wrong(6)),
        };
        Ok(Some(App::Known(Process { ppid, uid, started, comm: comm.into(), cgroup })))
    })
}

fn read<K, T>(
    payload: &[u8],
    keys: &[K],
    mut item: impl FnMut(Reader<'_>, &K) -> Result<Option<T>, Malformed>,
) -> Result<Answers<T>, Malformed> {
    let reader = Reader(payload);
    let head: ResponseHead = reader.head()?;
    let count = head.items.get();
    if head.layout.get() != 1 || head.flags.get() != 0 || count as usize != keys.len() {
        return Err(reader.malformed(0, "another layout, reserved bits, or another count"));
    }
    let items = reader.table(HEAD, count)?.into_iter().zip(keys);
    let items = items.map(|(bytes, key)| item(Reader(bytes), key)).collect::<Result<_, _>>()?;
    Ok(Answers { generation: head.generation.get(), items })
}

/// Reads the texts of an item, each of which begins behind the one before it.
struct Texts<'a> {
    reader: Reader<'a>,
    end: usize,
}

impl<'a> Texts<'a> {
    fn new(reader: Reader<'a>, end: usize) -> Self {
        Self { reader, end }
    }

    fn next(&mut self, span: Span) -> Result<&'a str, Malformed> {
        let text = self.reader.text(span.offset.get(), span.len.get())?;
        let start = span.offset.get() as usize;
        if start < self.end {
            return Err(self.reader.malformed(start, "a text that overlaps"));
        }
        self.end = start + text.len() + 1;
        Ok(text)
    }

    fn labels(mut self, count: u16) -> Result<Labels, Malformed> {
        let wrong = self.reader.malformed(self.end, "a table of labels out of place");
        if count == 0 {
            return Ok(Vec::new());
        }
        let start = aligned(self.end);
        let padding = self.reader.0.get(self.end..start).ok_or(wrong)?;
        let table =
            self.reader.0.get(start..).and_then(|rest| rest.get(..usize::from(count) * LABEL));
        let table = table.filter(|_| padding.iter().all(|byte| *byte == 0)).ok_or(wrong)?;
        self.end = start + table.len();
        let mut labels = Vec::new();
        for label in table.chunks_exact(LABEL) {
            let [name, value] = <[Span; 2]>::read_from_bytes(label).map_err(|_| wrong)?;
            let (name, value) = (self.next(name)?, self.next(value)?);
            if name.is_empty() {
                return Err(self.reader.malformed(start, "a label without a name"));
            }
            labels.push((name.to_owned(), value.to_owned()));
        }
        Ok(labels)
    }
}
