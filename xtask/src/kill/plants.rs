//! Bugs that the harness must find: each is one that a kill at the right instruction shows, and a test that kills now
//! and then does not.

/// A bug, as changes of the text of the library.
#[derive(Debug)]
pub(crate) struct Plant {
    pub(crate) name: &'static str,
    edits: &'static [Edit],
}

/// One change of one file. What is to be replaced stands there exactly once.
#[derive(Debug)]
pub(crate) struct Edit {
    /// From the root of the workspace.
    pub(crate) file: &'static str,
    from: &'static str,
    to: &'static str,
}

const fn plant(name: &'static str, edits: &'static [Edit]) -> Plant {
    Plant { name, edits }
}

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, from, to }
}

/// Every bug.
pub(crate) static PLANTS: [Plant; 12] = [
    plant(
        "a record is published before it is written",
        &[edit(
            "core/src/lane/sender.rs",
            "        own.write(at, &header.to_bytes());\n        own.write(at + HEADER, payload);\n",
            "        own.store(crate::Word::Tail, self.written + record, crate::sync::Ordering::Release);\n        \
             own.write(at, &header.to_bytes());\n        own.write(at + HEADER, payload);\n",
        )],
    ),
    plant(
        "the store to Tail has no Release: a header is written behind it",
        &[edit(
            "core/src/lane/sender.rs",
            "        own.write(at, &header.to_bytes());\n        own.write(at + HEADER, payload);\n",
            "        own.write(at + HEADER, payload);\n        \
             own.store(crate::Word::Tail, self.written + record, crate::sync::Ordering::Relaxed);\n        \
             own.write(at, &header.to_bytes());\n",
        )],
    ),
    plant(
        "a socket is never closed",
        &[edit(
            "src/server/reactor/mod.rs",
            "        let _ = self.epoll.delete(&socket);\n        reaper::reap(socket);\n",
            "        let _ = self.epoll.delete(&socket);\n        std::mem::forget(socket);\n",
        )],
    ),
    plant(
        "a switch is published before the descriptor of its lane",
        &[edit(
            "core/src/resize.rs",
            "        port.offer(epoch)?;\n        lanes.offer(epoch);\n    }\n    \
             let epoch = lanes.switch(port.own()).ok_or(PushError::Closed)?;\n",
            "        lanes.offer(epoch);\n        let _ = lanes.switch(port.own());\n        \
             let _ = lanes.commit(port.own(), port.peer());\n        port.offer(epoch)?;\n        \
             port.adopt(epoch);\n        return Ok(epoch);\n    }\n    \
             let epoch = lanes.switch(port.own()).ok_or(PushError::Closed)?;\n",
        )],
    ),
    plant(
        "an attachment's record is published before its descriptor",
        &[edit(
            "core/src/serve.rs",
            "                pass(id)?;\n                // There is room, and nobody else writes.\n                \
             let _ = lanes.push_attached(own, peer, header, bytes);\n",
            "                let _ = lanes.push_attached(own, peer, header, bytes);\n                \
             let _ = lanes.commit(own, peer);\n                pass(id)?;\n",
        )],
    ),
    plant(
        "a lane that was left stays mapped",
        &[edit(
            "transport-memfd/src/link/control.rs",
            "                self.peer.lane = lane;\n",
            "                std::mem::forget(std::mem::replace(&mut self.peer.lane, lane));\n",
        )],
    ),
    plant(
        "a snapshot is published before it is complete",
        &[edit(
            "src/publisher.rs",
            "        build(builder.bytes());\n",
            "        let early = SnapshotBuilder::create(&label, len).map_err(failed)?;\n        \
             let early = Arc::new(early.seal().map_err(failed)?);\n        let mut inner = self.lock();\n        \
             let generation = inner.generation + 1;\n        \
             inner.newest = Some(Published { generation, sealed: early });\n        \
             inner.board.store_u64(BoardWord::Generation.offset(), generation, Ordering::Release);\n        \
             wake_watchers(&inner.board);\n        drop(inner);\n        build(builder.bytes());\n",
        )],
    ),
    plant(
        "a parked caller does not notice a death",
        &[
            edit(
                "transport-memfd/src/link/wait.rs",
                "        self.peer_said_closed() || self.life() == LifeState::Died || self.process_gone()\n",
                "        self.peer_said_closed()\n",
            ),
            edit(
                "transport-memfd/src/link/wait.rs",
                "        self.peer.page.word(LIFE_OFFSET).map_or(LifeState::Unarmed, |word| life_state(word.load()))\n",
                "        LifeState::Unarmed\n",
            ),
        ],
    ),
    plant(
        "a cache goes by the generation of the provider before",
        &[
            edit(
                "src/cache.rs",
                "        if self.client.session().is_none() {\n            self.seen = None;\n        }\n",
                "",
            ),
            edit(
                "src/cache.rs",
                "        let Some(session) = self.client.session() else {\n            self.seen = None;\n",
                "        let Some(session) = self.client.session() else {\n",
            ),
            edit(
                "src/cache.rs",
                "        let generation = session.board().generation();\n",
                "        let generation = session.board().generation();\n        \
                 if self.seen == Some(generation) && self.held.is_some() {\n            \
                 return Ok(Refreshed::Unchanged);\n        }\n",
            ),
        ],
    ),
    plant(
        "a handler runs before its request is acknowledged",
        &[edit(
            "core/src/serve.rs",
            "        lanes.take_before_acting(own, &record);\n",
            "        let _ = own;\n        lanes.take(&record);\n",
        )],
    ),
    plant(
        "a caller drops what its provider published before it died",
        &[
            edit(
                "transport-memfd/src/link/wait.rs",
                "        self.reason(park).unwrap_or(Woken::PeerGone)\n",
                "        let _ = park;\n        Woken::PeerGone\n",
            ),
            edit(
                "core/src/drive/wait.rs",
                "            if self.lanes.moved(self.port.peer()) && woken == Woken::PeerGone {\n",
                "            if false {\n",
            ),
        ],
    ),
    plant(
        "a server drops what its client published before it died",
        &[edit(
            "src/server/reactor/mod.rs",
            "        if conversation.depart()\n",
            "        if slot < usize::MAX {\n            return self.end(slot, Ended::Gone);\n        }\n        \
             let Some(conversation) = self.conversation(slot) else { return };\n        \
             if conversation.depart()\n",
        )],
    ),
];

impl Plant {
    /// The files that it changes, each once.
    pub(crate) fn files(&self) -> Vec<&'static str> {
        let mut files: Vec<_> = self.edits.iter().map(|edit| edit.file).collect();
        files.dedup();
        files
    }

    /// The text of one file with the bug in it. `None` when the text is not there, or more than once.
    pub(crate) fn apply(&self, file: &str, text: &str) -> Option<String> {
        let mut text = text.to_owned();
        for edit in self.edits.iter().filter(|edit| edit.file == file) {
            if text.matches(edit.from).count() != 1 {
                return None;
            }
            text = text.replacen(edit.from, edit.to, 1);
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::PLANTS;

    #[test]
    fn every_bug_finds_its_place_in_the_code_as_it_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for plant in &PLANTS {
            for file in plant.files() {
                let text = fs::read_to_string(root.join(file)).unwrap();
                let planted = plant.apply(file, &text);
                assert!(
                    planted.is_some_and(|planted| planted != text),
                    "{}: {file} has changed: give the plant its new text",
                    plant.name
                );
            }
        }
    }
}
