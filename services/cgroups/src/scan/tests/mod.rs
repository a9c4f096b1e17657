//! Scans of synthetic hierarchies, and of this machine's.

mod identity;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{CgroupEntry, Index, MAX_PATH, Mode, Options, Orchestrator, encode, name_hash};
use cap_fs_ext::{DirExt, MetadataExt};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use tempfile::TempDir;

use super::*;

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn inode(dir: &Path) -> u64 {
    Dir::open_ambient_dir(dir, ambient_authority()).unwrap().dir_metadata().unwrap().ino()
}

/// A hierarchy of plain directories and files.
struct Tree(TempDir);

impl Tree {
    fn v2() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.file("cgroup.controllers", "cpu memory\n");
        tree
    }

    fn v1(hierarchies: &[&str]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for hierarchy in hierarchies {
            tree.file(&format!("{hierarchy}/cgroup.procs"), "1\n");
        }
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn v2_cgroup(&self, path: &str, populated: bool, controllers: &str) {
        let events = format!("populated {}\nfrozen 0\n", u8::from(populated));
        self.file(&format!("{path}/cgroup.events"), &events);
        self.file(&format!("{path}/cgroup.controllers"), controllers);
    }

    fn v1_cgroup(&self, path: &str, processes: &str) {
        self.file(&format!("{path}/cgroup.procs"), processes);
    }

    fn inode(&self, path: &str) -> u64 {
        inode(&self.path(path))
    }

    /// Creates a symbolic link, if this user may.
    fn link(&self, target: &str, path: &str) {
        let dir = Dir::open_ambient_dir(self.0.path(), ambient_authority()).unwrap();
        // For systems on which links to files and to directories differ: find out which is meant.
        if let Err(error) = DirExt::symlink(&dir, target, path) {
            eprintln!("without a link: {error}");
        }
    }

    /// Returns whether an open directory can be removed, as a cgroup can.
    fn can_remove_open_files(&self) -> bool {
        let path = self.path("open");
        fs::create_dir(&path).unwrap();
        let open = Dir::open_ambient_dir(&path, ambient_authority()).unwrap();
        let removed = fs::remove_dir(&path).is_ok();
        drop(open);
        removed
    }

    fn scan(&self) -> Scan {
        self.scan_within(Limits::default())
    }

    fn scan_within(&self, limits: Limits) -> Scan {
        let scanner = Scanner::new(self.0.path()).in_namespace_that_names_all(true);
        let scan = scanner.with_limits(limits).scan().unwrap();
        let bytes = encode(&scan.entries, scan.meta()).unwrap();
        assert_eq!(Index::validate(&bytes).unwrap().view().len(), scan.entries.len());
        scan
    }
}

fn at<'a>(scan: &'a Scan, path: &str) -> &'a CgroupEntry {
    scan.entries.iter().find(|entry| entry.path == path).unwrap_or_else(|| {
        let found: Vec<&str> = scan.entries.iter().map(|entry| entry.path.as_str()).collect();
        panic!("no {path} in {found:?}")
    })
}

fn paths(scan: &Scan) -> Vec<&str> {
    scan.entries.iter().map(|entry| entry.path.as_str()).collect()
}

#[test]
fn a_v2_tree_is_read() {
    let tree = Tree::v2();
    tree.v2_cgroup("system.slice", true, "cpu memory\n");
    tree.v2_cgroup("system.slice/ssh.service", true, "");
    tree.v2_cgroup("system.slice/idle.service", false, "memory\n");
    tree.v2_cgroup("system.slice/dead.service", false, "\n");
    let scan = tree.scan();
    assert_eq!(scan.mode, Mode::V2);
    assert_eq!(scan.skipped, Skipped::default());
    let expected = [
        "/",
        "/system.slice",
        "/system.slice/dead.service",
        "/system.slice/idle.service",
        "/system.slice/ssh.service",
    ];
    assert_eq!(paths(&scan), expected);

    let root = at(&scan, "/");
    assert_eq!(root.options, Options::ROOT | Options::UNIFIED | Options::POPULATED);
    assert_eq!((root.id, root.name.as_str(), root.enabled), (tree.inode(""), "root", true));
    let slice = at(&scan, "/system.slice");
    assert_eq!(slice.options, Options::UNIFIED | Options::POPULATED);
    let ssh = at(&scan, "/system.slice/ssh.service");
    let service = Options::UNIFIED | Options::LEAF | Options::SYSTEM_SERVICE;
    assert_eq!(ssh.options, service | Options::POPULATED);
    assert_eq!((ssh.id, ssh.name.as_str()), (tree.inode("system.slice/ssh.service"), "ssh"));
    assert!(ssh.enabled);
    let idle = at(&scan, "/system.slice/idle.service");
    assert_eq!((idle.options, idle.enabled), (service, true));
    let dead = at(&scan, "/system.slice/dead.service");
    assert_eq!((dead.options, dead.enabled), (service, false));
}

