//! A reader of the snapshot.

use std::time::Duration;

use bellwire::{Refreshed, RunDir, SnapshotCache};
use bellwire_cgroups::{CgroupsSnapshot, View};

use crate::Outcome;
use crate::contender;
use crate::load::Case;

/// How long the provider may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// It maps the newest.
pub(super) struct Reader {
    cache: SnapshotCache<CgroupsSnapshot>,
}

impl Reader {
    pub(super) fn new(case: &Case) -> Self {
        Self { cache: SnapshotCache::new(&RunDir::new(case.dir())) }
    }
}

impl contender::Client for Reader {
    #[inline]
    fn refresh(&mut self) -> Outcome<bool> {
        Ok(self.cache.refresh_within(PATIENCE)? == Refreshed::Changed)
    }

    #[inline]
    fn snapshot(&self) -> Outcome<View<'_>> {
        Ok(self.cache.current().ok_or("nothing was published")?.index().view())
    }
}
