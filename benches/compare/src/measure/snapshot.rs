//! Refreshes and look-ups.

use std::hint::black_box;

use bellwire_cgroups::CgroupEntry;
use bellwire_floor::reads::shuffle;

use super::Operations;
use crate::Outcome;
use crate::contender::{Client, Counters};

/// Refreshes that find nothing new, or one new generation.
pub(super) struct Refreshes<C> {
    client: C,
    cgroups: usize,
    changed: bool,
}

impl<C: Client> Refreshes<C> {
    pub(super) fn new(mut client: C, cgroups: usize, changed: bool) -> Outcome<Self> {
        while !client.refresh()? {}
        Ok(Self { client, cgroups, changed })
    }
}

impl<C: Client> Operations for Refreshes<C> {
    #[inline]
    fn steps(&mut self, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            if black_box(&mut self.client).refresh()? != self.changed {
                return Err("a refresh missed a generation, or found one that nobody published: do not use these figures".into());
            }
        }
        Ok(steps)
    }

    fn finish(&mut self) -> Outcome<()> {
        match self.client.snapshot()?.len() {
            found if found == self.cgroups => Ok(()),
            found => Err(format!(
                "a snapshot of {found} cgroups, not {}: do not use these figures",
                self.cgroups
            )
            .into()),
        }
    }

    fn counters(&mut self) -> Counters {
        self.client.counters()
    }
}

/// Look-ups by name, path and id in turn, of cgroups that are there, in an order that no prefetcher guesses.
pub(super) struct LookUps<C> {
    client: C,
    keys: Vec<(CgroupEntry, u64)>,
    next: usize,
}

impl<C: Client> LookUps<C> {
    pub(super) fn new(mut client: C, cgroups: usize) -> Outcome<Self> {
        while !client.refresh()? {}
        let view = client.snapshot()?;
        let mut keys: Vec<_> =
            view.iter().map(|cgroup| (CgroupEntry::from(cgroup), cgroup.name_hash)).collect();
        if keys.len() != cgroups {
            return Err(format!("a snapshot of {} cgroups, not {cgroups}", keys.len()).into());
        }
        shuffle(&mut keys, 0x9e37_79b9_7f4a_7c15);
        Ok(Self { client, keys, next: 0 })
    }
}

impl<C: Client> Operations for LookUps<C> {
    #[inline]
    fn steps(&mut self, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            let view = black_box(&self.client).snapshot()?;
            let Some((key, hash)) = self.keys.get(self.next / 3) else {
                self.next = 0;
                continue;
            };
            let found = match self.next % 3 {
                0 => view.find_by_name(*hash, &key.name),
                1 => view.find_by_path(&key.path),
                _ => view.find_by_id(key.id),
            };
            self.next += 1;
            if !found.is_some_and(|found| found.id == key.id || found.name == key.name) {
                return Err("a look-up found another cgroup: do not use these figures".into());
            }
        }
        Ok(steps)
    }

    fn counters(&mut self) -> Counters {
        self.client.counters()
    }
}