#[test]
fn a_cgroup_in_several_v1_hierarchies_is_one_item() {
    let tree = Tree::v1(&["cpu,cpuacct", "memory", "systemd", "pids"]);
    tree.link("cpu,cpuacct", "cpu");
    let docker = format!("docker/{}", id('a'));
    for hierarchy in ["memory", "pids", "cpu,cpuacct"] {
        tree.v1_cgroup(&format!("{hierarchy}/docker"), "");
        tree.v1_cgroup(&format!("{hierarchy}/{docker}"), "17\n");
    }
    tree.v1_cgroup("systemd/user.slice", "");
    let scan = tree.scan();
    assert_eq!(scan.mode, Mode::V1);
    assert_eq!(paths(&scan), ["/", "/docker", &format!("/{docker}"), "/user.slice"]);

    let container = at(&scan, &format!("/{docker}"));
    assert_eq!(container.id, tree.inode(&format!("cpu,cpuacct/{docker}")));
    assert_eq!(container.options, Options::LEGACY | Options::POPULATED | Options::LEAF);
    assert_eq!(container.name, "docker_aaaaaaaaaaaa");
    assert_eq!(container.orchestrator, Orchestrator::Docker);
    // Its own `cgroup.procs` is empty, and its child's is not.
    assert!(at(&scan, "/docker").options.contains(Options::POPULATED));
    // Only in a hierarchy without controllers, and empty.
    let slice = at(&scan, "/user.slice");
    assert_eq!(slice.options, Options::LEGACY | Options::LEAF | Options::SECONDARY);
    assert_eq!(slice.id << 8 >> 8, tree.inode("systemd/user.slice"));
    assert_ne!(slice.id >> 56, 0);
    assert!(!slice.enabled);
}

#[test]
fn in_a_hybrid_tree_the_unified_hierarchy_gives_the_ids_if_it_is_used() {
    let tree = Tree::v1(&["memory", "systemd"]);
    tree.file("unified/cgroup.controllers", "");
    tree.v1_cgroup("memory/a.slice", "");
    let scan = tree.scan();
    assert_eq!(scan.mode, Mode::Hybrid);
    assert_eq!(at(&scan, "/").id, tree.inode("memory"));
    assert_eq!(at(&scan, "/a.slice").id, tree.inode("memory/a.slice"));

    tree.v2_cgroup("unified/b.slice", true, "");
    let scan = tree.scan();
    assert_eq!(at(&scan, "/").id, tree.inode("unified"));
    let both = Options::UNIFIED | Options::LEGACY;
    assert!(at(&scan, "/").options.contains(both));
    assert_eq!(at(&scan, "/b.slice").id, tree.inode("unified/b.slice"));
    let a = at(&scan, "/a.slice");
    assert_eq!(a.id, 1 << 56 | tree.inode("memory/a.slice"));
    assert!(a.options.contains(Options::SECONDARY) && a.enabled);
}

#[test]
fn ids_do_not_change_when_a_cgroup_appears_in_a_hierarchy_that_had_none() {
    let tree = Tree::v1(&["memory", "systemd"]);
    tree.file("unified/cgroup.controllers", "");
    tree.v1_cgroup("memory/a.slice", "");
    let mut scanner = Scanner::new(tree.0.path());
    let before = at(&scanner.scan().unwrap(), "/a.slice").id;
    tree.v2_cgroup("unified/b.slice", true, "");
    let scan = scanner.scan().unwrap();
    assert_eq!(at(&scan, "/a.slice").id, before);
    assert!(at(&scan, "/b.slice").options.contains(Options::SECONDARY));
}

