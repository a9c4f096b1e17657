//! Sessions of any process of this machine, seen from outside (feature `observe`).
//!
//! It takes no registry and no help: a session's pages are found by their names in what processes have mapped, and read.
//! What stands in a page is what its owner says: it may be a lie, and nothing here is more than display.
//!
//! On Linux it takes the right to look into the other processes: root's, or that of the same user where
//! `kernel.yama.ptrace_scope` is 0. Windows shows nobody what another process has mapped
//! ([`ObserveError::Unavailable`]).
//!
//! ```no_run
//! use bellwire::observe::Scanner;
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

pub use crate::transport::observe::ObserveError;
pub use bellwire_core::wire::{CloseReason, Counter, Counters, SeenPage};

use crate::transport::observe::{self, PageMap, View};

/// Finds sessions, and keeps what it has mapped of them from one scan to the next.
#[derive(Debug, Default)]
pub struct Scanner {
    views: HashMap<(u64, u64), View>,
}

/// What a scan found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Scan {
    /// The sessions, by service, server and number.
    pub sessions: Vec<SeenSession>,
    /// Pages that were found and may not be read, and why the first of them.
    pub denied: Option<(usize, ObserveError)>,
}

/// A session, seen from outside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenSession {
    /// Its service.
    pub service: ServiceName,
    /// Its number, unique in the server's process.
    pub number: u64,
    /// The server's end; `None` where its process may not be looked into.
    pub server: Option<SeenEnd>,
    /// The client's end.
    pub client: Option<SeenEnd>,
}

/// One end of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenEnd {
    /// Its process, as this one sees it.
    pub pid: u32,
    /// What the process calls itself.
    pub command: String,
    /// What stands in its page.
    pub page: SeenPage,
}

/// Whose session it is: the server's process; or one end alone, whose peer is not known, and its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Server(u32),
    Alone(u32, (u64, u64)),
}

impl Scanner {
    /// The sessions that there are now.
    ///
    /// # Errors
    /// [`ObserveError`] when this system shows none. A process that may not be looked into is no error: see
    /// [`Scan::denied`].
    pub fn scan(&mut self) -> Result<Scan, ObserveError> {
        let maps = observe::pages()?;
        let there: HashSet<_> = maps.iter().map(|map| map.object).collect();
        self.views.retain(|object, _| there.contains(object));
        let servers = servers(&maps);
        let mut commands = HashMap::new();
        let mut sessions: BTreeMap<(ServiceName, Whose, u64), SeenSession> = BTreeMap::new();
        let mut denied = None;
        for map in maps.iter().filter(|map| map.is_owner) {
            let page = match self.read(map) {
                Ok(Some(page)) => page,
                Ok(None) | Err(ObserveError::Gone) => continue,
                Err(error) => {
                    denied.get_or_insert((0, error)).0 += 1;
                    continue;
                }
            };
            let command = commands
                .entry(map.pid)
                .or_insert_with(|| observe::command(map.pid).unwrap_or_default());
            let whose = match (page.role, servers.get(&map.object)) {
                (Role::Server, _) => Whose::Server(map.pid),
                (Role::Client, Some(server)) => Whose::Server(*server),
                (Role::Client, None) => Whose::Alone(map.pid, map.object),
            };
            let (service, number, role) = (page.service, page.session, page.role);
            let end = SeenEnd { pid: map.pid, command: command.clone(), page };
            let none = || SeenSession { service, number, server: None, client: None };
            let session = sessions.entry((service, whose, number)).or_insert_with(none);
            let place = |session: &mut SeenSession| match role {
                Role::Server => session.server.replace(end),
                Role::Client => session.client.replace(end),
            };
            // A process with two servers of one service has numbers twice: which end belongs to which is not known.
            if let Some(other) = place(session) {
                let mut alone = none();
                match role {
                    Role::Server => alone.server = Some(other),
                    Role::Client => alone.client = Some(other),
                }
                sessions.insert((service, Whose::Alone(map.pid, map.object), number), alone);
            }
        }
        Ok(Scan { sessions: sessions.into_values().collect(), denied })
    }

    /// What stands in a page now; `None` when it is no page after all.
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

/// Which process is the server of each client's page: the one that has mapped it and owns the other page of a session of
/// that name. Observers have mapped it too.
fn servers(maps: &[PageMap]) -> HashMap<(u64, u64), u32> {
    let name = |map: &PageMap, role| map.name.strip_prefix(role).map(str::to_owned);
    let owned = maps.iter().filter(|map| map.is_owner);
    let owned: HashSet<_> =
        owned.filter_map(|map| Some((map.pid, name(map, "server-")?))).collect();
    let read = maps.iter().filter(|map| !map.is_owner);
    read.filter_map(|map| {
        let session = name(map, "client-")?;
        owned.contains(&(map.pid, session)).then_some((map.object, map.pid))
    })
    .collect()
}
