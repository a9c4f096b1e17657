//! Bugs that the harness must find: each is one that a kill at the right instruction shows, and a test that kills now
//! and then does not.

/// One change of one file, for a bug of the library. All bugs are built into one harness, and one at a time is there. What is to
/// be replaced stands in the file exactly once.
#[derive(Debug)]
struct Edit {
    bug: &'static str,
    /// From the root of the workspace.
    file: &'static str,
    from: &'static str,
    /// `PLANTED` in it is true when the bug is there.
    to: &'static str,
}

const fn edit(bug: &'static str, file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { bug, file, from, to }
}

/// Tells the planted harness which bug is there, by its number; 0 for none.
pub(crate) const CHOICE: &str = "BELLWIRE_PLANT";

/// What chooses a bug when the program starts. Victims are copies of that program.
static CHOOSING: [Edit; 2] = [
    edit(
        "what chooses a bug",
        "core/src/lib.rs",
        "pub mod call;\n",
        "static PLANT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);\n\
         /// Chooses a bug.\npub fn plant(number: usize) {\n    \
         PLANT.store(number, core::sync::atomic::Ordering::Relaxed);\n}\n\
         /// Whether this bug is there.\n#[inline]\npub fn planted(number: usize) -> bool {\n    \
         PLANT.load(core::sync::atomic::Ordering::Relaxed) == number\n}\n\npub mod call;\n",
    ),
    edit(
        "what chooses a bug",
        "tools/kill/src/main.rs",
        "fn main() -> ExitCode {\n",
        "fn main() -> ExitCode {\n    let plant = std::env::var(\"BELLWIRE_PLANT\").ok();\n    \
         bellwire_core::plant(plant.and_then(|plant| plant.parse().ok()).unwrap_or(0));\n",
    ),
];

/// Every bug; one of several changes is in as many rows, one after the other.
static EDITS: [Edit; 21] = [
    edit(
        "a record is published before it is written",
        "core/src/lane/sender.rs",
        "        own.write_record(at, header.to_bytes(), payload);\n",
        "        if PLANTED {\n            \
             own.store(Word::Tail, self.written + record, Ordering::Release);\n        }\n        \
             own.write_record(at, header.to_bytes(), payload);\n",
    ),
    edit(
        "the store to Tail has no Release: a header is written behind it",
        "core/src/lane/sender.rs",
        "        own.write_record(at, header.to_bytes(), payload);\n",
        "        if PLANTED {\n            own.write(at + HEADER, payload);\n            \
             own.store(Word::Tail, self.written + record, Ordering::Relaxed);\n            \
             own.write(at, &header.to_bytes());\n        } else {\n            \
             own.write_record(at, header.to_bytes(), payload);\n        }\n",
    ),
    edit(
        "a socket is never closed",
        "src/server/reactor/mod.rs",
        "        channel.reap();\n",
        "        if PLANTED {\n            std::mem::forget(channel);\n        } else {\n            \
             channel.reap();\n        }\n",
    ),
    edit(
        "a switch is published before the descriptor of its lane",
        "core/src/resize.rs",
        "        port.offer(epoch)?;\n        lanes.offer(epoch);\n    }\n    let epoch = lanes.switch",
        "        if PLANTED {\n            lanes.offer(epoch);\n            \
             let _ = lanes.switch(port.own());\n            \
             let _ = lanes.commit(port.own(), port.peer());\n            port.offer(epoch)?;\n            \
             port.adopt(epoch);\n            return Ok(epoch);\n        }\n        \
             port.offer(epoch)?;\n        lanes.offer(epoch);\n    }\n    let epoch = lanes.switch",
    ),
    edit(
        "an attachment's record is published before its descriptor",
        "core/src/drive/serve.rs",
        "|id| what.pass(port, id));\n        match self.serve.respond_attached",
        "|id| if PLANTED { Ok(()) } else { what.pass(port, id) });\n        \
                 match self.serve.respond_attached",
    ),
    edit(
        "an attachment's record is published before its descriptor",
        "core/src/drive/serve.rs",
        "            Ok(Passed::Now | Passed::Never) => self.end.answered(),\n",
        "            Ok(Passed::Now | Passed::Never) if PLANTED => {\n                \
                 self.end.commit();\n                let _ = what.pass(&self.end.port, id);\n            }\n            \
                 Ok(Passed::Now | Passed::Never) => self.end.answered(),\n",
    ),
    edit(
        "a lane that was left stays mapped",
        "transport-memfd/src/link/control.rs",
        "        self.peer.lane = lane?;\n",
        "        let left = std::mem::replace(&mut self.peer.lane, lane?);\n        \
             if PLANTED {\n            std::mem::forget(left);\n        }\n",
    ),
    edit(
        "a snapshot is published before it is complete",
        "src/publication.rs",
        "        let (sealed, changes) = make(&self.label()).map_err(|error| failed(len, error))?;\n",
        "        if PLANTED {\n            \
             let early = Sealed::copy_of(&self.label(), &vec![0; len]);\n            \
             let early = Arc::new(early.map_err(|error| failed(len, error))?);\n            \
             let mut inner = self.lock();\n            inner.newest = Newest::Sealed(early);\n            \
             inner.generation += 1;\n            self.announce(&mut inner);\n        }\n        \
             let (sealed, changes) = make(&self.label()).map_err(|error| failed(len, error))?;\n",
    ),
    edit(
        "a parked caller does not notice a death",
        "transport-memfd/src/link/wait.rs",
        "    pub fn peer_gone(&self) -> bool {\n",
        "    pub fn peer_gone(&self) -> bool {\n        \
                 if PLANTED {\n            return self.peer.says_closed();\n        }\n",
    ),
    edit(
        "a parked caller does not notice a death",
        "transport-memfd/src/link/wait.rs",
        "    pub fn life(&self) -> LifeState {\n",
        "    pub fn life(&self) -> LifeState {\n        \
                 if PLANTED {\n            return LifeState::Unarmed;\n        }\n",
    ),
    edit(
        "a cache goes by the generation of the provider before",
        "src/cache/fetch.rs",
        "        if !had_session {\n",
        "        if !had_session && !PLANTED {\n",
    ),
    edit(
        "a cache goes by the generation of the provider before",
        "src/cache/fetch.rs",
        "            self.seen = None;\n            if state == State::Connecting {\n",
        "            self.seen = self.seen.filter(|_| PLANTED);\n            if state == State::Connecting {\n",
    ),
    edit(
        "a cache goes by the generation of the provider before",
        "src/cache/fetch.rs",
        "        let Some(session) = self.client.session() else {\n            self.seen = None;\n",
        "        let Some(session) = self.client.session() else {\n            \
                 self.seen = self.seen.filter(|_| PLANTED);\n",
    ),
    edit(
        "a cache goes by the generation of the provider before",
        "src/cache/fetch.rs",
        "        let generation = session.board().generation();\n        if generation == 0 {\n",
        "        let generation = session.board().generation();\n        \
                 if PLANTED && self.seen == Some(generation) && self.held.is_some() {\n            \
                 return Ok(Refreshed::Unchanged);\n        }\n        if generation == 0 {\n",
    ),
    edit(
        "a handler runs before its request is acknowledged",
        "core/src/serve.rs",
        "        lanes.take_before_acting(own, &record);\n",
        "        if PLANTED {\n            lanes.take(&record);\n        } else {\n            \
             lanes.take_before_acting(own, &record);\n        }\n",
    ),
    edit(
        "a caller drops what its provider published before it died",
        "transport-memfd/src/link/wait.rs",
        "        self.reason(park).unwrap_or(Woken::PeerGone)\n",
        "        if PLANTED {\n            return Woken::PeerGone;\n        }\n        \
                 self.reason(park).unwrap_or(Woken::PeerGone)\n",
    ),
    edit(
        "a caller drops what its provider published before it died",
        "core/src/drive/call/wait.rs",
        "            if self.end.has_moved() && woken == Woken::PeerGone {\n",
        "            if !PLANTED && self.end.has_moved() && woken == Woken::PeerGone {\n",
    ),
    edit(
        "a server drops what its client published before it died",
        "src/server/reactor/mod.rs",
        "    fn depart(&mut self, slot: usize) {\n",
        "    fn depart(&mut self, slot: usize) {\n        \
             if PLANTED {\n            return self.end(slot, Why::Gone);\n        }\n",
    ),
    edit(
        "an event is published before it is written",
        "core/src/broadcast/transmitter.rs",
        "        let at = self.size.offset(start);\n",
        "        if PLANTED {\n            \
             own.store(BroadcastWord::Tail, end, Ordering::Release);\n        }\n        \
             let at = self.size.offset(start);\n",
    ),
    edit(
        "an event is written over an older one before it is announced",
        "core/src/broadcast/transmitter.rs",
        "        own.store(BroadcastWord::Intent, end, Ordering::Relaxed);\n",
        "        if !PLANTED {\n            \
                 own.store(BroadcastWord::Intent, end, Ordering::Relaxed);\n        }\n",
    ),
    edit(
        "an event is written over an older one before it is announced",
        "core/src/broadcast/transmitter.rs",
        "        self.tail = end;\n",
        "        if PLANTED {\n            \
                 own.store(BroadcastWord::Intent, end, Ordering::Relaxed);\n        }\n        \
                 self.tail = end;\n",
    ),
];