#[test]
fn a_unified_hierarchy_alone_in_its_directory_is_v2() {
    let tree = Tree(tempfile::tempdir().unwrap());
    tree.file("unified/cgroup.controllers", "cpu\n");
    tree.v2_cgroup("unified/a", true, "cpu\n");
    let scan = tree.scan();
    assert_eq!((scan.mode, paths(&scan)), (Mode::V2, vec!["/", "/a"]));
}

#[test]
fn a_root_without_a_hierarchy_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    let error = Scanner::new(empty.path()).scan().unwrap_err();
    assert!(matches!(error, ScanError::NoHierarchy { .. }), "{error}");
    let error = Scanner::new(&empty.path().join("absent")).scan().unwrap_err();
    assert!(matches!(error, ScanError::Root { .. }), "{error}");
}

#[test]
fn symbolic_links_are_not_followed() {
    let tree = Tree::v2();
    tree.v2_cgroup("a", true, "");
    tree.link("..", "a/up");
    tree.link("a", "b");
    assert_eq!(paths(&tree.scan()), ["/", "/a"]);
}

#[test]
fn names_that_a_snapshot_cannot_carry_are_counted() {
    let tree = Tree::v2();
    tree.v2_cgroup("good", true, "");
    let mut bad = 0;
    // For systems on which names are bytes.
    if let Ok(name) = serde_json::from_str::<OsString>(r#"{"Unix": [98, 97, 100, 255]}"#) {
        fs::create_dir(tree.0.path().join(name)).unwrap();
        bad += 1;
    }
    // Windows has no such names.
    bad += u32::from(fs::create_dir(tree.path("bad\x1b[31m")).is_ok());
    let scan = tree.scan();
    assert_eq!(paths(&scan), ["/", "/good"]);
    assert_eq!((scan.skipped.bad_name, scan.meta().skipped), (bad, bad));
}

#[test]
fn limits_are_kept_and_counted() {
    let tree = Tree::v2();
    for path in ["a", "a/b", "a/b/c", "d"] {
        tree.v2_cgroup(path, true, "");
    }
    let scan = tree.scan_within(Limits { items: 100, depth: 2 });
    assert_eq!(paths(&scan), ["/", "/a", "/a/b", "/d"]);
    assert_eq!(scan.skipped.too_deep, 1);
    let scan = tree.scan_within(Limits { items: 2, depth: 100 });
    assert_eq!(scan.entries.len(), 2);
    assert_eq!(scan.skipped.too_many, scan.meta().skipped);
    assert!(scan.skipped.too_many > 0);
}

#[test]
fn a_path_longer_than_a_snapshot_carries_is_counted() {
    let tree = Tree::v2();
    // Level by level, since the whole exceeds the length limit of a path.
    let level = "l".repeat(250);
    let mut dir = Dir::open_ambient_dir(tree.0.path(), ambient_authority()).unwrap();
    for _ in 0..=MAX_PATH / 251 {
        dir = match dir.create_dir(&level).and_then(|()| dir.open_dir(&level)) {
            Ok(dir) => dir,
            Err(error) => return eprintln!("skipped: no paths of this length here: {error}"),
        };
    }
    let scan = tree.scan();
    assert_eq!(scan.skipped.too_long, 1);
    assert!(scan.entries.iter().all(|entry| entry.path.len() <= MAX_PATH));
}

#[test]
fn a_provider_that_sees_no_processes_counts_them() {
    let tree = Tree::v1(&["memory", "pids"]);
    for (path, current) in [("busy", "3\n"), ("empty", "0\n")] {
        tree.v1_cgroup(&format!("memory/{path}"), "");
        tree.v1_cgroup(&format!("pids/{path}"), "");
        tree.file(&format!("pids/{path}/pids.current"), current);
    }
    tree.v1_cgroup("memory/uncounted/inside", "");
    tree.v1_cgroup("memory/uncounted", "");
    let mut scanner = Scanner::new(tree.0.path());
    for names_all in [true, false] {
        scanner = scanner.in_namespace_that_names_all(names_all);
        let scan = scanner.scan().unwrap();
        let populated = |path| at(&scan, path).options.contains(Options::POPULATED);
        assert!(populated("/busy") && !populated("/empty"));
        assert_eq!(populated("/uncounted/inside"), !names_all);
    }
}

