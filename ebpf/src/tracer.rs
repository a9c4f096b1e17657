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
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject, RingBufferBuilder};

use crate::args::{Rate, Scope};
use crate::error::Error;
use crate::histogram::Histogram;
use crate::processes::{self, PROVIDER};
use skeleton::{TraceSkel, TraceSkelBuilder, types};

/// Threads that detach: the kernel waits for a grace period each time.
type Links = Vec<Link>;

/// What is traced, until it is dropped.
pub(crate) struct Tracer<'a> {
    skel: TraceSkel<'a>,
    links: Links,
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
    /// The session's number and when its server made its page; `None` for all of a service.
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

/// Attaches, lets `watch` look, and detaches. Calls that take `slow` are events.
pub(crate) fn trace<T>(
    scope: &Scope,
    slow: Option<Duration>,
    watch: impl FnOnce(&Tracer<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    // Only what libbpf says on errors is of use, and those come back as such.
    libbpf_rs::set_print(None);
    let mut object = MaybeUninit::uninit();
    let mut tracer = Tracer::load(&mut object, scope, slow)?;
    tracer.attach(scope)?;
    eprintln!("attached. Ctrl-C ends it.");
    let watched = watch(&tracer);
    tracer.detach();
    watched
}

impl<'a> Tracer<'a> {
    fn load(
        object: &'a mut MaybeUninit<OpenObject>,
        scope: &Scope,
        slow: Option<Duration>,
    ) -> Result<Self, Error> {
        let kernel = |what| move |source| Error::Kernel { what, source };
        let builder = TraceSkelBuilder::default();
        let mut open = builder.open(object).map_err(kernel("open the programs"))?;
        if let Some(settings) = &mut open.maps.rodata_data {
            settings.only_pid = scope.pid.unwrap_or(0);
            let service = scope.service.as_deref().unwrap_or("");
            // The last one stays zero.
            let last = settings.only_service.len() - 1;
            for (to, from) in settings.only_service.iter_mut().take(last).zip(service.bytes()) {
                *to = from.cast_signed();
            }
            settings.slow =
                slow.map_or(u64::MAX, |slow| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX));
        }
        let skel = open.load().map_err(kernel("load the programs into the kernel"))?;
        Ok(Self { skel, links: Vec::new() })
    }

    fn attach(&mut self, scope: &Scope) -> Result<(), Error> {
        let kernel = |what| move |source| Error::Kernel { what, source };
        let files = files(scope)?;
        let progs = &self.skel.progs;
        let scheduler = kernel("attach to the scheduler");
        self.links.push(progs.on_switch.attach().map_err(scheduler)?);
        self.links.push(progs.on_waking.attach().map_err(scheduler)?);
        let rate = match scope.rate {
            Rate::Default => None,
            Rate::High => Some("rate_50000"),
            Rate::All => Some("rate_all"),
        };
        for file in files {
            let attach = |program: &libbpf_rs::ProgramMut<'_>, probe: &str| {
                // All processes: those that start later too. The programs leave out what is not asked for.
                let anyone = -1;
                let link = program.attach_usdt(anyone, &file, PROVIDER, probe);
                link.map_err(kernel("attach to the probes"))
            };
            if let Some(rate) = rate {
                self.links.push(attach(&progs.on_rate, rate)?);
            }
            self.links.push(attach(&progs.on_reply, "reply")?);
            self.links.push(attach(&progs.on_message, "message")?);
        }
        Ok(())
    }

    /// All at once: the kernel lets each wait for the same grace period.
    fn detach(&mut self) {
        std::thread::scope(|scope| {
            for link in self.links.drain(..) {
                scope.spawn(move || drop(link));
            }
        });
    }

    /// What was counted so far: by session, or by service.
    pub(crate) fn counted(&self, by_session: bool) -> BTreeMap<Key, Counted> {
        let mut counted: BTreeMap<Key, Counted> = BTreeMap::new();
        let Some(bss) = &self.skel.maps.bss_data else { return counted };
        for (slot, session) in bss.stats.iter().enumerate() {
            if session.stages.iter().all(|stage| stage.count == 0) {
                continue;
            }
            let number = (session.key.number, session.key.created);
            let service = if slot == 0 { "(others)".to_owned() } else { text(&session.service) };
            let key = Key { service, session: by_session.then_some(number) };
            let stages = session.stages.iter().map(histogram);
            let into = counted.entry(key).or_default();
            into.stages.resize_with(session.stages.len(), Histogram::default);
            for (sum, stage) in into.stages.iter_mut().zip(stages) {
                sum.add(&stage);
            }
            (into.server, into.client) = (session.server, session.client);
        }
        counted
    }

    /// What could not be counted so far.
    pub(crate) fn losses(&self) -> Losses {
        let Some(bss) = &self.skel.maps.bss_data else { return Losses::default() };
        let types::losses { disordered, unmatched, dropped, unread } = bss.losses;
        Losses { disordered, unmatched, dropped, unread }
    }

    /// Hands each slow call to `tell`, which says whether to go on, until then or until `is_over`.
    pub(crate) fn listen(
        &self,
        mut tell: impl FnMut(&[u8]) -> bool,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let kernel = |what| move |source| Error::Kernel { what, source };
        let goes_on = std::cell::Cell::new(true);
        let mut builder = RingBufferBuilder::new();
        let hand = |bytes: &[u8]| {
            if goes_on.get() {
                goes_on.set(tell(bytes));
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

/// The programs and libraries to attach to: also those of the other ends, whose half of a sample is needed.
fn files(scope: &Scope) -> Result<Vec<PathBuf>, Error> {
    if !scope.exe.is_empty() {
        return Ok(scope.exe.clone());
    }
    let mut found = processes::traceable(&processes::pids()?);
    if let Some(pid) = scope.pid
        && !found.iter().any(|file| file.pids.contains(&pid))
    {
        found.clear();
    }
    if found.is_empty() {
        return Err(Error::NoTarget { pid: scope.pid });
    }
    Ok(found.into_iter().map(|file| file.path).collect())
}

fn histogram(of: &types::histogram) -> Histogram {
    Histogram::new(of.count, of.sum, of.max, &of.buckets)
}

/// A text that ends at the first zero.
fn text(bytes: &[i8]) -> String {
    let bytes = bytes.iter().take_while(|byte| **byte != 0);
    let bytes: Vec<u8> = bytes.map(|byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

const _: () = assert!(size_of::<[u64; crate::histogram::BUCKETS]>() == size_of::<[u64; 304]>());
