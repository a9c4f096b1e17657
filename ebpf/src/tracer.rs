//! The programs in the kernel: loaded, attached, and what they have counted.

// What libbpf-cargo writes is its own affair.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/trace.skel.rs"));
}

use std::collections::BTreeMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject, RingBufferBuilder, UsdtOpts};

use crate::args::{Rate, Scope};
use crate::call::{self, Told};
use crate::error::Error;
use crate::histogram::Histogram;
use crate::links;
use crate::out::tell;
use crate::processes::{self, PROVIDER, Traceable};
use crate::stats::{self, Stats};
use skeleton::{TraceSkel, TraceSkelBuilder, types};

type Links = Vec<Link>;

/// What is traced, until it is dropped.
pub(crate) struct Tracer<'a> {
    skel: TraceSkel<'a>,
    stats: Stats,
    links: Links,
}

/// What a command wants beside what all of them count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Each session is counted by itself, not all of a service together.
    pub(crate) by_session: bool,
    /// Calls that take as long are events.
    pub(crate) slow: Option<Duration>,
    /// What happens beside the calls are events.
    pub(crate) notes: bool,
}

/// What was counted of one session, or of several together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) server: u32,
    pub(crate) client: u32,
    /// One for each [`Stage`](crate::stage::Stage).
    pub(crate) stages: Vec<Histogram>,
}

/// Which session, or which service.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) service: String,
    /// The session's number and when its server made its page; `None` for all of a service, and for those that there was
    /// no room to tell apart.
    pub(crate) session: Option<(u64, u64)>,
}

/// What was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) disordered: u64,
    pub(crate) unmatched: u64,
    pub(crate) dropped: u64,
    pub(crate) unread: u64,
}

