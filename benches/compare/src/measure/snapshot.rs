//! Refreshes and look-ups.

use std::hint::black_box;

use bellwire_cgroups::CgroupEntry;
use fastrand::Rng;

use super::Operations;
use crate::Outcome;
use crate::contender::Client;

/// Refreshes that find nothing new, or one new generation.
pub(super) struct Refreshes {
    cgroups: usize,
    changed: bool,
}

impl Refreshes {
    pub(super) fn new(client: &mut impl Client, cgroups: usize, changed: bool) -> Outcome<Self> {
        while !client.refresh()? {}
        Ok(Self { cgroups, changed })
    }
}

impl<C: Client> Operations<C> for Refreshes {
    #[inline]
    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            if black_box(&mut *client).refresh()? != self.changed {
                return Err("a refresh missed a generation, or found one that nobody published: do not use these figures".into());
            }
        }
        Ok(steps)
    }

    fn finish(&mut self, client: &mut C) -> Outcome<()> {
        match client.snapshot()?.len() {
            found if found == self.cgroups => Ok(()),
            found => Err(format!(
                "a snapshot of {found} cgroups, not {}: do not use these figures",
                self.cgroups
            )
            .into()),
        }
    }
}

/// Look-ups by name, path and id in turn, of cgroups that are there, in an order that no prefetcher guesses.
pub(super) struct LookUps {
    keys: Vec<(CgroupEntry, u64)>,
    next: usize,
}

impl LookUps {
    pub(super) fn new(client: &mut impl Client, cgroups: usize) -> Outcome<Self> {
        while !client.refresh()? {}
        let view = client.snapshot()?;
        let mut keys: Vec<_> =
            view.iter().map(|cgroup| (CgroupEntry::from(cgroup), cgroup.name_hash)).collect();
        if keys.len() != cgroups {
            return Err(format!("a snapshot of {} cgroups, not {cgroups}", keys.len()).into());
        }
        Rng::with_seed(7).shuffle(&mut keys);
        Ok(Self { keys, next: 0 })
    }
}

impl<C: Client> Operations<C> for LookUps {
    #[inline]
    fn steps(&mut self, client: &mut C, steps: u64) -> Outcome<u64> {
        for _ in 0..steps {
            let view = black_box(&*client).snapshot()?;
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
}
