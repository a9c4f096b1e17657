//! Real cgroups that appear and disappear, so that there are changes to see.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bellwire_cgroups::{Options, View, name_hash};
use cap_fs_ext::MetadataExt;
use cap_std::fs::Dir;

/// The prefix of the names of the demo's cgroups.
const PREFIX: &str = "bellwire-demo-";
/// The hierarchies below a v1 or hybrid root, in the order in which the scanner prefers them.
const HIERARCHIES: [&str; 6] = ["unified", "cpuacct", "cpu", "memory", "pids", "systemd"];
/// How long a change of the hierarchy may stay unseen. The provider scans every 50 ms.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// The demo's cgroups, each of which shall appear in a snapshot, and disappear from it. Dropping it removes them.
#[derive(Debug)]
pub(super) struct TestCgroups {
    place: Option<Place>,
    most: usize,
    number: u32,
    /// Oldest first.
    cgroups: VecDeque<Cgroup>,
    /// The paths of those removed that are not seen to be gone, and until when they must be.
    disappearing: Vec<(String, Instant)>,
    pub(super) made: u64,
    pub(super) found: u64,
    pub(super) not_found: u64,
    pub(super) removed: u64,
    pub(super) gone: u64,
    pub(super) not_gone: u64,
    /// Cgroups left by earlier demos that were killed.
    pub(super) stale: u64,
    pub(super) trouble: Option<String>,
}

/// Where cgroups can be created.
#[derive(Debug)]
struct Place {
    dir: PathBuf,
    /// The path of `dir` below its hierarchy's root; empty for the root.
    below: String,
}

/// A cgroup that was created.
#[derive(Debug)]
struct Cgroup {
    dir: PathBuf,
    /// As in a snapshot.
    path: String,
    inode: u64,
    /// Until when it must be seen.
    until: Instant,
    /// Seen in a snapshot, or given up.
    seen: bool,
    // Shows other demos that it is in use; the lock ends with its process.
    _lock: File,
}

impl TestCgroups {
    /// Finds a place for at most `most` cgroups and removes those of killed demos there.
    pub(super) fn prepare(root: &Path, most: u16) -> Self {
        let mut stale = 0;
        let (mut place, mut trouble) = (None, None);
        for candidate in places(root) {
            stale += sweep(&candidate.dir);
            if place.is_some() || most == 0 {
                continue;
            }
            match try_out(&candidate.dir) {
                Ok(()) => place = Some(candidate),
                Err(error) => {
                    let why = format!("{}: {error}", candidate.dir.display());
                    trouble.get_or_insert(why);
                }
            }
        }
        if place.is_some() || most == 0 {
            trouble = None;
        }
        Self {
            place,
            most: usize::from(most),
            number: 0,
            cgroups: VecDeque::new(),
            disappearing: Vec::new(),
            made: 0,
            found: 0,
            not_found: 0,
            removed: 0,
            gone: 0,
            not_gone: 0,
            stale,
            trouble,
        }
    }

    /// Returns where cgroups are created, if possible.
    pub(super) fn place(&self) -> Option<&Path> {
        self.place.as_ref().map(|place| place.dir.as_path())
    }

    /// Creates some cgroups if there is room, otherwise removes some that were seen.
    pub(super) fn step(&mut self) {
        let some = self.most.div_ceil(4);
        let room = self.most - self.cgroups.len().min(self.most);
        if room > 0 && self.growing() {
            (0..some.min(room)).for_each(|_| self.make());
        } else {
            (0..some).for_each(|_| self.remove_oldest_seen());
        }
    }

    /// Removes the cgroups that were seen or given up.
    pub(super) fn shrink(&mut self) {
        (0..self.cgroups.len()).for_each(|_| self.remove_oldest_seen());
    }

    /// Returns whether every change was seen or given up, and no cgroup is left.
    pub(super) fn is_caught_up(&self) -> bool {
        self.cgroups.is_empty() && self.disappearing.is_empty()
    }

    /// Checks which changes a snapshot shows, and which it does not show in time.
    pub(super) fn check(&mut self, view: View<'_>) {
        let now = Instant::now();
        for cgroup in self.cgroups.iter_mut().filter(|cgroup| !cgroup.seen) {
            let ok = is_there(view, &cgroup.path, cgroup.inode);
            cgroup.seen = ok || now >= cgroup.until;
            self.found += u64::from(ok);
            self.not_found += u64::from(cgroup.seen && !ok);
        }
        self.disappearing.retain(|(path, until)| {
            let ok = is_gone(view, path);
            let is_late = !ok && now >= *until;
            self.gone += u64::from(ok);
            self.not_gone += u64::from(is_late);
            !ok && !is_late
        });
    }

