//! Display names of cgroups, from sources that the operator names.
//!
//! Sources may be slow, so threads ask them and nobody waits: a cgroup has a name made of its path, and is *pending*, until one has
//! answered.

mod answer;
mod engine;
mod kubelet;
mod patterns;
mod source;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellwire_apps::App;
use bellwire_cgroups::scan::{Labels, owner_of, shortened};
use bellwire_cgroups::{CgroupDetails, CgroupEntry, MAX_LABELS, Options};
use bellwire_process::Interrupt;

use self::answer::{Answer, Name};
pub(crate) use self::patterns::Patterns;
use self::source::Source;
pub(crate) use self::source::Spec;
use super::log;
use crate::exit::{Exit, Failure};
use crate::out::WARN;
use crate::provide::args::Provide;

/// Threads that ask.
const WORKERS: usize = 4;
/// How often a source may say "later" until the cgroup is no longer pending. Further attempts continue.
const MAX_PENDING_RETRIES: u32 = 6;
/// The times between two questions: doubled from the first to the last while the answer is "later".
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// A name that nobody wants for so long is forgotten.
const FORGET: Duration = Duration::from_secs(600);

/// Names of cgroups, and the rules of the operator for them.
#[derive(Debug)]
pub(crate) struct Names {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// In the order in which they are asked.
    sources: Vec<Source>,
    rename: Option<Patterns>,
    enable: Option<Patterns>,
    enable_names: Option<Patterns>,
    limit: Duration,
    max_age: Duration,
    /// Where there are sources.
    interrupt: Option<Interrupt>,
    inner: Mutex<Inner>,
    /// A question was queued, or the end has come.
    work: Condvar,
    /// A question was answered.
    done: Condvar,
}

#[derive(Debug)]
struct Inner {
    known: HashMap<String, Known>,
    queue: VecDeque<String>,
    /// Questions that are being asked.
    busy: usize,
    stopping: bool,
    swept: Instant,
}

/// What is known of one cgroup.
#[derive(Debug)]
struct Known {
    /// The cgroup that was there when it was asked for, if its caller knows it.
    id: Option<u64>,
    state: NameState,
    /// Whether it is in the queue, or being asked for.
    queued: bool,
    /// Whether another cgroup took its place since it was queued.
    replaced: bool,
    /// When to ask again.
    due: Instant,
    /// How often the answer was "later" since the last other one.
    later: u32,
    wanted: Instant,
}

#[derive(Clone, Debug)]
enum NameState {
    /// No source has answered yet.
    Nothing,
    Name(Arc<Name>),
    /// No source knows its name.
    NoName,
    Excluded,
}

/// A cgroup's properties that depend on its name.
struct Named<'a> {
    name: &'a mut String,
    labels: &'a mut Labels,
    pending: bool,
    enabled: bool,
}

