//! Properties of a cgroup that its path shows besides its orchestrator.

use crate::Orchestrator;

use super::orchestrator::{Label, components};

/// Labels by name.
pub type Labels = Vec<(String, String)>;

/// Returns the labels of a path: `unit` and `slice` of systemd; `container_id`, `pod_uid` and `qos`; `pod_id` of podman;
/// `machine`; `alloc_id` and `task` of Nomad. Each from the innermost component.
pub fn labels(path: &str) -> Labels {
    let mut labels = Labels::new();
    for (component, found) in components(path) {
        match found {
            Some((orchestrator, label)) => workload(orchestrator, &label, &mut labels),
            None if component.ends_with(".slice") => put(&mut labels, "slice", component),
            None => put(&mut labels, "unit", component),
        }
    }
    labels
}

fn workload(orchestrator: Orchestrator, label: &Label<'_>, labels: &mut Labels) {
    match (orchestrator, label) {
        // A container's monitor is not a container.
        (_, Label::Id(prefix, _)) if prefix.ends_with("conmon") => {}
        (_, Label::Id("podman_pod", id)) => put(labels, "pod_id", id),
        (_, Label::Id(_, id)) => put(labels, "container_id", id),
        (_, Label::Task(allocation, task)) => {
            put(labels, "alloc_id", allocation);
            put(labels, "task", task);
        }
        (Orchestrator::K8s, Label::Named("k8s_pod", uid)) => put(labels, "pod_uid", uid),
        (Orchestrator::K8s, Label::Named(_, qos)) => put(labels, "qos", qos),
        (Orchestrator::K8s, Label::Plain(slice)) => {
            let class = slice.rsplit('-').next().filter(|class| QOS.contains(class));
            class.into_iter().for_each(|class| put(labels, "qos", class));
        }
        (_, Label::Named(prefix, name)) if !prefix.contains("monitor") => {
            put(labels, "machine", name);
        }
        _ => {}
    }
}

const QOS: [&str; 3] = ["burstable", "besteffort", "guaranteed"];

fn put(labels: &mut Labels, name: &str, value: &str) {
    match labels.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => value.clone_into(known),
        None => labels.push((name.to_owned(), value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths and their labels.
    const PATHS: &str = r"
/ =>
/custom/x =>
/system.slice/cron.service => slice=system.slice unit=cron.service
/user.slice/user-1000.slice/session-3.scope => slice=user-1000.slice unit=session-3.scope
/docker/{id} => container_id={id}
/system.slice/docker-{id}.scope => slice=system.slice container_id={id}
/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{id}.scope => qos=burstable pod_uid={uid} container_id={id}
/kubepods/besteffort/pod{uid}/{id} => qos=besteffort pod_uid={uid} container_id={id}
/machine.slice/machine-qemu\x2d3\x2dweb.scope => slice=machine.slice machine=web
/nomad.slice/share.slice/{uid}.web.scope => slice=share.slice alloc_id={uid} task=web
/k8s.io/{id} => container_id={id}
/lxc/web/init.scope => machine=web unit=init.scope
/lxc.monitor.web =>
/machine.slice/libpod-conmon-{id}.scope => slice=machine.slice
";

    #[test]
    fn a_path_identifies_units_containers_pods_and_machines() {
        let uid = "2ca4a155-3599-498d-bb9d-4446693fa3ea";
        let pod = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
        let table = PATHS.replace("{id}", &"c".repeat(64)).replace("{uid}", uid);
        for line in table.replace("{pod}", &pod).lines().skip(1) {
            let (path, wanted) = line.split_once(" =>").unwrap();
            let printed = labels(path).into_iter().map(|(name, value)| format!(" {name}={value}"));
            assert_eq!(printed.collect::<String>(), wanted, "{path}");
        }
    }
}
