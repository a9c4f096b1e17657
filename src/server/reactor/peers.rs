//! Whose sessions are open: the clients' processes, whose ends are waited for.
//!
//! A process is watched by one descriptor, however many sessions it has. Where descriptors are short, one that is not
//! watched yet is not: its socket tells of its end, unless another process has a copy of that. Such sessions are looked
//! at in turn when somebody else comes, since a reactor that sleeps is not to be woken for them.

use std::collections::{BTreeMap, VecDeque};

use super::{Guest, Reactor, Seat};
use crate::server::source::{Place, Source};
use crate::server::thrift::Thrift;
use crate::transport::object::AsObject;
use crate::transport::peer::Process;
use crate::transport::poll::{Interest, Trigger};

/// Sessions without a watch that are looked at when one comes in.
const MOST_LOOKED_AT: usize = 4;

/// The processes that have sessions, and the sessions whose processes are not watched.
#[derive(Default)]
pub(in crate::server) struct Peers {
    watched: BTreeMap<u32, Peer>,
    /// With those that are over by now.
    unwatched: VecDeque<Place>,
}

struct Peer {
    process: Process,
    places: Vec<Place>,
}

impl Peers {
    /// Whether a process is watched that has this number and is alive: who has connected by now is that one.
    pub(in crate::server) fn watches(&self, pid: u32) -> bool {
        self.watched.get(&pid).is_some_and(|peer| !peer.process.has_exited())
    }

    /// Descriptors that this takes.
    pub(super) fn held(&self) -> usize {
        self.watched.len()
    }
}

impl Reactor {
    /// Has a session end with its client's process, which is watched already or by `process`.
    pub(super) fn watch_process(&mut self, slot: usize, process: Option<Process>) {
        let Some(conversation) = self.conversation(slot) else { return };
        if conversation.link().process().is_some() {
            return;
        }
        let place = Place::new(slot, conversation.session());
        let pid = conversation.pid();
        match (pid, process) {
            (Some(pid), Some(process)) => self.join_process(place, pid, process),
            // Not one that is dead, whose number another process may have by now.
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
        // Another process had this number: its end was not heard of yet.
        self.bury(pid);
        let interest = Interest::readable(Trigger::Level);
        if self.poller.add(&process, Source::Peer(pid).token(), interest).is_err() {
            return self.peers.unwatched.push_back(place);
        }
        self.peers.watched.insert(pid, Peer { process, places: vec![place] });
    }

    /// A process may have ended.
    pub(super) fn on_process(&mut self, pid: u32) {
        if !self.peers.watches(pid) {
            self.bury(pid);
        }
    }

    /// The process that had this number has ended, and its sessions with it.
    fn bury(&mut self, pid: u32) {
        let Some(peer) = self.peers.watched.remove(&pid) else { return };
        let _ = self.poller.delete(&peer.process);
        for place in peer.places {
            if self.sits(place) {
                self.depart(place.slot);
            }
        }
    }

    /// A session is over: its client's process need not be watched for it any more.
    pub(super) fn leave_process(&mut self, place: Place, pid: Option<u32>) {
        let Some(pid) = pid else { return };
        let Some(peer) = self.peers.watched.get_mut(&pid) else { return };
        if let Some(at) = peer.places.iter().rposition(|other| *other == place) {
            peer.places.swap_remove(at);
        }
        if peer.places.is_empty()
            && let Some(peer) = self.peers.watched.remove(&pid)
        {
            let _ = self.poller.delete(&peer.process);
        }
    }

    /// Looks at some of the sessions whose processes are not watched.
    pub(super) fn look_at_unwatched(&mut self) {
        for _ in 0..MOST_LOOKED_AT {
            let Some(place) = self.peers.unwatched.pop_front() else { return };
            if !self.sits(place) {
                continue;
            }
            let Some(Seat { guest: Guest::Open(conversation), .. }) = self.seats.get(place.slot)
            else {
                continue;
            };
            let pid = conversation.pid();
            // What it takes to look is closed again; without a descriptor nobody can.
            let Some(process) = conversation.link().find_process() else {
                return self.peers.unwatched.push_back(place);
            };
            if process.has_exited() {
                self.depart(place.slot);
                continue;
            }
            match pid {
                Some(pid) if self.peers.watches(pid) => self.share_watch(place, pid),
                Some(pid) if Thrift::now(process.as_object(), self.held()).watches_processes() => {
                    self.join_process(place, pid, process);
                }
                _ => self.peers.unwatched.push_back(place),
            }
        }
    }
}
