//! Where names come from.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bellwire_cgroups::Orchestrator;
use bellwire_cgroups::scan::{Identity, Labels, labels};
use bellwire_process::{self as process, Interrupt};

use super::answer::{Answer, Name};
use super::patterns::Patterns;
use super::{engine, kubelet};

/// More bytes than a command writes.
const MOST: usize = 64 << 10;
/// Exit codes of a command.
const LATER: i32 = 2;
const EXCLUDED: i32 = 3;

/// A source of names, as the operator writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    File(PathBuf),
    Command(PathBuf),
    /// The socket of Docker's API.
    Docker(PathBuf),
    /// The socket of Podman's API.
    Podman(PathBuf),
    /// The directory of the kubelet's logs.
    Kubelet(PathBuf),
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, place) = match text.split_once(':') {
            Some((kind, place)) => (kind, Some(place).filter(|place| !place.is_empty())),
            None => (text, None),
        };
        let place = |default: &str| PathBuf::from(place.unwrap_or(default));
        let named = |kind: fn(PathBuf) -> Self| {
            Some(place("")).filter(|place| !place.as_os_str().is_empty()).map(kind)
        };
        let spec = match kind {
            "file" => named(Self::File),
            "command" => named(Self::Command),
            "docker" => Some(Self::Docker(place("/var/run/docker.sock"))),
            "podman" => Some(Self::Podman(place("/run/podman/podman.sock"))),
            "k8s" => Some(Self::Kubelet(place("/var/log"))),
            _ => None,
        };
        spec.ok_or_else(|| {
            "must be file:FILE, command:FILE, docker[:SOCKET], podman[:SOCKET] or k8s[:DIR]".into()
        })
    }
}

/// A source that is asked.
#[derive(Debug)]
pub(super) struct Source {
    spec: Spec,
    /// Of a file.
    lines: Mutex<Lines>,
    /// The last failure that was reported.
    pub(super) reported: Mutex<Option<String>>,
}

/// The lines of a file.
#[derive(Debug, Default)]
struct Lines {
    /// The file's time and length when it was read.
    stamp: Option<(SystemTime, u64)>,
    by_path: HashMap<String, Name>,
}

/// A cgroup whose name is asked for.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) path: &'a str,
    identity: Identity,
    labels: Labels,
}

impl<'a> Subject<'a> {
    pub(super) fn of(path: &'a str) -> Self {
        Self { path, identity: Identity::of(path), labels: labels(path) }
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn is_run_by(&self, orchestrators: &[Orchestrator]) -> bool {
        orchestrators.contains(&self.identity.orchestrator)
    }
}

impl Source {
    pub(super) fn new(spec: Spec) -> Self {
        Self { spec, lines: Mutex::default(), reported: Mutex::default() }
    }

    /// Reads a file again if it has changed; returns whether it has.
    pub(super) fn reload(&self) -> Result<bool, String> {
        let Spec::File(file) = &self.spec else { return Ok(false) };
        let unread = |error: std::io::Error| format!("cannot read {}: {error}", file.display());
        let stat = fs::metadata(file).map_err(unread)?;
        let stamp = Some((stat.modified().map_err(unread)?, stat.len()));
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.stamp == stamp {
            return Ok(false);
        }
        // A file with a wrong line is reported once, and its names stay as they were.
        let text = fs::read_to_string(file).map_err(unread)?;
        lines.stamp = stamp;
        lines.by_path = parse(&text).map_err(|why| format!("{}: {why}", file.display()))?;
        Ok(true)
    }

    /// Returns whether this source may know a cgroup's name. A command is run only for the paths in `rename`.
    pub(super) fn concerns(&self, subject: &Subject<'_>, rename: Option<&Patterns>) -> bool {
        use Orchestrator::{Docker, K8s, Podman, Systemd, Unknown};
        let has = |name| subject.label(name).is_some();
        match &self.spec {
            Spec::File(_) => self.line_of(subject.path).is_some(),
            Spec::Command(_) => rename.map_or(!subject.is_run_by(&[Unknown, Systemd]), |rename| {
                rename.mean(subject.path)
            }),
            Spec::Docker(_) => subject.is_run_by(&[Docker, K8s]) && has("container_id"),
            Spec::Podman(_) => {
                subject.is_run_by(&[Podman]) && (has("container_id") || has("pod_id"))
            }
            Spec::Kubelet(_) => {
                subject.is_run_by(&[K8s]) && (has("container_id") || has("pod_uid"))
            }
        }
    }

    /// Asks for a cgroup's name, at most for `limit`.
    pub(super) fn ask(
        &self,
        subject: &Subject<'_>,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Answer, String> {
        let container = subject.label("container_id");
        match (&self.spec, container) {
            (Spec::File(_), _) => {
                Ok(self.line_of(subject.path).map_or(Answer::Unknown, Answer::Known))
            }
            (Spec::Command(command), _) => run(command, subject, limit, interrupt),
            (Spec::Docker(socket) | Spec::Podman(socket), Some(id)) => {
                engine::container(socket, id, limit)
            }
            (Spec::Podman(socket), None) => match subject.label("pod_id") {
                Some(id) => engine::pod(socket, id, limit),
                None => Ok(Answer::Unknown),
            },
            (Spec::Docker(_), None) => Ok(Answer::Unknown),
            (Spec::Kubelet(logs), Some(id)) => kubelet::container(logs, id),
            (Spec::Kubelet(logs), None) => match subject.label("pod_uid") {
                Some(uid) => kubelet::pod(logs, uid),
                None => Ok(Answer::Unknown),
            },
        }
    }