/// Attaches, lets `watch` look, and detaches.
pub(crate) fn trace<T>(
    scope: &Scope,
    wanted: Wanted,
    watch: impl FnOnce(&Tracer<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    // Only what libbpf says on errors is of use, and those come back as such.
    libbpf_rs::set_print(None);
    let mut object = MaybeUninit::uninit();
    let mut tracer = Tracer::load(&mut object, scope, wanted)?;
    let left_out = tracer.attach(scope, wanted)?;
    tell!("attached. Ctrl-C ends it.");
    left_out.iter().for_each(|line| tell!("{line}"));
    let watched = watch(&tracer);
    tracer.detach();
    watched
}

impl<'a> Tracer<'a> {
    fn load(
        object: &'a mut MaybeUninit<OpenObject>,
        scope: &Scope,
        wanted: Wanted,
    ) -> Result<Self, Error> {
        let kernel = |what| move |source| Error::Kernel { what, source };
        let builder = TraceSkelBuilder::default();
        let mut open = builder.open(object).map_err(kernel("open the programs"))?;
        open.progs.on_closed.set_autoload(wanted.by_session);
        open.progs.on_note.set_autoload(wanted.notes);
        open.progs.on_rate.set_autoload(scope.rate != Rate::Default);
        if let Some(settings) = &mut open.maps.rodata_data {
            settings.only_pid = scope.pid.unwrap_or(0);
            settings.pid_namespace = processes::pid_namespace();
            settings.by_session = wanted.by_session;
            let service = scope.service.as_deref().unwrap_or("");
            // The last one stays zero.
            let last = settings.only_service.len() - 1;
            for (to, from) in settings.only_service.iter_mut().take(last).zip(service.bytes()) {
                *to = from.cast_signed();
            }
            let nanos = |slow: Duration| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX);
            settings.slow = wanted.slow.map_or(u64::MAX, nanos);
        }
        let skel = open.load().map_err(kernel("load the programs into the kernel"))?;
        let stats = Stats::map(skel.maps.stats.as_fd()).map_err(Error::Io)?;
        Ok(Self { skel, stats, links: Vec::new() })
    }

    /// Returns what is to be told of files that were left out.
    fn attach(&mut self, scope: &Scope, wanted: Wanted) -> Result<Vec<String>, Error> {
        let kernel = |what| move |source| Error::Kernel { what, source };
        let targets = targets(scope)?;
        let progs = &self.skel.progs;
        let scheduler = kernel("attach to the scheduler");
        self.links.push(progs.on_switch.attach().map_err(scheduler)?);
        self.links.push(progs.on_waking.attach().map_err(scheduler)?);
        let mut left_out = Vec::new();
        let mut refused = None;
        for target in &targets {
            match self.attach_to(target, scope, wanted) {
                Ok(links) => self.links.extend(links),
                Err(error) => {
                    left_out.push(format!("left out: {}: {error}", target.name.display()));
                    refused = Some(error);
                }
            }
        }
        // Who names a file wants that one; of those that were found, some may be of another version.
        match refused {
            Some(error) if !scope.exe.is_empty() || left_out.len() == targets.len() => Err(error),
            _ => Ok(left_out),
        }
    }

    fn attach_to(&self, target: &Target, scope: &Scope, wanted: Wanted) -> Result<Links, Error> {
        let progs = &self.skel.progs;
        // Open: its process, by which it was found, may end at any time.
        let file = format!("/proc/self/fd/{}", target.file.as_raw_fd());
        let attach = |program: &libbpf_rs::ProgramMut<'_>, probe: &str, cookie: u64| {
            // All processes: those that start later too. The programs leave out what is not asked for.
            let anyone = -1;
            let opts = UsdtOpts { cookie, ..UsdtOpts::default() };
            let link = program.attach_usdt_with_opts(anyone, &file, PROVIDER, probe, opts);
            link.map_err(|source| Error::Kernel { what: "attach to the probes", source })
        };
        let mut links = Links::new();
        match scope.rate {
            Rate::Default => {}
            Rate::Middle => links.push(attach(&progs.on_rate, "rate_5000", 0)?),
            Rate::High => links.push(attach(&progs.on_rate, "rate_50000", 0)?),
            Rate::All => links.push(attach(&progs.on_rate, "rate_all", 0)?),
        }
        if wanted.by_session {
            links.push(attach(&progs.on_closed, "session_closed", 0)?);
        }
        for (cookie, probe, _) in call::NOTES.into_iter().filter(|_| wanted.notes) {
            links.push(attach(&progs.on_note, probe, cookie)?);
        }
        links.push(attach(&progs.on_reply, "reply", 0)?);
        links.push(attach(&progs.on_message, "message", 0)?);
        Ok(links)
    }

    /// All at once: the kernel lets each wait for the same grace period. libbpf keeps account of the probes without a lock,
    /// so that it forgets them one after the other, and what is attached goes when the last descriptor does.
    fn detach(&mut self) {
        // Without them libbpf closes the last ones: that takes longer, and is all.
        let held = links::hold().unwrap_or_default();
        self.links.clear();
        std::thread::scope(|scope| {
            for link in held {
                scope.spawn(move || drop(link));
            }
        });
    }

    /// What was counted so far: by session, or by service. Read from mapped memory, without a system call.
    pub(crate) fn counted(&self) -> BTreeMap<Key, Counted> {
        (0..stats::SLOTS).filter_map(|slot| self.stats.read(slot)).collect()
    }

    /// What could not be counted so far.
    pub(crate) fn losses(&self) -> Losses {
        let Some(bss) = &self.skel.maps.bss_data else { return Losses::default() };
        let types::losses { disordered, unmatched, dropped, unread } = bss.losses;
        Losses { disordered, unmatched, dropped, unread }
    }

    /// Hands each event to `tell`, which says whether to go on, until then or until `is_over`.
    pub(crate) fn listen(
        &self,
        mut tell: impl FnMut(Told) -> bool,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let kernel = |what| move |source| Error::Kernel { what, source };
        let goes_on = std::cell::Cell::new(true);
        let mut builder = RingBufferBuilder::new();
        let hand = |bytes: &[u8]| {
            if let Some(told) = Told::parse(bytes).filter(|_| goes_on.get()) {
                goes_on.set(tell(told));
            }
            0
        };
        builder.add(&self.skel.maps.events, hand).map_err(kernel("open the ring of events"))?;
        let ring = builder.build().map_err(kernel("open the ring of events"))?;
        while goes_on.get() && !is_over() {
            match ring.poll(Duration::from_millis(100)) {
                Ok(()) => {}
                Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Kernel { what: "wait for events", source }),
            }
        }
        Ok(())
    }
}

/// A program or library to attach to.
struct Target {
    name: PathBuf,
    file: File,
}

/// Also those of the other ends, whose half of a sample is needed.
fn targets(scope: &Scope) -> Result<Vec<Target>, Error> {
    if !scope.exe.is_empty() {
        let open = |path: &PathBuf| match File::open(path) {
            Ok(file) => Ok(Target { name: path.clone(), file }),
            Err(source) => Err(Error::Read { path: path.clone(), source }),
        };
        return scope.exe.iter().map(open).collect();
    }
    let found = processes::traceable(&processes::pids()?);
    let is_asked_for = |file: &Traceable| scope.pid.is_none_or(|pid| file.pids.contains(&pid));
    if !found.iter().any(is_asked_for) {
        return Err(Error::NoTarget { pid: scope.pid });
    }
    Ok(found.into_iter().map(|Traceable { name, file, .. }| Target { name, file }).collect())
}
