//! Inspects the sessions of all processes of this machine from outside.
//!
//! It needs no registry and no cooperation: it finds the pages of a session by the names of the memory that processes
//! have mapped, and reads them. The content of a page is its owner's claim and may be false; use it only for display.
//!
//! On Linux, it needs permission to inspect the other processes: root's, or that of the same user where
//! `kernel.yama.ptrace_scope` is 0. Windows shows no process what another one has mapped
//! ([`ObserveError::Unavailable`]).
//!
//! ```no_run
//! use bellwire_observe::Scanner;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut scanner = Scanner::default();
//! for session in scanner.scan()?.sessions {
//!     println!("{} {}", session.service, session.number);
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use bellwire_core::ServiceName;
use bellwire_core::wire::{PAGE_SIZE, Role};

pub use bellwire_core::wire::{CloseReason, Counter, Counters, SeenPage};

mod found;
#[cfg(not(windows))]
#[path = "linux.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;

pub use found::{ObserveError, PageMap};
pub use system::{View, pages};

/// Finds sessions, and keeps their mappings from one scan to the next.
#[derive(Debug, Default)]
pub struct Scanner {
    views: HashMap<(u64, u64), View>,
}

/// The result of a scan.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Scan {
    /// The sessions, sorted by service, server and number.
    pub sessions: Vec<SeenSession>,
    /// The number of pages that were found but could not be read, and the error of the first.
    pub denied: Option<(usize, ObserveError)>,
    /// The number of processes that this one may not inspect, such as those of other users: with sessions or without.
    pub hidden: usize,
}

/// A session as seen from outside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenSession {
    /// Its service.
    pub service: ServiceName,
    /// Its number, unique in the server's process.
    pub number: u64,
    /// The server's end; `None` if its process cannot be inspected.
    pub server: Option<SeenEnd>,
    /// The client's end.
    pub client: Option<SeenEnd>,
}

/// One end of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenEnd {
    /// Its process id, as this process sees it.
    pub pid: u32,
    /// The name that the process gives itself.
    pub command: String,
    /// The content of its page.
    pub page: SeenPage,
}

/// Identifies a session: by the server's process, or, for an end whose peer is unknown, by its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SessionOwner {
    Server(u32),
    Alone(u32, (u64, u64)),
}

impl Scanner {
    /// Returns the current sessions.
    ///
    /// # Errors
    /// [`ObserveError`] when this system shows none. A process that cannot be inspected is no error: see
    /// [`Scan::denied`].
    pub fn scan(&mut self) -> Result<Scan, ObserveError> {
        let (maps, hidden) = pages()?;
        let there: HashSet<_> = maps.iter().map(|map| map.object).collect();
        self.views.retain(|object, _| there.contains(object));
        let (mut pages, mut denied) = (Vec::new(), None);
        for map in maps.iter().filter(|map| map.is_owner) {
            match self.read(map) {
                Ok(Some(page)) => pages.push((map, page)),
                Ok(None) | Err(ObserveError::Gone) => {}
                Err(error) => denied.get_or_insert((0, error)).0 += 1,
            }
        }
        let servers = servers(&maps, &pages);
        let mut commands = HashMap::new();
        let mut sessions: BTreeMap<(ServiceName, SessionOwner, u64), SeenSession> = BTreeMap::new();
        for (map, page) in pages {
            let command = commands
                .entry(map.pid)
                .or_insert_with(|| system::command(map.pid).unwrap_or_default());
            let owner = match (page.role, servers.get(&map.object)) {
                (Role::Server, _) => SessionOwner::Server(map.pid),
                (Role::Client, Some(server)) => SessionOwner::Server(*server),
                (Role::Client, None) => SessionOwner::Alone(map.pid, map.object),
            };
            let (service, number, role) = (page.service, page.session, page.role);
            let end = SeenEnd { pid: map.pid, command: command.clone(), page };
            let none = || SeenSession { service, number, server: None, client: None };
            let session = sessions.entry((service, owner, number)).or_insert_with(none);
            let place = |session: &mut SeenSession| match role {
                Role::Server => session.server.replace(end),
                Role::Client => session.client.replace(end),
            };
            // A process with two servers of one service uses numbers twice: the ends cannot be matched.
            if let Some(other) = place(session) {
                let mut alone = none();
                match role {
                    Role::Server => alone.server = Some(other),
                    Role::Client => alone.client = Some(other),
                }
                sessions.insert((service, SessionOwner::Alone(map.pid, map.object), number), alone);
            }
        }
        Ok(Scan { sessions: sessions.into_values().collect(), denied, hidden })
    }

    /// Returns the current content of a page; `None` if it is not a page after all.
    fn read(&mut self, map: &PageMap) -> Result<Option<SeenPage>, ObserveError> {
        let view = match self.views.entry(map.object) {
            std::collections::hash_map::Entry::Occupied(view) => view.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => place.insert(View::open(map)?),
        };
        let mut bytes = [0; PAGE_SIZE];
        if let Err(error) = view.read(&mut bytes) {
            self.views.remove(&map.object);
            return Err(error);
        }
        Ok(SeenPage::parse(&bytes))
    }
}

/// Returns the server's process for each client's page: the one that has mapped it and owns the other page of that
/// session. Observers have mapped it too.
fn servers(maps: &[PageMap], pages: &[(&PageMap, SeenPage)]) -> HashMap<(u64, u64), u32> {
    let end = |pid: u32, page: &SeenPage| (pid, page.service, page.session);
    let of = |role| pages.iter().filter(move |(_, page)| page.role == role);
    let owned: HashSet<_> = of(Role::Server).map(|(map, page)| end(map.pid, page)).collect();
    let clients: HashMap<_, _> = of(Role::Client).map(|(map, page)| (map.object, page)).collect();
    let read = maps.iter().filter(|map| !map.is_owner);
    read.filter_map(|map| {
        let page = clients.get(&map.object)?;
        owned.contains(&end(map.pid, page)).then_some((map.object, map.pid))
    })
    .collect()
}
