use core::iter::FusedIterator;
use core::slice;
use std::time::SystemTime;

use super::row::Row;
use super::{Cgroup, Index, Labels, Meta, Mode, Options};

/// A validated snapshot for look-ups. Copying it is free; no look-up allocates.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    index: &'a Index,
}

impl<'a> View<'a> {
    pub(super) fn new(index: &'a Index) -> Self {
        Self { index }
    }

    /// Returns the cgroup of this name, given the name and its [`name_hash`](super::name_hash).
    ///
    /// Names need not be unique: of several, this returns the one whose path sorts first, bytewise;
    /// [`all_named`](Self::all_named) returns all. A hash that is not the name's finds nothing. Constant time, unless the
    /// provider chose names whose hashes collide.
    pub fn find_by_name(&self, name_hash: u64, name: &str) -> Option<Cgroup<'a>> {
        self.all_named(name_hash, name).next()
    }

    /// Returns all cgroups of this name, in ascending order of their paths.
    pub fn all_named<'n>(&self, name_hash: u64, name: &'n str) -> Named<'a, 'n> {
        Named { index: self.index, next: self.index.row_of_hash(name_hash), name }
    }

    /// Returns the cgroup of this path, as the kernel spells it in `/proc/PID/cgroup`. Constant time.
    pub fn find_by_path(&self, path: &str) -> Option<Cgroup<'a>> {
        cgroup(self.index, self.index.row_of_path(path)?)
    }

    /// Returns the cgroup of this [`id`](Cgroup::id). Constant time.
    pub fn find_by_id(&self, id: u64) -> Option<Cgroup<'a>> {
        cgroup(self.index, self.index.row_of_id(id)?)
    }

    /// Returns all cgroups, in ascending order of their paths: a parent always comes before its children.
    pub fn iter(&self) -> Iter<'a> {
        Iter { index: self.index, order: self.index.order().iter() }
    }

    /// Returns the number of cgroups.
    pub fn len(&self) -> usize {
        self.index.order().len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the mounted hierarchies, the primary one first: their names and their roots, as in
    /// [`Hierarchy`](super::Hierarchy). Empty if the provider knows none.
    pub fn hierarchies(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.index.mounted()
    }

    /// Returns the directory below which a cgroup's path leads to it in the provider's mount namespace, such as
    /// `/sys/fs/cgroup/unified`; `None` if the provider did not say.
    pub fn root_of(&self, cgroup: &Cgroup<'_>) -> Option<&'a str> {
        let secondary = cgroup.options.contains(Options::SECONDARY);
        let number = if secondary { usize::try_from(cgroup.id >> 56).ok()? } else { 0 };
        let (_, root) = self.hierarchies().nth(number)?;
        Some(root).filter(|root| !root.is_empty())
    }

    /// Returns when the hierarchy was scanned, by the provider's wall clock.
    pub fn scanned_at(&self) -> SystemTime {
        self.meta().scanned_at
    }

    /// Returns the machine's cgroup mode.
    pub fn mode(&self) -> Mode {
        self.meta().mode
    }

    /// Returns the snapshot's description of itself.
    pub fn meta(&self) -> Meta {
        *self.index.meta()
    }
}

impl<'a> IntoIterator for View<'a> {
    type Item = Cgroup<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &View<'a> {
    type Item = Cgroup<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// All cgroups of a snapshot; see [`View::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    index: &'a Index,
    order: slice::Iter<'a, u32>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Cgroup<'a>;

    fn next(&mut self) -> Option<Cgroup<'a>> {
        cgroup(self.index, self.index.row(*self.order.next()?)?)
    }

    /// In constant time.
    fn nth(&mut self, n: usize) -> Option<Cgroup<'a>> {
        cgroup(self.index, self.index.row(*self.order.nth(n)?)?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.order.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        cgroup(self.index, self.index.row(*self.order.next_back()?)?)
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

/// All cgroups of one name; see [`View::all_named`].
#[derive(Clone, Debug)]
pub struct Named<'a, 'n> {
    index: &'a Index,
    next: Option<&'a Row>,
    name: &'n str,
}

impl<'a> Iterator for Named<'a, '_> {
    type Item = Cgroup<'a>;

    fn next(&mut self) -> Option<Cgroup<'a>> {
        while let Some(row) = self.next {
            self.next = self.index.row(row.next);
            let cgroup = cgroup(self.index, row)?;
            if cgroup.name == self.name {
                return Some(cgroup);
            }
        }
        None
    }
}

impl FusedIterator for Named<'_, '_> {}

fn cgroup<'a>(index: &'a Index, row: &'a Row) -> Option<Cgroup<'a>> {
    let (path, name) = index.texts(row)?;
    Some(Cgroup {
        id: row.id,
        name_hash: row.name_hash,
        name,
        path,
        options: row.options,
        enabled: row.enabled,
        orchestrator: row.orchestrator,
        labels: Labels::of_row(index, row),
    })
}
