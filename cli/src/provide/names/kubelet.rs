//! The names of pods and containers, as the kubelet writes them into the names of log files on every node.

use std::fs;
use std::io;
use std::path::Path;

use super::answer::{Answer, Name};

/// Finds a container: the kubelet links `containers/<pod>_<namespace>_<container>-<id>.log` to its log.
pub(super) fn container(logs: &Path, id: &str) -> Result<Answer, String> {
    let found = find(&logs.join("containers"), |file| {
        let stem = file.strip_suffix(".log")?.strip_suffix(id)?.strip_suffix('-')?;
        let mut parts = stem.splitn(3, '_');
        Some([parts.next()?, parts.next()?, parts.next()?].map(str::to_owned))
    })?;
    named(found.map(|[pod, namespace, container]| vec![namespace, pod, container]))
}

/// Finds a pod by its uid: the directory `pods/<namespace>_<pod>_<uid>`.
pub(super) fn pod(logs: &Path, uid: &str) -> Result<Answer, String> {
    let found = find(&logs.join("pods"), |dir| {
        let (namespace, pod) = dir.strip_suffix(uid)?.strip_suffix('_')?.split_once('_')?;
        Some(vec![namespace.to_owned(), pod.to_owned()])
    })?;
    named(found)
}

/// What has no log yet may get one; the pause container of a pod never does.
fn named(parts: Option<Vec<String>>) -> Result<Answer, String> {
    let Some(parts) = parts else { return Ok(Answer::Later) };
    let labels = ["namespace", "pod", "container"].map(str::to_owned).into_iter();
    let name = format!("k8s_{}", parts.join("_"));
    Name::of(&name, labels.zip(parts)).map(Answer::Known)
}

/// Returns what `parse` makes of the first name in a directory that it knows.
fn find<T>(dir: &Path, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, String> {
    let search = || -> io::Result<Option<T>> {
        for entry in fs::read_dir(dir)? {
            if let Some(found) = entry?.file_name().to_str().and_then(&parse) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    };
    search().map_err(|error| format!("cannot read {}: {error}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_and_containers_are_known_by_their_logs() {
        let logs = tempfile::tempdir().unwrap();
        let (id, uid) = ("c".repeat(64), "2ca4a155-3599-498d-bb9d-4446693fa3ea");
        container(logs.path(), &id).unwrap_err();
        fs::create_dir_all(logs.path().join(format!("pods/shop_web-7d9_{uid}/nginx"))).unwrap();
        fs::create_dir(logs.path().join("containers")).unwrap();
        assert_eq!(container(logs.path(), &id), Ok(Answer::Later));
        let link = format!("containers/web-7d9_shop_nginx-{id}.log");
        fs::write(logs.path().join(link), "").unwrap();
        let printed = |answer| match answer {
            Ok(Answer::Known(Name { name, labels })) => {
                let labels = labels.into_iter().map(|(name, value)| format!(" {name}={value}"));
                name + &labels.collect::<String>()
            }
            other => panic!("{other:?}"),
        };
        let found = printed(container(logs.path(), &id));
        assert_eq!(found, "k8s_shop_web-7d9_nginx namespace=shop pod=web-7d9 container=nginx");
        assert_eq!(printed(pod(logs.path(), uid)), "k8s_shop_web-7d9 namespace=shop pod=web-7d9");
        assert_eq!(pod(logs.path(), "other"), Ok(Answer::Later));
    }
}