impl Names {
    /// Starts asking the sources of a command line, if it has any.
    pub(super) fn of(args: &Provide) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::of(Exit::Failed, "cannot ask for names", &error);
        let interrupt = || Interrupt::new().map_err(failed);
        let now = Instant::now();
        let (known, queue) = (HashMap::new(), VecDeque::new());
        let shared = Arc::new(Shared {
            sources: args.names.iter().cloned().map(Source::new).collect(),
            rename: args.rename.clone(),
            enable: args.enable.clone(),
            enable_names: args.enable_names.clone(),
            limit: args.names_timeout,
            max_age: args.names_age,
            interrupt: if args.names.is_empty() { None } else { Some(interrupt()?) },
            inner: Mutex::new(Inner { known, queue, busy: 0, stopping: false, swept: now }),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        for source in &shared.sources {
            source.reload().map_err(|why| Failure::new(Exit::Failed, why))?;
        }
        let names = Self { shared };
        for _ in 0..if names.shared.sources.is_empty() { 0 } else { WORKERS } {
            let shared = Arc::clone(&names.shared);
            let thread = thread::Builder::new().name("bellwire-names".into());
            thread.spawn(move || shared.work()).map_err(failed)?;
        }
        Ok(names)
    }

    /// Takes changed files into account, and forgets what nobody wants any more. To be called before many are named.
    pub(super) fn refresh(&self) {
        let now = Instant::now();
        let mut changed = false;
        for source in &self.shared.sources {
            match source.reload() {
                Ok(has) => changed |= has,
                Err(why) => source.report(&why),
            }
        }
        let mut inner = self.shared.lock();
        if changed {
            inner.known.values_mut().for_each(|known| known.due = now);
        }
        if now.duration_since(inner.swept) >= FORGET {
            inner.swept = now;
            inner.known.retain(|_, known| now.duration_since(known.wanted) < FORGET);
        }
    }

    /// Waits until everything was asked for once, at most for `limit`; returns whether anything was.
    pub(super) fn wait_for_names(&self, limit: Duration) -> bool {
        let inner = self.shared.lock();
        let asking = |inner: &mut Inner| inner.busy > 0 || !inner.queue.is_empty();
        drop(self.shared.done.wait_timeout_while(inner, limit, asking));
        !self.shared.sources.is_empty()
    }

    /// Names a cgroup of a scan.
    pub(super) fn name_entry(&self, entry: &mut CgroupEntry) {
        let (name, labels) = (&mut entry.name, &mut entry.labels);
        let mut named = Named { name, labels, pending: false, enabled: entry.enabled };
        self.name(&entry.path, Some(entry.id), &mut named);
        (entry.options, entry.enabled) =
            (entry.options.with(Options::PENDING, named.pending), named.enabled);
    }

    /// Names a cgroup that was looked up.
    pub(super) fn name_details(&self, path: &str, details: &mut CgroupDetails) {
        let (name, labels) = (&mut details.name, &mut details.labels);
        let mut named = Named { name, labels, pending: false, enabled: details.enabled };
        self.name(path, Some(details.id), &mut named);
        (details.options, details.enabled) =
            (details.options.with(Options::PENDING, named.pending), named.enabled);
    }

    /// Names the cgroup of a process, if it is known.
    pub(super) fn name_app(&self, app: &mut App) {
        if !app.cgroup.is_empty() {
            let (name, labels) = (&mut app.cgroup_name, &mut app.labels);
            let mut named = Named { name, labels, pending: false, enabled: true };
            self.name(&app.cgroup, None, &mut named);
            app.pending = named.pending;
        }
    }

    /// Names the cgroup of a path. What lies inside a container has the container's name and labels.
    fn name(&self, path: &str, id: Option<u64>, named: &mut Named<'_>) {
        let shared = &self.shared;
        if !shared.sources.is_empty() {
            let (owner, inside) = owner_of(path);
            let (state, pending) = shared.lookup(owner, id.filter(|_| inside.is_empty()));
            named.take(state, inside);
            named.pending = pending;
        }
        let mean = |patterns: &Option<Patterns>, text: &str| {
            patterns.as_ref().is_none_or(|patterns| patterns.mean(text))
        };
        named.enabled &= mean(&shared.enable, path) && mean(&shared.enable_names, named.name);
    }
}

impl Named<'_> {
    /// Takes what is known of the container, machine or unit, inside of which the cgroup has the path `inside`.
    fn take(&mut self, state: NameState, inside: &str) {
        match state {
            NameState::Name(known) => {
                *self.name = match inside {
                    "" => known.name.clone(),
                    inside => shortened(format!("{}_{}", known.name, inside.replace('/', "_"))),
                };
                let room = MAX_LABELS.saturating_sub(self.labels.len());
                self.labels.extend(known.labels.iter().take(room).cloned());
            }
            NameState::Excluded => self.enabled = false,
            NameState::Nothing | NameState::NoName => {}
        }
    }
}

