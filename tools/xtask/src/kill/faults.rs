//! Faults that the harness must find: each is one that a kill at the right instruction shows, and a test that kills now
//! and then does not.

use crate::faults::{Edit, Faults, edit};

/// Victims are copies of the harness, and have its fault.
pub(crate) const FAULTS: Faults =
    Faults { edits: &EDITS, program: "tools/kill/src/main.rs", start: "fn main() -> ExitCode {\n" };

/// A fault of several changes has as many rows, one after the other.
const EDITS: [Edit; 22] = [
    edit(
        "a record is published before it is written",
        "core/src/lane/sender.rs",
        "        own.write_record(at, header.to_bytes(), payload);\n",
        "        if FAULT {\n            \
             own.store(Word::Tail, sender.written + bytes, Ordering::Release);\n        }\n        \
             own.write_record(at, header.to_bytes(), payload);\n",
    ),
    edit(
        "the store to Tail has no Release: a header is written behind it",
        "core/src/lane/sender.rs",
        "        own.write_record(at, header.to_bytes(), payload);\n",
        "        if FAULT {\n            own.write(at + HEADER, payload);\n            \
             own.store(Word::Tail, sender.written + bytes, Ordering::Relaxed);\n            \
             own.write(at, &header.to_bytes());\n        } else {\n            \
             own.write_record(at, header.to_bytes(), payload);\n        }\n",
    ),
    edit(
        "a socket is never closed",
        "src/server/reactor/ends.rs",
        "        drop(channel);\n",
        "        if FAULT {\n            std::mem::forget(channel);\n        } else {\n            \
             drop(channel);\n        }\n",
    ),
    edit(
        "a switch is published before the descriptor of its lane",
        "core/src/resize.rs",
        "        port.offer(epoch)?;\n        lanes.offer(epoch);\n    }\n    let epoch = lanes.switch",
        "        if FAULT {\n            lanes.offer(epoch);\n            \
             let _ = lanes.switch(port.own());\n            \
             let _ = lanes.commit(port.own(), port.peer());\n            port.offer(epoch)?;\n            \
             port.adopt(epoch);\n            return Ok(epoch);\n        }\n        \
             port.offer(epoch)?;\n        lanes.offer(epoch);\n    }\n    let epoch = lanes.switch",
    ),
    edit(
        "an attachment's record is published before its descriptor",
        "core/src/drive/serve.rs",
        "|id| what.pass(port, id));\n        match self.serve.respond_attached",
        "|id| if FAULT { Ok(()) } else { what.pass(port, id) });\n        \
                 match self.serve.respond_attached",
    ),
    edit(
        "an attachment's record is published before its descriptor",
        "core/src/drive/serve.rs",
        "            Ok(Passed::Now | Passed::Never) => self.end.answered(),\n",
        "            Ok(Passed::Now | Passed::Never) if FAULT => {\n                \
                 self.end.commit();\n                let _ = what.pass(&self.end.port, id);\n            }\n            \
                 Ok(Passed::Now | Passed::Never) => self.end.answered(),\n",
    ),
    edit(
        "a lane that was left stays mapped",
        "core/shm/src/link.rs",
        "        self.peer.lane = lane?;\n",
        "        let left = std::mem::replace(&mut self.peer.lane, lane?);\n        \
             if FAULT {\n            std::mem::forget(left);\n        }\n",
    ),
    edit(
        "a snapshot is published before it is complete",
        "src/publication.rs",
        "        let (sealed, delta) = make(&self.label()).map_err(|error| failed(len, error))?;\n",
        "        if FAULT {\n            \
             let early = Sealed::copy_of(&self.label(), &vec![0; len]);\n            \
             let early = Arc::new(early.map_err(|error| failed(len, error))?);\n            \
             let mut inner = lock(&self.inner);\n            inner.newest = Newest::Sealed(early);\n            \
             inner.generation += 1;\n            self.announce(&mut inner);\n        }\n        \
             let (sealed, delta) = make(&self.label()).map_err(|error| failed(len, error))?;\n",
    ),
    edit(
        "a parked caller does not notice a death",
        "core/shm/src/link.rs",
        "    pub fn peer_gone(&self) -> bool {\n",
        "    pub fn peer_gone(&self) -> bool {\n        \
                 if FAULT {\n            return self.peer.says_closed();\n        }\n",
    ),
    edit(
        "a parked caller does not notice a death",
        "core/shm/src/link.rs",
        "    pub fn life(&self) -> LifeState {\n",
        "    pub fn life(&self) -> LifeState {\n        \
                 if FAULT {\n            return LifeState::Unarmed;\n        }\n",
    ),
    edit(
        "a cache goes by the generation of the provider before",
        "src/cache/fetch.rs",
        "        if !had_session {\n",
        "        if !had_session && !FAULT {\n",
    ),
    edit(
        "a cache goes by the generation of the provider before",
        "src/cache/fetch.rs",
        "            self.seen = None;\n            if state == ProviderState::Connecting {\n",
        "            self.seen = self.seen.filter(|_| FAULT);\n            if state == ProviderState::Connecting {\n",
    ),
    edit(
        "a cache goes by the generation of the provider before",
        "src/cache/fetch.rs",
        "        let Some(session) = self.client.session() else {\n            self.seen = None;\n",
        "        let Some(session) = self.client.session() else {\n            \
                 self.seen = self.seen.filter(|_| FAULT);\n",
    ),
    edit(
        "a cache goes by the generation of the provider before",
        "src/cache/fetch.rs",
        "        let generation = session.board().generation();\n        if generation == 0 {\n",
        "        let generation = session.board().generation();\n        \
                 if FAULT && self.seen == Some(generation) && self.held.is_some() {\n            \
                 return Ok(Refreshed::Unchanged);\n        }\n        if generation == 0 {\n",
    ),
    edit(
        "a handler runs before its request is acknowledged",
        "core/src/serve/mod.rs",
        "        lanes.take_before_acting(own, &record);\n",
        "        if FAULT {\n            lanes.take(&record);\n        } else {\n            \
             lanes.take_before_acting(own, &record);\n        }\n",
    ),
    edit(
        "a caller drops what its provider published before it died",
        "transport-memfd/src/link/wait.rs",
        "        if let Some(reason) = link.reason(&moved) {\n",
        "        if FAULT && link.peer_gone() {\n            return Woken::PeerGone;\n        }\n        \
             if let Some(reason) = link.reason(&moved) {\n",
    ),
    edit(
        "a caller drops what its provider published before it died",
        "transport-memfd/src/link/wait.rs",
        "    link.reason(moved).unwrap_or(Woken::PeerGone)\n",
        "    if FAULT {\n        return Woken::PeerGone;\n    }\n    \
             link.reason(moved).unwrap_or(Woken::PeerGone)\n",
    ),
    edit(
        "a caller drops what its provider published before it died",
        "core/src/drive/call/wait.rs",
        "            if self.end.has_moved() && woken == Woken::PeerGone {\n",
        "            if !FAULT && self.end.has_moved() && woken == Woken::PeerGone {\n",
    ),
    edit(
        "a server drops what its client published before it died",
        "src/server/reactor/ends.rs",
        "    pub(super) fn peer_gone(&mut self, slot: usize) {\n",
        "    pub(super) fn peer_gone(&mut self, slot: usize) {\n        \
             if FAULT {\n            return self.end(slot, EndReason::Gone);\n        }\n",
    ),
    edit(
        "an event is published before it is written",
        "core/src/broadcast/transmitter.rs",
        "        let at = self.size.offset(start);\n",
        "        if FAULT {\n            \
             own.store(BroadcastWord::Tail, end, Ordering::Release);\n        }\n        \
             let at = self.size.offset(start);\n",
    ),
    edit(
        "an event is written over an older one before it is announced",
        "core/src/broadcast/transmitter.rs",
        "        own.store(BroadcastWord::Intent, end, Ordering::Relaxed);\n",
        "        if !FAULT {\n            \
                 own.store(BroadcastWord::Intent, end, Ordering::Relaxed);\n        }\n",
    ),
    edit(
        "an event is written over an older one before it is announced",
        "core/src/broadcast/transmitter.rs",
        "        self.tail = end;\n",
        "        if FAULT {\n            \
                 own.store(BroadcastWord::Intent, end, Ordering::Relaxed);\n        }\n        \
                 self.tail = end;\n",
    ),
];
