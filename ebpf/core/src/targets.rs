//! The programs and processes to attach to.

use std::collections::BTreeSet;
use std::fs::File;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::processes::{self, FileId, Traceable};
use crate::scope::Scope;
use crate::sessions::{self, Session};

/// How long a service's new sessions, and new programs, may stay unnoticed if no process starts or ends.
const RESCAN: Duration = Duration::from_secs(5);

/// A program or library to attach to.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) file: Traceable,
    /// The only process, or all that have the file, also later ones.
    pub(crate) pid: Option<u32>,
}

impl Target {
    /// Returns the processes that run it now.
    pub(crate) fn pids(&self) -> &[u32] {
        self.pid.as_ref().map_or(self.file.pids.as_slice(), std::slice::from_ref)
    }
}

/// What was attached to, or tried.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    tried: BTreeSet<(FileId, Option<u32>)>,
    /// What the last scan found: if neither changes, another one finds nothing new.
    pids: Vec<u32>,
    pages: Vec<String>,
    scanned: Option<Instant>,
}

impl Targets {
    /// Finds the targets of a scope when the tracer starts. With `may_wait`, there may be none yet.
    ///
    /// # Errors
    /// [`Error::NoTarget`], and for files that were named [`Error::NoProbes`].
    pub(crate) fn find(&mut self, scope: &Scope, may_wait: bool) -> Result<Vec<Target>, Error> {
        if !scope.exe.is_empty() {
            let mut targets: Vec<Target> =
                scope.exe.iter().map(|path| named(path)).collect::<Result<_, Error>>()?;
            // Who runs them now.
            for found in processes::traceable(&processes::pids()?) {
                for target in targets.iter_mut().filter(|target| target.file.id == found.id) {
                    target.file.pids.clone_from(&found.pids);
                }
            }
            return Ok(targets);
        }
        self.pids = processes::pids()?;
        let found = self.scan(scope);
        let is_requested =
            |target: &Target| scope.pid.is_none_or(|pid| target.pids().contains(&pid));
        // A service may be opened later.
        if !may_wait && scope.service.is_none() && !found.iter().any(is_requested) {
            return Err(Error::NoTarget { pid: scope.pid });
        }
        Ok(found)
    }

    /// Finds the targets that have come into the scope since.
    pub(crate) fn find_new(&mut self, scope: &Scope) -> Vec<Target> {
        if !scope.exe.is_empty() {
            return Vec::new();
        }
        let pids = processes::pids().unwrap_or_default();
        let pages = scope.pid.map_or_else(Vec::new, sessions::pages);
        let is_due = self.scanned.is_none_or(|scanned| scanned.elapsed() >= RESCAN);
        if !is_due && pids == self.pids && pages == self.pages {
            return Vec::new();
        }
        (self.pids, self.pages) = (pids, pages);
        let found = self.scan(scope);
        found.into_iter().filter(|target| !self.tried.contains(&key(target))).collect()
    }

    fn scan(&mut self, scope: &Scope) -> Vec<Target> {
        self.scanned = Some(Instant::now());
        if scope.pid.is_none() && scope.service.is_none() {
            let all = processes::traceable(&self.pids);
            return all.into_iter().map(|file| Target { file, pid: None }).collect();
        }
        let sessions = sessions::open(&self.pids);
        let mut ends: BTreeSet<u32> = scope.pid.into_iter().collect();
        for session in sessions.iter().filter(|session| is_in(scope, session)) {
            ends.extend(session.server.into_iter().chain(session.client));
        }
        let ends: Vec<u32> = ends.into_iter().collect();
        let mut targets = Vec::new();
        for file in processes::traceable(&ends) {
            for pid in file.pids.clone() {
                targets.push(Target { file: file.clone(), pid: Some(pid) });
            }
        }
        targets
    }

    /// Records a target, whether it could be attached to or not.
    pub(crate) fn note(&mut self, target: &Target) {
        self.tried.insert(key(target));
    }

    /// Returns whether there is any.
    pub(crate) fn has_any(&self) -> bool {
        !self.tried.is_empty()
    }
}

/// Returns whether a session is in the scope.
pub(crate) fn is_in(scope: &Scope, session: &Session) -> bool {
    let is_end = |pid| [session.server, session.client].contains(&Some(pid));
    scope.service.as_ref().is_none_or(|service| *service == session.service)
        && scope.pid.is_none_or(is_end)
}

fn key(target: &Target) -> (FileId, Option<u32>) {
    (target.file.id.clone(), target.pid)
}

fn named(path: &std::path::Path) -> Result<Target, Error> {
    let unread = |source| Error::Read { path: path.into(), source };
    let file = File::open(path).and_then(|file| Traceable::open(path, file)).map_err(unread)?;
    if file.probes.is_empty() {
        return Err(Error::NoProbes { path: path.into() });
    }
    Ok(Target { file, pid: None })
}