    /// Postpones all deadlines by `by`.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.cgroups.iter_mut().for_each(|cgroup| cgroup.until += by);
        self.disappearing.iter_mut().for_each(|(_, until)| *until += by);
    }

    /// Returns the current direction: alternately up to the limit and down to zero.
    fn growing(&self) -> bool {
        self.removed.is_multiple_of(self.most.max(1) as u64)
    }

    fn make(&mut self) {
        let Some(place) = &self.place else { return };
        self.number += 1;
        let name = format!("{PREFIX}{}-{}", std::process::id(), self.number);
        let dir = place.dir.join(&name);
        match claim(&dir) {
            Ok((lock, inode)) => {
                self.made += 1;
                let (path, until) =
                    (format!("{}/{name}", place.below), Instant::now() + CHANGE_TIMEOUT);
                let cgroup = Cgroup { dir, path, inode, until, seen: false, _lock: lock };
                self.cgroups.push_back(cgroup);
            }
            Err(error) => {
                self.trouble = Some(format!("cannot make {}: {error}", dir.display()));
            }
        }
    }

    fn remove_oldest_seen(&mut self) {
        let Some(cgroup) = self.cgroups.pop_front_if(|cgroup| cgroup.seen) else { return };
        match fs::remove_dir(&cgroup.dir) {
            Ok(()) => {
                self.removed += 1;
                self.disappearing.push((cgroup.path, Instant::now() + CHANGE_TIMEOUT));
            }
            Err(error) => {
                self.trouble = Some(format!("cannot remove {}: {error}", cgroup.dir.display()));
            }
        }
    }
}

impl Drop for TestCgroups {
    fn drop(&mut self) {
        for cgroup in &self.cgroups {
            let _ = fs::remove_dir(&cgroup.dir);
        }
    }
}

/// Returns places where cgroups may be possible: the root of each hierarchy, this process's own cgroup, which may be
/// delegated to its user, and the cgroups above that.
fn places(root: &Path) -> Vec<Place> {
    let unified = |dir: &Path| dir.join("cgroup.controllers").exists();
    let top = |dir: PathBuf| Place { dir, below: String::new() };
    let hierarchies: Vec<PathBuf> = if unified(root) {
        vec![root.to_owned()]
    } else {
        let below = HIERARCHIES.iter().map(|name| root.join(name));
        below.filter(|dir| dir.join("cgroup.procs").exists()).collect()
    };
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let base = hierarchies.iter().find(|dir| unified(dir)).cloned();
    let mut places: Vec<Place> = hierarchies.into_iter().map(top).collect();
    if let Some(base) = base {
        let ancestors = Path::new(own).ancestors().filter(|path| !path.as_os_str().is_empty());
        places.extend(
            ancestors
                .map(|path| Place { dir: base.join(path), below: format!("/{}", path.display()) }),
        );
    }
    places
}

fn try_out(dir: &Path) -> io::Result<()> {
    let trial = dir.join(format!("{PREFIX}{}-0", std::process::id()));
    fs::create_dir(&trial)?;
    fs::remove_dir(&trial)
}

/// Creates a cgroup, locks its directory and returns its inode too. If another demo's sweep removes it in between, tries once
/// more.
fn claim(dir: &Path) -> io::Result<(File, u64)> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        fs::create_dir(dir)?;
        let locked = File::open(dir).and_then(|file| {
            file.try_lock()?;
            let (held, named) = (inode(file.try_clone()?)?, inode(File::open(dir)?)?);
            if held == named { Ok((file, held)) } else { Err(io::ErrorKind::NotFound.into()) }
        });
        match locked {
            Err(_) if attempt < 3 => {
                let _ = fs::remove_dir(dir);
            }
            locked => return locked,
        }
    }
}

fn inode(dir: File) -> io::Result<u64> {
    Ok(Dir::from_std_file(dir).dir_metadata()?.ino())
}

/// Removes the cgroups of demos that no longer run, and returns their number.
fn sweep(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
    };
    let stale = |path: &PathBuf| {
        let free = File::open(path).is_ok_and(|file| file.try_lock().is_ok());
        free && fs::remove_dir(path).is_ok()
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths.filter(ours).filter(stale).count() as u64
}

/// Returns whether a cgroup is found by its path, by its id, which is its inode, and by its name, which ends with its
/// directory's.
fn is_there(view: View<'_>, path: &str, inode: u64) -> bool {
    let Some(cgroup) = view.find_by_path(path) else { return false };
    let found = match cgroup.options.contains(Options::SECONDARY) {
        true => cgroup.id & (u64::MAX >> 8),
        false => cgroup.id,
    };
    found == inode
        && view.find_by_id(cgroup.id) == Some(cgroup)
        && cgroup.name.ends_with(directory(path))
        && view.find_by_name(name_hash(cgroup.name), cgroup.name) == Some(cgroup)
}

