//! Watches the clients' processes for their end.
//!
//! One descriptor watches a process, however many sessions it has. When descriptors are short, further processes are
//! not watched: their sockets report their end, unless another process holds a copy. Such sessions are checked in
//! turn when another client arrives, so as not to wake a sleeping reactor.

use std::collections::{BTreeMap, VecDeque};

use super::{Reactor, watch};
use crate::server::fd_budget::FdBudget;
use crate::server::source::{SlotKey, Source};
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
    unwatched: VecDeque<SlotKey>,
}

struct Peer {
    process: Process,
    keys: Vec<SlotKey>,
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
        let key = entry.key;
        let Some(session) = entry.session() else { return };
        if session.link().process().is_some() {
            return;
        }
        let pid = session.caller.pid;
        match (pid, process) {
            (Some(pid), Some(process)) => self.join_process(key, pid, process),
            // Unless that process is dead and another one may have its number by now.
            (Some(pid), None) if self.peers.watches(pid) => self.share_watch(key, pid),
            _ => self.peers.unwatched.push_back(key),
        }
    }

    fn share_watch(&mut self, key: SlotKey, pid: u32) {
        if let Some(peer) = self.peers.watched.get_mut(&pid) {
            peer.keys.push(key);
        }
    }

    fn join_process(&mut self, key: SlotKey, pid: u32, process: Process) {
        // Another process had this number; its end was not reported yet.
        self.remove_process(pid);
        let source = Source::Peer(pid);
        if watch(&mut self.poller, process.as_object(), source, Trigger::Level).is_err() {
            return self.peers.unwatched.push_back(key);
        }
        self.peers.watched.insert(pid, Peer { process, keys: vec![key] });
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
        for key in peer.keys {
            if self.is_current(key) {
                self.peer_gone(key.slot);
            }
        }
    }

    /// Stops watching a client's process for a session that is over.
    pub(super) fn leave_process(&mut self, key: SlotKey, pid: Option<u32>) {
        let Some(pid) = pid else { return };
        let Some(peer) = self.peers.watched.get_mut(&pid) else { return };
        if let Some(at) = peer.keys.iter().rposition(|other| *other == key) {
            peer.keys.swap_remove(at);
        }
        if peer.keys.is_empty() {
            if let Some(peer) = self.peers.watched.remove(&pid) {
                let _ = self.poller.delete(peer.process.as_object());
            }
        }
    }

    /// Checks some of the sessions whose processes are not watched.
    pub(super) fn check_unwatched(&mut self) {
        for _ in 0..MAX_CHECKED {
            let Some(key) = self.peers.unwatched.pop_front() else { return };
            if !self.is_current(key) {
                continue;
            }
            let Some(session) = self.session(key.slot) else { continue };
            let pid = session.caller.pid;
            // The check closes its descriptor again; without a descriptor, it is impossible.
            let Some(process) = session.link().find_process() else {
                return self.peers.unwatched.push_back(key);
            };
            if process.has_exited() {
                self.peer_gone(key.slot);
                continue;
            }
            match pid {
                Some(pid) if self.peers.watches(pid) => self.share_watch(key, pid),
                Some(pid)
                    if FdBudget::now(process.as_object(), self.held()).watches_processes() =>
                {
                    self.join_process(key, pid, process);
                }
                _ => self.peers.unwatched.push_back(key),
            }
        }
    }
}
