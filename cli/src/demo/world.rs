//! Real cgroups that appear and disappear, so that there are changes to see.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use cap_fs_ext::MetadataExt;
use cap_std::fs::Dir;

use super::protocol::Made;

/// The prefix of the names of the demo's cgroups.
const PREFIX: &str = "bellwire-demo-";
/// The hierarchies below a v1 or hybrid root, in the order in which the scanner prefers them.
const HIERARCHIES: [&str; 6] = ["unified", "cpuacct", "cpu", "memory", "pids", "systemd"];

/// The demo's cgroups. Dropping it removes them.
#[derive(Debug)]
pub(super) struct World {
    place: Option<Place>,
    most: usize,
    number: u32,
    /// Oldest first.
    cgroups: VecDeque<Cgroup>,
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
    made: Made,
    seen: bool,
    // Shows other demos that it is in use; the lock ends with its process.
    _lock: File,
}

/// The result of one step.
#[derive(Debug)]
pub(super) enum Change {
    Made(Made),
    Removed(String),
}

impl World {
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

    /// Creates some cgroups if there is room, otherwise removes some that the consumer has seen.
    pub(super) fn step(&mut self) -> Vec<Change> {
        let some = self.most.div_ceil(4);
        let room = self.most - self.cgroups.len().min(self.most);
        if room > 0 && self.growing() {
            return (0..some.min(room)).filter_map(|_| self.make()).collect();
        }
        (0..some).filter_map(|_| self.remove_oldest_seen()).collect()
    }

    /// Removes cgroups that the consumer has seen or given up.
    pub(super) fn shrink(&mut self) -> Vec<Change> {
        std::iter::from_fn(|| self.remove_oldest_seen()).collect()
    }

    /// Returns whether the consumer has seen or given up every change, and no cgroup is left.
    pub(super) fn is_settled(&self) -> bool {
        self.cgroups.is_empty() && self.removed == self.gone + self.not_gone
    }

    pub(super) fn found(&mut self, path: &str, ok: bool) {
        *if ok { &mut self.found } else { &mut self.not_found } += 1;
        if let Some(cgroup) = self.cgroups.iter_mut().find(|cgroup| cgroup.made.path == path) {
            cgroup.seen = true;
        }
    }

    pub(super) fn gone(&mut self, ok: bool) {
        *if ok { &mut self.gone } else { &mut self.not_gone } += 1;
    }

    /// Returns the current direction: alternately up to the limit and down to zero.
    fn growing(&self) -> bool {
        self.removed.is_multiple_of(self.most.max(1) as u64)
    }

    fn make(&mut self) -> Option<Change> {
        let place = self.place.as_ref()?;
        self.number += 1;
        let name = format!("{PREFIX}{}-{}", std::process::id(), self.number);
        let dir = place.dir.join(&name);
        let cgroup = claim(&dir).map(|(lock, inode)| {
            let path = format!("{}/{name}", place.below);
            Cgroup { dir: dir.clone(), made: Made { path, inode }, seen: false, _lock: lock }
        });
        match cgroup {
            Ok(cgroup) => {
                self.made += 1;
                let made = cgroup.made.clone();
                self.cgroups.push_back(cgroup);
                Some(Change::Made(made))
            }
            Err(error) => {
                self.trouble = Some(format!("cannot make {}: {error}", dir.display()));
                None
            }
        }
    }

    fn remove_oldest_seen(&mut self) -> Option<Change> {
        let cgroup = self.cgroups.pop_front_if(|cgroup| cgroup.seen)?;
        match fs::remove_dir(&cgroup.dir) {
            Ok(()) => {
                self.removed += 1;
                Some(Change::Removed(cgroup.made.path.clone()))
            }
            Err(error) => {
                self.trouble = Some(format!("cannot remove {}: {error}", cgroup.dir.display()));
                None
            }
        }
    }
}

impl Drop for World {
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn cgroups_come_up_to_the_limit_and_go_when_they_were_seen() {
        let root = tree();
        if !can_lock(&root) {
            return;
        }
        let mut world = World::prepare(root.path(), 2);
        assert_eq!(world.place(), Some(root.path()));
        for _ in 0..2 {
            let changes = world.step();
            let [Change::Made(made)] = &changes[..] else { panic!("{changes:?}") };
            assert!(root.path().join(&made.path[1..]).is_dir());
        }
        assert!(world.step().is_empty(), "nothing goes unseen");
        let paths: Vec<_> = world.cgroups.iter().map(|cgroup| cgroup.made.path.clone()).collect();
        for path in &paths {
            world.found(path, true);
        }
        assert_eq!(world.shrink().len(), 2);
        assert!(!world.is_settled());
        world.gone(true);
        world.gone(true);
        assert!(world.is_settled());
        assert_eq!(names(root.path()), 0);
    }

    #[test]
    fn what_a_killed_demo_left_is_removed_and_what_a_running_one_has_is_not() {
        let root = tree();
        if !can_lock(&root) {
            return;
        }
        fs::create_dir(root.path().join("bellwire-demo-1-1")).unwrap();
        let mut running = World::prepare(root.path(), 1);
        assert_eq!(running.stale, 1);
        running.step();
        assert_eq!(World::prepare(root.path(), 1).stale, 0);
        assert_eq!(names(root.path()), 1);
        drop(running);
        assert_eq!(names(root.path()), 0);
    }
}