fn is_gone(view: View<'_>, path: &str) -> bool {
    let directory = directory(path);
    view.find_by_path(path).is_none()
        && view.find_by_name(name_hash(directory), directory).is_none()
}

fn directory(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwire_cgroups::{CgroupEntry, Index, Meta, Mode, Orchestrator, encode};

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "").unwrap();
        root
    }

    /// Returns whether a directory can be locked: not on systems where it cannot be opened like a file. Those create no
    /// cgroups either.
    fn can_lock(root: &tempfile::TempDir) -> bool {
        let can = File::open(root.path()).is_ok();
        if !can {
            eprintln!("skipped: directories cannot be locked here");
        }
        can
    }

    fn names(root: &Path) -> usize {
        fs::read_dir(root).unwrap().count() - 1
    }

    /// A snapshot of these cgroups, by path and inode.
    fn snapshot(cgroups: &[(&str, u64)], options: Options) -> Index {
        let entry = |&(path, id): &(&str, u64)| CgroupEntry {
            id,
            name: directory(path).into(),
            path: path.into(),
            options,
            enabled: true,
            orchestrator: Orchestrator::Unknown,
            labels: Vec::new(),
        };
        let mut entries: Vec<_> = cgroups.iter().map(entry).collect();
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Index::validate(&encode(&entries, Meta::now(Mode::V2)).unwrap()).unwrap()
    }

    #[test]
    fn cgroups_are_created_up_to_the_limit_and_removed_once_seen() {
        let root = tree();
        if !can_lock(&root) {
            return;
        }
        let mut test_cgroups = TestCgroups::prepare(root.path(), 2);
        assert_eq!(test_cgroups.place(), Some(root.path()));
        test_cgroups.step();
        test_cgroups.step();
        assert_eq!((test_cgroups.made, names(root.path())), (2, 2));
        let made = |test_cgroups: &TestCgroups| {
            let made =
                test_cgroups.cgroups.iter().map(|cgroup| (cgroup.path.clone(), cgroup.inode));
            made.collect::<Vec<_>>()
        };
        let made = made(&test_cgroups);
        let shown: Vec<_> = made.iter().map(|(path, inode)| (path.as_str(), *inode)).collect();
        test_cgroups.step();
        test_cgroups.check(snapshot(&[], Options::UNIFIED).view());
        test_cgroups.shrink();
        assert_eq!((test_cgroups.found, names(root.path())), (0, 2), "nothing goes unseen");
        test_cgroups.check(snapshot(&shown, Options::UNIFIED).view());
        test_cgroups.shrink();
        assert_eq!((test_cgroups.found, test_cgroups.removed, names(root.path())), (2, 2, 0));
        test_cgroups.check(snapshot(&shown, Options::UNIFIED).view());
        assert!(!test_cgroups.is_caught_up());
        test_cgroups.check(snapshot(&[], Options::UNIFIED).view());
        assert!(test_cgroups.is_caught_up() && test_cgroups.gone == 2);
    }

    #[test]
    fn files_of_a_killed_demo_are_removed_and_those_of_a_running_one_stay() {
        let root = tree();
        if !can_lock(&root) {
            return;
        }
        fs::create_dir(root.path().join("bellwire-demo-1-1")).unwrap();
        let mut running = TestCgroups::prepare(root.path(), 1);
        assert_eq!(running.stale, 1);
        running.step();
        assert_eq!(TestCgroups::prepare(root.path(), 1).stale, 0);
        assert_eq!(names(root.path()), 1);
        drop(running);
        assert_eq!(names(root.path()), 0);
    }

    #[test]
    fn a_cgroup_is_found_by_its_own_inode_only() {
        const PATH: &str = "/bellwire-demo-1";
        let primary = snapshot(&[(PATH, 7)], Options::UNIFIED);
        assert!(is_there(primary.view(), PATH, 7));
        assert!(!is_there(primary.view(), PATH, 8));
        let secondary = snapshot(&[(PATH, 3 << 56 | 7)], Options::SECONDARY);
        assert!(is_there(secondary.view(), PATH, 7));
        assert!(!is_gone(primary.view(), PATH));
        assert!(is_gone(primary.view(), "/bellwire-demo-2"));
    }

    #[test]
    fn a_condition_that_fails_in_time_counts_once() {
        let mut test_cgroups = TestCgroups::prepare(Path::new("/nowhere"), 0);
        test_cgroups.disappearing.push(("/a".into(), Instant::now()));
        let shown = snapshot(&[("/a", 7)], Options::UNIFIED);
        test_cgroups.check(shown.view());
        test_cgroups.check(shown.view());
        assert_eq!((test_cgroups.not_gone, test_cgroups.gone), (1, 0));
    }
}