    fn line_of(&self, path: &str) -> Option<Name> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.by_path.get(path).cloned()
    }
}

/// Parses lines of a path, a name and labels; empty ones and those that begin with `#` say nothing.
fn parse(text: &str) -> Result<HashMap<String, Name>, String> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let parsed = lines.map(|(number, line)| {
        let (path, rest) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| format!("line {number} has no name behind the path"))?;
        let name = Name::parse(rest).map_err(|why| format!("line {number}: {why}"))?;
        Ok((path.to_owned(), name))
    });
    parsed.collect()
}

fn run(
    command: &Path,
    subject: &Subject<'_>,
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<Answer, String> {
    let mut call = Command::new(command);
    call.args([subject.path, &subject.identity.name]).stdin(Stdio::null());
    let ran = process::run_within(&mut call, limit, MOST, interrupt);
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", command.display());
    let ran = ran.map_err(|error| failed(&error))?;
    match ran.status.code() {
        Some(LATER) => Ok(Answer::Later),
        Some(EXCLUDED) => Ok(Answer::Excluded),
        Some(0) => {
            let text = String::from_utf8_lossy(&ran.stdout);
            match text.lines().find(|line| !line.trim().is_empty()) {
                Some(line) => Name::parse(line).map(Answer::Known).map_err(|why| failed(&why)),
                None => Ok(Answer::Unknown),
            }
        }
        _ => Err(failed(&ran.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_named_on_the_command_line() {
        let spec = |text: &str| text.parse::<Spec>();
        assert_eq!(spec("docker"), Ok(Spec::Docker("/var/run/docker.sock".into())));
        assert_eq!(spec("podman:/x.sock"), Ok(Spec::Podman("/x.sock".into())));
        assert_eq!(spec("k8s:/logs"), Ok(Spec::Kubelet("/logs".into())));
        assert_eq!(spec("command:/a:b"), Ok(Spec::Command("/a:b".into())));
        for text in ["", "file", "file:", "command", "lxc", "/etc/names"] {
            spec(text).unwrap_err();
        }
    }

    #[test]
    fn each_source_is_queried_only_for_cgroups_that_it_may_name() {
        let (id, uid) = ("c".repeat(64), "2ca4a155-3599-498d-bb9d-4446693fa3ea");
        let sources =
            ["command:x", "docker", "podman", "k8s"].map(|spec| Source::new(spec.parse().unwrap()));
        let asked = |path: &str| {
            let subject = Subject::of(path);
            sources.each_ref().map(|source| u8::from(source.concerns(&subject, None)))
        };
        for (path, wanted) in [
            ("/".into(), [0, 0, 0, 0]),
            ("/system.slice/cron.service".into(), [0, 0, 0, 0]),
            (format!("/docker/{id}"), [1, 1, 0, 0]),
            (format!("/ecstasks.slice/ecstasks-1.slice/docker-{id}.scope"), [1, 1, 0, 0]),
            ("/docker".into(), [1, 0, 0, 0]),
            (format!("/machine.slice/libpod-{id}.scope"), [1, 0, 1, 0]),
            (format!("/machine.slice/machine-libpod_pod_{id}.slice"), [1, 0, 1, 0]),
            (format!("/kubepods/besteffort/pod{uid}"), [1, 0, 0, 1]),
            (format!("/kubepods/besteffort/pod{uid}/{id}"), [1, 1, 0, 1]),
            (format!("/k8s.io/{id}"), [1, 1, 0, 1]),
            (format!("/default/{id}"), [1, 0, 0, 0]),
            (format!("/nomad.slice/share.slice/{uid}.web.scope"), [1, 0, 0, 0]),
            ("/machine.slice/machine-qemu\\x2d3\\x2dweb.scope".into(), [1, 0, 0, 0]),
            ("/lxc.payload.web".into(), [1, 0, 0, 0]),
            ("/machine.slice/machine-web.scope".into(), [1, 0, 0, 0]),
        ] {
            assert_eq!(asked(&path), wanted, "{path}");
        }
        let rename: Patterns = "!/docker* *".parse().unwrap();
        let command = |path| sources[0].concerns(&Subject::of(path), Some(&rename));
        assert!(command("/system.slice/cron.service") && !command("/docker/x"));
    }

    #[test]
    fn a_file_has_a_line_for_each_cgroup() {
        let lines = parse("# names\n\n/lxc/a  web image=\"x\"\n/b mail\n").unwrap();
        assert_eq!((lines.len(), lines["/b"].name.as_str()), (2, "mail"));
        assert_eq!(lines["/lxc/a"].labels, [("image".to_owned(), "x".to_owned())]);
        assert!(parse("/a x\n/b\n").unwrap_err().contains("line 2"));
        assert!(parse("/a x y").unwrap_err().contains("line 1"));
    }
}