#[test]
fn a_scan_reports_where_its_hierarchies_are() {
    let tree = Tree::v1(&["memory", "systemd"]);
    tree.file("unified/cgroup.controllers", "");
    tree.v2_cgroup("unified/a", true, "");
    tree.v1_cgroup("memory/b", "1\n");
    let scan = tree.scan();
    let root = tree.0.path().canonicalize().unwrap();
    let wanted = ["unified", "memory", "systemd"].map(|name| crate::Hierarchy {
        name: name.into(),
        root: root.join(name).to_str().unwrap().into(),
    });
    assert_eq!(scan.hierarchies, wanted);
    let writer = crate::SnapshotWriter::with_hierarchies(&scan.entries, &scan.hierarchies).unwrap();
    let mut bytes = vec![0; writer.encoded_len()];
    writer.write_to(scan.meta(), &mut bytes).unwrap();
    let index = Index::validate(&bytes).unwrap();
    for (path, file) in [("/a", "cgroup.events"), ("/b", "cgroup.procs")] {
        let cgroup = index.view().find_by_path(path).unwrap();
        let root = index.view().root_of(&cgroup).unwrap();
        assert!(Path::new(&format!("{root}{path}/{file}")).exists(), "{root}{path}");
    }
    let tree = Tree::v2();
    let root = tree.0.path().canonicalize().unwrap();
    assert_eq!(tree.scan().hierarchies[0].root, root.to_str().unwrap());
}

#[test]
fn cgroups_created_and_removed_during_a_scan_do_not_disturb_it() {
    let tree = Tree::v2();
    tree.v2_cgroup("steady", true, "");
    if !tree.can_remove_open_files() {
        return eprintln!("skipped: what is open cannot be removed here");
    }
    let stop = std::sync::Mutex::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !*stop.lock().unwrap() {
                for number in 0..20 {
                    fs::create_dir_all(tree.path(&format!("brief{number}/inner"))).unwrap();
                }
                for number in 0..20 {
                    fs::remove_dir_all(tree.path(&format!("brief{number}"))).unwrap();
                }
            }
        });
        // Checked after the other thread was told to stop: it must not outlive a failure.
        let scans: Vec<Scan> = (0..200).map(|_| tree.scan()).collect();
        *stop.lock().unwrap() = true;
        for scan in &scans {
            at(scan, "/steady");
            assert_eq!(scan.meta().skipped, 0, "{:?}", scan.skipped);
        }
    });
}

/// A cgroup of the machine this test runs on, removed at the end.
struct RealCgroup(PathBuf);

impl Drop for RealCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn the_machines_own_hierarchy_is_read() {
    let root = Path::new(Scanner::ROOT);
    let mut scanner = Scanner::new(root);
    let before = match scanner.scan() {
        Ok(scan) => scan,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    at(&before, "/");

    let unit = format!("bellwire-test-{}.service", std::process::id());
    let parents = ["unified", "", "memory"].map(|hierarchy| root.join(hierarchy));
    let made = parents.iter().find_map(|parent| {
        let dir = parent.join(&unit);
        let hierarchy = parent.join("cgroup.procs").exists();
        (hierarchy && fs::create_dir(&dir).is_ok()).then(|| RealCgroup(dir))
    });
    let Some(made) = made else {
        return eprintln!("skipped: this user may not make a cgroup below {}", root.display());
    };
    let inode = inode(&made.0);
    let scan = scanner.scan().unwrap();
    let bytes = encode(&scan.entries, scan.meta()).unwrap();
    let index = Index::validate(&bytes).unwrap();
    let name = unit.strip_suffix(".service").unwrap();
    let found = index.view().find_by_name(name_hash(name), name).unwrap();
    assert_eq!(found.path, format!("/{unit}"));
    assert_eq!(found.id << 8 >> 8, inode);
    assert_eq!(found.orchestrator, Orchestrator::Systemd);
    assert!(found.options.contains(Options::LEAF));
    assert!(!found.options.contains(Options::POPULATED));

    drop(made);
    let scan = scanner.scan().unwrap();
    assert!(scan.entries.iter().all(|entry| entry.name != name));
}