/// What the bugs are called.
pub(crate) fn bugs() -> Vec<&'static str> {
    let mut bugs: Vec<_> = EDITS.iter().map(|edit| edit.bug).collect();
    bugs.dedup();
    bugs
}

/// The files that bugs are planted in, each once.
pub(crate) fn files() -> Vec<&'static str> {
    let mut files: Vec<_> = CHOOSING.iter().chain(&EDITS).map(|edit| edit.file).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// A file's text with all the bugs in it. `Err` names the one that has no place there, or several.
pub(crate) fn apply(file: &str, text: &str) -> Result<String, &'static str> {
    let bugs = bugs();
    let mut text = text.to_owned();
    for edit in CHOOSING.iter().chain(&EDITS).filter(|edit| edit.file == file) {
        if text.matches(edit.from).count() != 1 {
            return Err(edit.bug);
        }
        let number = bugs.iter().position(|bug| *bug == edit.bug).map_or(0, |at| at + 1);
        let core = if file.starts_with("core/") { "crate" } else { "bellwire_core" };
        let to = edit.to.replace("PLANTED", &format!("{core}::planted({number})"));
        text = text.replacen(edit.from, &to, 1);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{apply, files};

    #[test]
    fn every_bug_finds_its_place_in_the_code_as_it_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in files() {
            let text = fs::read_to_string(root.join(file)).unwrap();
            match apply(file, &text) {
                Ok(planted) => assert_ne!(planted, text),
                Err(bug) => panic!("{file} has changed: say where {bug:?} goes now"),
            }
        }
    }

    #[test]
    fn a_bug_without_a_place_is_told_by_its_name() {
        let bug = "a lane that was left stays mapped";
        assert_eq!(apply("transport-memfd/src/link/control.rs", "fn follow() {}"), Err(bug));
    }
}
