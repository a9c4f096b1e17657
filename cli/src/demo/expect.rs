use std::time::{Duration, Instant};

use bellwire_cgroups::{Options, View, name_hash};

use super::protocol::{FromConsumer, Made};

/// How long a change of the hierarchy may stay unseen. The provider scans every 50 ms.
const PATIENCE: Duration = Duration::from_secs(5);

/// Cgroups that shall appear in a snapshot or disappear from it.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    appearing: Vec<(Made, Instant)>,
    disappearing: Vec<(String, Instant)>,
    verdicts: Vec<FromConsumer>,
}

impl Expectations {
    pub(super) fn made(&mut self, made: Made) {
        self.appearing.push((made, Instant::now() + PATIENCE));
    }

    pub(super) fn removed(&mut self, path: String) {
        self.appearing.retain(|(made, _)| made.path != path);
        self.disappearing.push((path, Instant::now() + PATIENCE));
    }

    /// Postpones all deadlines by `by`.
    pub(super) fn postpone(&mut self, by: Duration) {
        let appearing = self.appearing.iter_mut().map(|(_, until)| until);
        let disappearing = self.disappearing.iter_mut().map(|(_, until)| until);
        appearing.chain(disappearing).for_each(|until| *until += by);
    }

    /// Checks which expectations were met, and which were not met in time.
    pub(super) fn check(&mut self, view: View<'_>) {
        let now = Instant::now();
        let verdicts = &mut self.verdicts;
        self.appearing.retain(|(made, until)| {
            let ok = is_there(view, made);
            let open = !ok && now < *until;
            if !open {
                verdicts.push(FromConsumer::Found { path: made.path.clone(), ok });
            }
            open
        });
        self.disappearing.retain(|(path, until)| {
            let ok = is_gone(view, path);
            let open = !ok && now < *until;
            if !open {
                verdicts.push(FromConsumer::Gone { path: path.clone(), ok });
            }
            open
        });
    }

    pub(super) fn take_verdicts(&mut self) -> Vec<FromConsumer> {
        std::mem::take(&mut self.verdicts)
    }
}

/// Returns whether a cgroup is found by its path, by its id, which is its inode, and by its name, which ends with its
/// directory's.
fn is_there(view: View<'_>, made: &Made) -> bool {
    let Some(cgroup) = view.find_by_path(&made.path) else { return false };
    let inode = match cgroup.options.contains(Options::SECONDARY) {
        true => cgroup.id & (u64::MAX >> 8),
        false => cgroup.id,
    };
    let directory = made.path.rsplit('/').next().unwrap_or_default();
    inode == made.inode
        && view.find_by_id(cgroup.id) == Some(cgroup)
        && cgroup.name.ends_with(directory)
        && view.find_by_name(name_hash(cgroup.name), cgroup.name) == Some(cgroup)
}

fn is_gone(view: View<'_>, path: &str) -> bool {
    let directory = path.rsplit('/').next().unwrap_or_default();
    view.find_by_path(path).is_none()
        && view.find_by_name(name_hash(directory), directory).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwire_cgroups::{CgroupEntry, Index, Meta, Mode, Orchestrator, encode};

    fn index(id: u64, options: Options) -> Index {
        let entry = CgroupEntry {
            id,
            name: "bellwire-demo-1".into(),
            path: "/bellwire-demo-1".into(),
            options,
            enabled: true,
            orchestrator: Orchestrator::Unknown,
            labels: Vec::new(),
        };
        Index::validate(&encode(&[entry], Meta::now(Mode::V2)).unwrap()).unwrap()
    }

    fn made(inode: u64) -> Made {
        Made { path: "/bellwire-demo-1".into(), inode }
    }

    #[test]
    fn a_cgroup_is_found_by_its_own_inode_only() {
        let primary = index(7, Options::UNIFIED);
        assert!(is_there(primary.view(), &made(7)));
        assert!(!is_there(primary.view(), &made(8)));
        let secondary = index(3 << 56 | 7, Options::SECONDARY);
        assert!(is_there(secondary.view(), &made(7)));
        assert!(!is_gone(primary.view(), "/bellwire-demo-1"));
        assert!(is_gone(primary.view(), "/bellwire-demo-2"));
    }

    #[test]
    fn what_does_not_come_true_in_time_is_told_once() {
        let index = index(7, Options::UNIFIED);
        let mut expected = Expectations::default();
        expected.appearing.push((made(8), Instant::now()));
        expected.check(index.view());
        assert!(matches!(expected.take_verdicts()[..], [FromConsumer::Found { ok: false, .. }]));
        expected.check(index.view());
        assert!(expected.take_verdicts().is_empty());
    }
}
