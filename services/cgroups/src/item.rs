use super::{Labels, Options, Orchestrator, name_hash};

/// One cgroup of a snapshot, borrowed from its [`Index`](super::Index).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Cgroup<'a> {
    /// The inode of its directory in the primary hierarchy (the value of `bpf_get_current_cgroup_id` if that is the unified
    /// one), never 0, unique in the snapshot. See [`Options::SECONDARY`].
    pub id: u64,
    /// [`name_hash`] of the name.
    pub name_hash: u64,
    /// A readable name: the one that the provider's source of names gave, or one made from the path. 1 to
    /// [`MAX_NAME`](super::MAX_NAME) bytes, no control characters, not necessarily unique.
    pub name: &'a str,
    /// Its absolute path below the hierarchy's root, 1 to [`MAX_PATH`](super::MAX_PATH) bytes, unique in the snapshot. It
    /// contains no control character and no empty, `.` or `..` component, so it is safe to append to a mount point.
    pub path: &'a str,
    /// Further properties.
    pub options: Options,
    /// Whether there is something to collect: it is populated, or a resource controller accounts for it.
    pub enabled: bool,
    /// The software that manages it.
    pub orchestrator: Orchestrator,
    /// What the source of its name gave besides it. Often none.
    pub labels: Labels<'a>,
}

/// One cgroup as a provider passes it to the writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CgroupEntry {
    /// See [`Cgroup::id`].
    pub id: u64,
    /// See [`Cgroup::name`].
    pub name: String,
    /// See [`Cgroup::path`].
    pub path: String,
    /// See [`Cgroup::options`].
    pub options: Options,
    /// See [`Cgroup::enabled`].
    pub enabled: bool,
    /// See [`Cgroup::orchestrator`].
    pub orchestrator: Orchestrator,
    /// See [`Cgroup::labels`].
    pub labels: Vec<(String, String)>,
}

/// A mounted hierarchy of cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hierarchy {
    /// `unified`, or the name of a v1 hierarchy: its controllers, joined by commas.
    pub name: String,
    /// Where the provider has it mounted: a path of a cgroup follows it. Empty if that is no text.
    pub root: String,
}

impl CgroupEntry {
    /// Returns the same cgroup, borrowed, as a reader of the snapshot sees it.
    pub fn as_cgroup(&self) -> Cgroup<'_> {
        Cgroup {
            id: self.id,
            name_hash: name_hash(&self.name),
            name: &self.name,
            path: &self.path,
            options: self.options,
            enabled: self.enabled,
            orchestrator: self.orchestrator,
            labels: Labels::of_entry(self),
        }
    }
}

impl From<Cgroup<'_>> for CgroupEntry {
    fn from(cgroup: Cgroup<'_>) -> Self {
        Self {
            id: cgroup.id,
            name: cgroup.name.into(),
            path: cgroup.path.into(),
            options: cgroup.options,
            enabled: cgroup.enabled,
            orchestrator: cgroup.orchestrator,
            labels: cgroup.labels.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        }
    }
}