impl Shared {
    /// Returns what is known of a cgroup, and whether more is expected soon; has it asked for if it is time.
    fn lookup(&self, path: &str, id: Option<u64>) -> (NameState, bool) {
        let now = Instant::now();
        let mut inner = self.lock();
        let inner = &mut *inner;
        if !inner.known.contains_key(path) {
            inner.known.insert(path.to_owned(), Known::new(now));
        }
        let Some(known) = inner.known.get_mut(path) else { return (NameState::NoName, false) };
        if let Some(id) = id
            && known.id.replace(id).is_some_and(|before| before != id)
        {
            // Another one took its place.
            let (id, queued) = (Some(id), known.queued);
            *known = Known { id, queued, replaced: queued, ..Known::new(now) };
        }
        known.wanted = now;
        if !known.queued && known.due <= now {
            let subject = source::Subject::of(path);
            let concerns = |source: &Source| source.concerns(&subject, self.rename.as_ref());
            if self.sources.iter().any(concerns) {
                known.queued = true;
                inner.queue.push_back(path.to_owned());
                self.work.notify_one();
            } else {
                known.answered(Answer::Unknown, now + self.max_age);
            }
        }
        (known.state.clone(), known.is_pending())
    }

    /// What each thread does.
    fn work(&self) {
        let mut inner = self.lock();
        while !inner.stopping {
            let Some(path) = inner.queue.pop_front() else {
                inner = self.work.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            inner.busy += 1;
            drop(inner);
            let answer = self.ask(&path);
            inner = self.lock();
            inner.busy -= 1;
            let due = Instant::now() + self.max_age;
            if let Some(known) = inner.known.get_mut(&path) {
                known.queued = false;
                if !std::mem::take(&mut known.replaced) {
                    known.answered(answer, due);
                }
            }
            self.done.notify_all();
        }
    }

    /// Asks one source after the other until one knows.
    fn ask(&self, path: &str) -> Answer {
        let Some(interrupt) = &self.interrupt else { return Answer::Unknown };
        let subject = source::Subject::of(path);
        let mut found = Answer::Unknown;
        for source in &self.sources {
            if !source.concerns(&subject, self.rename.as_ref()) {
                continue;
            }
            match source.ask(&subject, self.limit, interrupt) {
                Ok(Answer::Unknown) => {}
                Ok(Answer::Later) => found = Answer::Later,
                Ok(answer) => {
                    source.recovered();
                    return answer;
                }
                Err(why) => {
                    source.report(&why);
                    found = Answer::Later;
                }
            }
        }
        found
    }

    /// No code that holds this lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn new(now: Instant) -> Self {
        let (state, queued, replaced) = (NameState::Nothing, false, false);
        Self { id: None, state, queued, replaced, due: now, later: 0, wanted: now }
    }

    /// Takes an answer, to be asked for again at `due`, or sooner if it is "later". A name stays until there is another one.
    fn answered(&mut self, answer: Answer, due: Instant) {
        if answer == Answer::Later {
            let wait = FIRST_RETRY
                .saturating_mul(1 << self.later.min(MAX_PENDING_RETRIES))
                .min(LAST_RETRY);
            self.later = self.later.saturating_add(1);
            self.due = Instant::now() + wait;
            return;
        }
        (self.later, self.due) = (0, due);
        self.state = match answer {
            Answer::Known(name) => NameState::Name(Arc::new(name)),
            Answer::Excluded => NameState::Excluded,
            Answer::Unknown | Answer::Later => NameState::NoName,
        };
    }

    fn is_pending(&self) -> bool {
        matches!(self.state, NameState::Nothing) && self.later < MAX_PENDING_RETRIES
    }
}

impl Source {
    /// Reports a failure, unless it is the one that was reported last.
    fn report(&self, why: &str) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.as_deref() != Some(why) {
            log(format_args!("{WARN}no names{WARN:#}: {why}"));
            *reported = Some(why.to_owned());
        }
    }

    fn recovered(&self) {
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.stopping = true;
        inner.queue.clear();
        drop(inner);
        self.shared.work.notify_all();
        if let Some(interrupt) = &self.shared.interrupt {
            interrupt.end();
        }
        // Commands end at once, with what they started; a socket may take longer, and needs no end.
        self.wait_for_names(FIRST_RETRY);
    }
}
