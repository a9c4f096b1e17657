//! Watches the clients' processes for their end.
//!
//! One descriptor watches a process, however many sessions it has. When descriptors are short, further processes are
//! not watched: their sockets report their end, unless another process holds a copy. Such sessions are checked in
//! turn when another client arrives, so as not to wake a sleeping reactor.

use std::collections::{BTreeMap, VecDeque};

use super::{Reactor, watch};
use crate::server::fd_budget::FdBudget;
use crate::server::source::{Place, Source};
use crate::transport::peer::Process;
use crate::transport::poll::Trigger;
use crate::transport::prelude::*;

/// Unwatched sessions checked per arriving client.
const MAX_CHECKED: usize = 4;

/// The processes with sessions, and the sessions whose processes are not watched.
#[derive(Default)]
pub(in crate::server) struct Peers {
    watched: BTreeMap<u32, Peer>,
    /// Includes sessions that are over by now.
    unwatched: VecDeque<Place>,
}

struct Peer {
    process: Process,
    places: Vec<Place>,
}

impl Peers {
    /// Returns whether a process with this number is watched and alive: a connected client with this pid is that
    /// process.
    pub(in crate::server) fn watches(&self, pid: u32) -> bool {
        self.watched.get(&pid).is_some_and(|peer| !peer.process.has_exited())
    }

    /// Returns how many descriptors this holds.
    pub(super) fn held(&self) -> usize {
        self.watched.len()
    }
}

impl Reactor {
    /// Ends a session with its client's process, which is already watched or now watched through `process`.
    pub(super) fn watch_process(&mut self, slot: usize, process: Option<Process>) {
        let Some(entry) = self.slots.get_mut(slot) else { return };
        let place = entry.place;
        let Some(session) = entry.session() else { return };
        if session.link().process().is_some() {
            return;
        }
        let pid = session.caller.pid;
        match (pid, process) {
            (Some(pid), Some(process)) => self.join_process(place, pid, process),
            // Unless that process is dead and another one may have its number by now.
            (Some(pid), None) if self.peers.watches(pid) => self.share_watch(place, pid),
            _ => self.peers.unwatched.push_back(place),
        }
    }

    fn share_watch(&mut self, place: Place, pid: u32) {
        if let Some(peer) = self.peers.watched.get_mut(&pid) {
            peer.places.push(place);
        }
    }

    fn join_process(&mut self, place: Place, pid: u32, process: Process) {
        // Another process had this number; its end was not reported yet.
        self.remove_process(pid);
        let source = Source::Peer(pid);
        if watch(&mut self.poller, process.as_object(), source, Trigger::Level).is_err() {
            return self.peers.unwatched.push_back(place);
        }
        self.peers.watched.insert(pid, Peer { process, places: vec![place] });
    }

    /// Handles an event of a process that may have ended.
    pub(super) fn on_process(&mut self, pid: u32) {
        if !self.peers.watches(pid) {
            self.remove_process(pid);
        }
    }

    /// Ends the sessions of the process that had this number.
    fn remove_process(&mut self, pid: u32) {
        let Some(peer) = self.peers.watched.remove(&pid) else { return };
        let _ = self.poller.delete(peer.process.as_object());
        for place in peer.places {
            if self.is_current(place) {
                self.peer_gone(place.slot);
            }
        }
    }

    /// Stops watching a client's process for a session that is over.
    pub(super) fn leave_process(&mut self, place: Place, pid: Option<u32>) {
        let Some(pid) = pid else { return };
        let Some(peer) = self.peers.watched.get_mut(&pid) else { return };
        if let Some(at) = peer.places.iter().rposition(|other| *other == place) {
            peer.places.swap_remove(at);
        }
        if peer.places.is_empty() {
            if let Some(peer) = self.peers.watched.remove(&pid) {
                let _ = self.poller.delete(peer.process.as_object());
            }
        }
    }

    /// Checks some of the sessions whose processes are not watched.
    pub(super) fn check_unwatched(&mut self) {
        for _ in 0..MAX_CHECKED {
            let Some(place) = self.peers.unwatched.pop_front() else { return };
            if !self.is_current(place) {
                continue;
            }
            let Some(session) = self.session(place.slot) else { continue };
            let pid = session.caller.pid;
            // The check closes its descriptor again; without a descriptor, it is impossible.
            let Some(process) = session.link().find_process() else {
                return self.peers.unwatched.push_back(place);
            };
            if process.has_exited() {
                self.peer_gone(place.slot);
                continue;
            }
            match pid {
                Some(pid) if self.peers.watches(pid) => self.share_watch(place, pid),
                Some(pid)
                    if FdBudget::now(process.as_object(), self.held()).watches_processes() =>
                {
                    self.join_process(place, pid, process);
                }
                _ => self.peers.unwatched.push_back(place),
            }
        }
    }
}
