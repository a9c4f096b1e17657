use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use bellwire::{PublishError, Publisher};
use bellwire_cgroups::{CgroupsSnapshot, EncodeError, Mode, SnapshotWriter, synthetic};

use super::names::Names;
use crate::provide::args::Provide;
use bellwire_cgroups::scan::{Limits, Scan, ScanError, Scanner, Skipped};

/// Publishes the cgroups of a source when they have changed.
#[derive(Debug)]
pub(crate) struct Feed {
    source: Source,
    publisher: Publisher<CgroupsSnapshot>,
    names: Option<Names>,
    last: Option<Scan>,
}

/// The source of cgroups.
#[derive(Debug)]
pub(crate) enum Source {
    /// The hierarchies of this machine.
    Hierarchy(Scanner),
    /// Synthetic cgroups, which never change; different for each seed.
    Synthetic { count: usize, seed: u64 },
}

/// A generation that was published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeedUpdate {
    pub(crate) generation: u64,
    pub(crate) cgroups: usize,
    pub(crate) skipped: u32,
    pub(crate) mode: Mode,
    pub(crate) bytes: usize,
    /// The time for scanning, writing and publishing.
    pub(crate) took: Duration,
}

/// Why nothing was published. The last snapshot remains.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum FeedError {
    Scan(#[from] ScanError),
    Encode(#[from] EncodeError),
    Publish(#[from] PublishError),
}

impl Source {
    /// The default number of synthetic cgroups.
    const SYNTHETIC: usize = 1000;

    /// Returns the requested source. Without a request, only a system without cgroups gets synthetic ones.
    pub(crate) fn of(args: &Provide) -> Self {
        let limits = Limits { items: args.max_cgroups, depth: args.max_depth };
        match (args.synthetic, &args.root) {
            (Some(count), _) => Self::Synthetic { count, seed: 1 },
            (None, Some(root)) => Self::hierarchy(root, limits),
            (None, None) if !Scanner::has_cgroups() => Self::synthetic(),
            (None, None) => Self::hierarchy(Path::new(Scanner::ROOT), limits),
        }
    }

    /// Returns a source of the default number of synthetic cgroups.
    pub(crate) const fn synthetic() -> Self {
        Self::Synthetic { count: Self::SYNTHETIC, seed: 1 }
    }

    pub(crate) fn hierarchy(root: &Path, limits: Limits) -> Self {
        Self::Hierarchy(Scanner::new(root).with_limits(limits))
    }

    fn scan(&mut self) -> Result<Scan, ScanError> {
        match self {
            Self::Hierarchy(scanner) => scanner.scan(),
            Self::Synthetic { count, seed } => Ok(Scan {
                entries: synthetic::entries(*count, *seed),
                mode: Mode::V2,
                hierarchies: Vec::new(),
                skipped: Skipped::default(),
                started: SystemTime::now(),
            }),
        }
    }
}

impl Feed {
    pub(crate) fn new(source: Source, publisher: Publisher<CgroupsSnapshot>) -> Self {
        Self { source, publisher, names: None, last: None }
    }

    /// Has cgroups named.
    pub(crate) fn with_names(self, names: Names) -> Self {
        Self { names: Some(names), ..self }
    }

    /// Waits until every cgroup's name was asked for, at most for `limit`; returns whether there was any to ask for.
    pub(crate) fn wait_for_names(&self, limit: Duration) -> bool {
        self.names.as_ref().is_some_and(|names| names.wait_for_names(limit))
    }

    /// Switches to another source, whose cgroups all count as new, and returns the previous one.
    pub(crate) fn replace_source(&mut self, source: Source) -> Source {
        self.last = None;
        std::mem::replace(&mut self.source, source)
    }

    /// Scans once; publishes a new generation if anything changed, and returns it.
    pub(crate) fn step(&mut self) -> Result<Option<FeedUpdate>, FeedError> {
        let begun = Instant::now();
        let mut scan = self.source.scan()?;
        if let Some(names) = &self.names {
            names.refresh();
            scan.entries.iter_mut().for_each(|entry| names.name_entry(entry));
        }
        if self.last.as_ref().is_some_and(|last| same_content(last, &scan)) {
            return Ok(None);
        }
        let writer = SnapshotWriter::with_hierarchies(&scan.entries, &scan.hierarchies)?;
        let (bytes, meta) = (writer.encoded_len(), scan.meta());
        let mut written = Ok(0);
        let write = |into: &mut [u8]| written = writer.write_to(meta, into);
        let generation = self.publisher.publish_with(bytes, write)?;
        // It got the room that it asked for.
        written?;
        let update = FeedUpdate {
            generation,
            cgroups: scan.entries.len(),
            skipped: meta.skipped,
            mode: meta.mode,
            bytes,
            took: begun.elapsed(),
        };
        self.last = Some(scan);
        Ok(Some(update))
    }
}

/// Returns what `bellwire_cgroups::same_content` returns for the encoded snapshots, without encoding the second.
fn same_content(a: &Scan, b: &Scan) -> bool {
    (a.meta().skipped, a.mode, &a.hierarchies) == (b.meta().skipped, b.mode, &b.hierarchies)
        && a.entries == b.entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwire_cgroups::{self as cgroups, CgroupEntry, Hierarchy};

    fn scan(entries: Vec<CgroupEntry>, seconds: u64) -> Scan {
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let hierarchies = Vec::new();
        Scan { entries, mode: Mode::V2, hierarchies, skipped: Skipped::default(), started }
    }

    #[test]
    fn scans_are_the_same_exactly_when_their_snapshots_are() {
        let bytes = |scan: &Scan| {
            let writer = SnapshotWriter::with_hierarchies(&scan.entries, &scan.hierarchies);
            let writer = writer.unwrap();
            let mut bytes = vec![0; writer.encoded_len()];
            writer.write_to(scan.meta(), &mut bytes).unwrap();
            bytes
        };
        let agree = |a: &Scan, b: &Scan| {
            let same = same_content(a, b);
            assert_eq!(same, cgroups::same_content(&bytes(a), &bytes(b)));
            same
        };
        let old = scan(synthetic::entries(20, 1), 1);
        assert!(agree(&old, &scan(synthetic::entries(20, 1), 2)));
        assert!(!agree(&old, &scan(synthetic::entries(21, 1), 1)));
        let mut other = scan(synthetic::entries(20, 1), 1);
        other.skipped.denied = 1;
        assert!(!agree(&old, &other));
        other = Scan { mode: Mode::Hybrid, ..old.clone() };
        assert!(!agree(&old, &other));
        let mounted = Hierarchy { name: "unified".into(), root: "/x".into() };
        other = Scan { hierarchies: vec![mounted], ..old.clone() };
        assert!(!agree(&old, &other));
        other = old.clone();
        other.entries[0].labels.push(("image".into(), "x".into()));
        assert!(!agree(&old, &other));
    }
}
