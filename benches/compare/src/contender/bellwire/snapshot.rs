//! A reader of the snapshot, which maps the newest.

use std::time::Duration;

use bellwire::{Refreshed, SnapshotCache};
use bellwire_cgroups::{CgroupsSnapshot, View};

use crate::Outcome;
use crate::contender;

/// How long the provider may take.
const TIMEOUT: Duration = Duration::from_secs(5);

impl contender::Client for SnapshotCache<CgroupsSnapshot> {
    #[inline]
    fn refresh(&mut self) -> Outcome<bool> {
        Ok(self.refresh_within(TIMEOUT)? == Refreshed::Changed)
    }

    #[inline]
    fn snapshot(&self) -> Outcome<View<'_>> {
        Ok(self.current().ok_or("nothing was published")?.index().view())
    }
}
