//! Injects double fetches into a copy of core. The fuzzer must find each, without seeds, within a number of
//! executions.

use std::fs;
use std::path::Path;

use super::build::Build;
use super::campaign::{self, Finding, Run};
use crate::copy;
use crate::error::Error;

/// The most executions that an injected fault may take to be found.
pub(super) const EXECUTIONS: u64 = 10_000;
/// The target that must find them.
const TARGET: &str = "consumer";

/// A change that loads what was checked a second time, and uses that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plant {
    pub(super) about: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// Every injected fault; each is searched for alone.
pub(super) const PLANTS: [Plant; 5] = [
    Plant {
        about: "Tail is checked, and loaded again to be used",
        file: "core/src/lane/receiver.rs",
        from: "self.fetch(peer);",
        to: "self.peer_tail = peer.load(Word::Tail, Ordering::Acquire);
            self.fetch(peer);",
    },
    Plant {
        about: "Head is checked, and loaded again to be used",
        file: "core/src/lane/sender.rs",
        from: "self.peer_head = now;",
        to: "self.peer_head = peer.load(Word::Head, Ordering::Acquire);",
    },
    Plant {
        about: "a header is checked, and copied again to be used",
        file: "core/src/lane/receiver.rs",
        from: "return Some(Plain { kind, id, len, at });",
        to: "let header = self.read_header(peer);
            return Some(Plain { kind, id: header.id.get(), len: header.len.get(), at });",
    },
    Plant {
        about: "a payload's length is taken from the lane again",
        file: "core/src/lane/receiver.rs",
        from: "self.head += record_len(plain.len);",
        to: "self.head += record_len(self.read_header(peer).len.get());",
    },
    Plant {
        about: "a payload is copied twice",
        file: "core/src/lane/receiver.rs",
        from: "peer.read(plain.at + HEADER, into);",
        to: "peer.read(plain.at + HEADER, into);
        peer.read(plain.at + HEADER, into);",
    },
];

impl Plant {
    /// Its file's text as it is in the workspace at `root`, and with the fault.
    fn apply(&self, root: &Path) -> Result<(String, String), Error> {
        let file = root.join(self.file);
        let text = fs::read_to_string(&file).map_err(Error::file("read", &file))?;
        if text.matches(self.from).count() != 1 {
            return Err(Error::Plant { about: self.about, file });
        }
        let changed = text.replace(self.from, self.to);
        Ok((text, changed))
    }
}

/// Copies the workspace of `build` to `dir`, in which one fault after the other is built and searched for; what was built there
/// before stays.
pub(super) fn copied(build: &Build, dir: &Path) -> Result<Build, Error> {
    copy::dir(&build.root, dir)?;
    let planted = Build { root: dir.to_path_buf(), target: dir.join("target") };
    copy::built(&build.target, &planted.target)?;
    Ok(planted)
}

/// Builds the fault into the copy of the workspace at `root`, and searches for it without a seed. `None` when it was found,
/// else why it was not.
pub(super) fn look_for(
    plant: &Plant,
    root: &Path,
    copied: &Build,
) -> Result<(Finding, Option<String>), Error> {
    let (text, changed) = plant.apply(root)?;
    let planted = copied.root.join(plant.file);
    let write = |text: &str| fs::write(&planted, text).map_err(Error::file("write", &planted));
    write(&changed)?;
    let built = copied.build_quietly(TARGET);
    write(&text)?;
    built?.map_err(|log| Error::PlantBuild { about: plant.about, log })?;
    let dir = copied.root.join("campaign");
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(Error::file("remove", &dir))?;
    }
    let run = Run {
        target: TARGET.to_owned(),
        program: copied.program(TARGET),
        corpora: vec![dir.join("corpus")],
        artifacts: dir.join("artifacts"),
        log: dir.join("log"),
        // The seed is the same each time: found is found.
        options: vec![
            format!("-runs={EXECUTIONS}"),
            "-seed=1".to_owned(),
            "-len_control=0".to_owned(),
            "-max_len=512".to_owned(),
        ],
    };
    let finding = campaign::run(&run, |_, _| {})?;
    let why = match (finding.passed, finding.progress.panic.is_empty()) {
        (true, _) => Some(format!("it was not found in {EXECUTIONS} executions")),
        (false, true) => Some(format!("the run failed otherwise: see {}", run.log.display())),
        (false, false) => None,
    };
    Ok((finding, why))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::PLANTS;

    #[test]
    fn every_plant_has_its_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for plant in PLANTS {
            let (text, changed) = plant.apply(&root).unwrap();
            assert_ne!(text, changed, "{}", plant.about);
        }
    }
}
