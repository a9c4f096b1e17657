use std::borrow::Cow;

use crate::Orchestrator;

use super::identity::unescape;

/// The component of a path that shows who manages the cgroup, and its name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner<'a> {
    pub(super) orchestrator: Orchestrator,
    pub(super) label: Label<'a>,
    /// The path after the component, without a leading `/`; empty if it is the last one.
    pub(super) inside: &'a str,
}

/// How a name is derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Label<'a> {
    /// A prefix and the first 12 digits of an id.
    Id(&'static str, &'a str),
    /// A prefix and a name.
    Named(&'static str, Cow<'a, str>),
    /// The component as it is.
    Plain(&'a str),
    /// A Nomad allocation's id, and its task.
    Task(&'a str, &'a str),
    /// A systemd unit.
    Unit(&'a str),
}

/// Returns the owner in a path: the innermost container, machine or pod, or else the innermost systemd unit. A container's
/// own units (`/lxc.payload.web/system.slice/ssh.service`) belong to the container.
pub(super) fn owner(path: &str) -> Option<Owner<'_>> {
    let mut workload = None;
    let mut unit = None;
    for Sign { component, inside, found } in signs(path) {
        let owner = |(orchestrator, label)| Owner { orchestrator, label, inside };
        match found {
            Some(found) => workload = Some(owner(found)),
            None => unit = Some(owner((Orchestrator::Systemd, Label::Unit(component)))),
        }
    }
    workload.or(unit)
}

/// Splits the path of a cgroup that lies inside a container, machine or unit into the path of that and the rest. The rest is empty
/// for any other cgroup.
pub fn owner_of(path: &str) -> (&str, &str) {
    let inside = owner(path).map_or("", |owner| owner.inside);
    match path.len().checked_sub(inside.len() + 1).filter(|_| !inside.is_empty()) {
        Some(end) => (path.get(..end).unwrap_or(path), inside),
        None => (path, ""),
    }
}

/// Returns the components of a path that show who manages the cgroup, outermost first: with a workload's details, or `None`
/// for a systemd unit.
pub(super) fn components(path: &str) -> impl Iterator<Item = (&str, Option<Found<'_>>)> {
    signs(path).map(|sign| (sign.component, sign.found))
}

/// A component that shows who manages the cgroup.
struct Sign<'a> {
    component: &'a str,
    /// The path after it, without a leading `/`.
    inside: &'a str,
    /// A workload's details; `None` for a systemd unit.
    found: Option<Found<'a>>,
}

fn signs(path: &str) -> impl Iterator<Item = Sign<'_>> {
    let mut context = PathContext::default();
    let mut rest = path.strip_prefix('/').filter(|rest| !rest.is_empty());
    std::iter::from_fn(move || {
        while let Some(here) = rest {
            let (component, inside) = match here.split_once('/') {
                Some((component, inside)) => (component, Some(inside)),
                None => (here, None),
            };
            context.in_pods |= is_pods(component);
            let found = workload_of(component, &context);
            context.descend(component);
            rest = inside;
            if found.is_some() || is_unit(component) {
                return Some(Sign { component, inside: inside.unwrap_or(""), found });
            }
        }
        None
    })
}

/// The context of a component in its path.
#[derive(Default)]
struct PathContext<'a> {
    depth: usize,
    parent: &'a str,
    grandparent: &'a str,
    /// Whether this cgroup is Kubernetes' own, or below it.
    in_pods: bool,
    /// Whether it is below Nomad's.
    in_nomad: bool,
}

impl<'a> PathContext<'a> {
    fn descend(&mut self, component: &'a str) {
        self.in_nomad |= self.is_top() && matches!(component, "nomad" | "nomad.slice");
        self.depth += 1;
        self.grandparent = self.parent;
        self.parent = component;
    }

    fn is_top(&self) -> bool {
        self.depth == 0
    }
}

pub(super) type Found<'a> = (Orchestrator, Label<'a>);

fn workload_of<'a>(component: &'a str, context: &PathContext<'a>) -> Option<Found<'a>> {
    kubernetes(component, context)
        .or_else(|| podman(component))
        .or_else(|| docker(component, context))
        .or_else(|| containerd(component, context))
        .or_else(|| nomad(component, context))
        .or_else(|| machined(component))
        .or_else(|| libvirt(component, context))
        .or_else(|| lxc(component, context))
}

/// systemd driver: `kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope`; cgroupfs driver:
/// `kubepods/burstable/pod<uid>/<id>`; a runtime that got the other's form: `…slice:cri-containerd:<id>`.
fn kubernetes<'a>(component: &'a str, context: &PathContext<'a>) -> Option<Found<'a>> {
    let found = |label| Some((Orchestrator::K8s, label));
    let stem = component.strip_suffix(".scope").unwrap_or(component);
    for (prefix, name) in
        [("cri-containerd-", "k8s_cntr"), ("crio-conmon-", "k8s_conmon"), ("crio-", "k8s_cntr")]
    {
        let id = stem.strip_prefix(prefix).or_else(|| unmanaged(component, prefix));
        if let Some(id) = id.filter(|id| is_id(id)) {
            return found(Label::Id(name, id));
        }
    }
    // containerd's namespace, where the kubelet names no parent.
    if context.depth == 1 && context.parent == "k8s.io" && is_id(component) {
        return found(Label::Id("k8s_cntr", component));
    }
    if !context.in_pods {
        return None;
    }
    let container = match component.rsplit_once(':') {
        Some((_, id)) => id,
        None => stem.strip_prefix("docker-").unwrap_or(stem),
    };
    if is_id(container) {
        return found(Label::Id("k8s_cntr", container));
    }
    if !is_pods(component) {
        let pod = component.strip_prefix("pod").filter(|uid| is_uid(uid));
        return match (pod, component) {
            (Some(uid), _) => found(Label::Named("k8s_pod", uid.into())),
            (None, "burstable" | "besteffort" | "guaranteed") if is_pods(context.parent) => {
                found(Label::Named("kubepods", component.into()))
            }
            _ => None,
        };
    }
    let stem = component.strip_suffix(".slice").unwrap_or(component);
    match stem.rsplit_once("-pod").filter(|(_, uid)| is_uid(uid)) {
        Some((_, uid)) => found(Label::Named("k8s_pod", uid.replace('_', "-").into())),
        None => found(Label::Plain(stem)),
    }
}

/// `libpod-<id>.scope`, `libpod_parent/libpod-<id>`, `machine-libpod_pod_<id>.slice`.
fn podman(component: &str) -> Option<Found<'_>> {
    let found = |label| Some((Orchestrator::Podman, label));
    if matches!(component, "libpod_parent" | "libpod-parent") {
        return found(Label::Plain(component));
    }
    let stem = [".scope", ".slice"]
        .iter()
        .find_map(|suffix| component.strip_suffix(suffix))
        .unwrap_or(component);
    if let Some((_, id)) = stem.rsplit_once("libpod_pod_").filter(|(_, id)| is_id(id)) {
        return found(Label::Id("podman_pod", id));
    }
    for (prefix, name) in
        [("libpod-conmon-", "podman_conmon"), ("libpod-payload-", "podman"), ("libpod-", "podman")]
    {
        let id = stem.strip_prefix(prefix).or_else(|| unmanaged(component, prefix));
        if let Some(id) = id.filter(|id| is_id(id)) {
            return found(Label::Id(name, id));
        }
    }
    None
}

/// `docker-<id>.scope`, `docker/<id>`; Amazon's agent: `ecs/<task>/<id>`, `ecstasks-<task>.slice/docker-<id>.scope`.
fn docker<'a>(component: &'a str, context: &PathContext<'a>) -> Option<Found<'a>> {
    let scope = component.strip_prefix("docker-").and_then(|rest| rest.strip_suffix(".scope"));
    let bare = (context.parent == "docker" || context.grandparent == "ecs").then_some(component);
    let scope = scope.or_else(|| unmanaged(component, "docker-"));
    if let Some(id) = scope.or(bare).filter(|id| is_id(id)) {
        return Some((Orchestrator::Docker, Label::Id("docker", id)));
    }
    (component == "docker" && context.is_top())
        .then_some((Orchestrator::Docker, Label::Plain(component)))
}

/// nerdctl: `nerdctl-<id>.scope`, and `default/<id>` for the namespace `default` as of `ctr`; Amazon's Fargate:
/// `ecs/<task>/<task>-<number>`.
fn containerd<'a>(component: &'a str, context: &PathContext<'a>) -> Option<Found<'a>> {
    let found = |name, id| Some((Orchestrator::Containerd, Label::Id(name, id)));
    let scope = component.strip_prefix("nerdctl-").and_then(|rest| rest.strip_suffix(".scope"));
    let bare = (context.depth == 1 && context.parent == "default").then_some(component);
    let id = scope.or_else(|| unmanaged(component, "nerdctl-")).or(bare);
    if let Some(id) = id.filter(|id| is_id(id)) {
        return found("nerdctl", id);
    }
    let (task, number) = component.split_once('-').filter(|_| context.grandparent == "ecs")?;
    let is_task = task == context.parent && !number.is_empty();
    (is_task && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(())?;
    found("ecs", component)
}

/// Nomad's own drivers: `nomad.slice/share.slice/<allocation>.<task>.scope`, `nomad.slice/<allocation>.<task>.scope`,
/// `nomad/share/<allocation>.<task>`.
fn nomad<'a>(component: &'a str, context: &PathContext<'a>) -> Option<Found<'a>> {
    let stem = component.strip_suffix(".scope").unwrap_or(component);
    let (allocation, task) = stem.split_at_checked(UUID).filter(|_| context.in_nomad)?;
    let dashes = allocation.bytes().filter(|byte| *byte == b'-').count();
    let is_uuid = is_uid(allocation) && dashes == 4;
    let task = task.strip_prefix(['.', '-']).filter(|task| is_uuid && !task.is_empty())?;
    Some((Orchestrator::Nomad, Label::Task(allocation, task)))
}

/// Returns the id in `system.slice:docker:<id>`, which runc makes of a scope's name where systemd does not manage cgroups.
fn unmanaged<'a>(component: &'a str, prefix: &str) -> Option<&'a str> {
    let (slice, rest) = component.split_once(':')?;
    let (engine, id) = rest.split_once(':')?;
    (slice.ends_with(".slice") && prefix.strip_suffix('-') == Some(engine)).then_some(id)
}

/// What systemd-machined registers, under escaped names: `machine-qemu\x2d3\x2dweb.scope` is libvirt's,
/// `machine-web.scope` nspawn's; and nspawn's own service. libvirt before 1.3.3 has no number.
fn machined(component: &str) -> Option<Found<'_>> {
    let instance = |prefix| component.strip_prefix(prefix)?.strip_suffix(".service");
    if let Some(name) = instance("systemd-nspawn@") {
        return Some((Orchestrator::Nspawn, Label::Named("nspawn", unescape(name))));
    }
    if let Some(name) = instance("systemd-vmspawn@") {
        return Some((Orchestrator::Kvm, Label::Named("qemu", unescape(name))));
    }
    let name = unescape(component.strip_prefix("machine-")?.strip_suffix(".scope")?);
    let guest = |driver| {
        let guest = without_number(&name, driver).or_else(|| name.strip_prefix(driver));
        guest.filter(|guest| !guest.is_empty()).map(|guest| Cow::Owned(guest.to_owned()))
    };
    Some(if let Some(name) = guest("qemu-") {
        (Orchestrator::Kvm, Label::Named("qemu", name))
    } else if let Some(name) = guest("lxc-") {
        (Orchestrator::Lxc, Label::Named("lxc", name))
    } else {
        (Orchestrator::Nspawn, Label::Named("nspawn", name))
    })
}

/// Without systemd: `machine/qemu-3-web.libvirt-qemu`; before 1.0.5: `libvirt/qemu/web`. Proxmox:
/// `qemu.slice/100.scope`, `qemu/100`.
fn libvirt<'a>(component: &'a str, context: &PathContext<'a>) -> Option<Found<'a>> {
    let kvm = |name: &'a str| Some((Orchestrator::Kvm, Label::Named("qemu", unescape(name))));
    if let Some(name) = component.strip_suffix(".libvirt-qemu") {
        return kvm(without_number(name, "qemu-").unwrap_or(name));
    }
    if let Some(name) = component.strip_suffix(".libvirt-lxc") {
        let name = without_number(name, "lxc-").unwrap_or(name);
        return Some((Orchestrator::Lxc, Label::Named("lxc", unescape(name))));
    }
    match context.parent {
        "qemu" if context.depth == 1 || context.grandparent == "libvirt" => kvm(component),
        "qemu.slice" => kvm(component.strip_suffix(".scope")?),
        _ => None,
    }
}

/// `lxc.payload.NAME`, `lxc.payload/NAME`, `lxc/NAME`, and the monitors beside them.
fn lxc<'a>(component: &'a str, context: &PathContext<'a>) -> Option<Found<'a>> {
    let found = |prefix, name: &'a str| {
        Some((Orchestrator::Lxc, Label::Named(prefix, Cow::Borrowed(name))))
    };
    if let Some(name) = component.strip_prefix("lxc.payload.") {
        return found("lxc", name);
    }
    if let Some(name) = component.strip_prefix("lxc.monitor.") {
        return found("lxc_monitor", name);
    }
    match context.parent {
        "lxc" | "lxc.payload" => found("lxc", component),
        "lxc.monitor" => found("lxc_monitor", component),
        _ => (context.is_top()
            && matches!(component, "lxc" | "lxc.payload" | "lxc.monitor" | "lxc.pivot"))
        .then_some((Orchestrator::Lxc, Label::Plain(component))),
    }
}

/// Returns whether this is Kubernetes' own cgroup, in either driver's spelling; with `--cgroup-root` it has a prefix.
fn is_pods(component: &str) -> bool {
    let unit = component.split(':').next().unwrap_or(component);
    component == "kubepods"
        || unit
            .strip_suffix(".slice")
            .is_some_and(|stem| stem.split('-').any(|part| part == "kubepods"))
}

/// Returns whether this is a systemd unit of a type that has a cgroup.
fn is_unit(component: &str) -> bool {
    [".service", ".slice", ".scope", ".mount", ".socket", ".swap"]
        .iter()
        .any(|suffix| component.len() > suffix.len() && component.ends_with(suffix))
}

/// Returns whether this is a container's id, in the form of every engine: 64 hexadecimal digits.
fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether this is a pod's uid: a UUID, its dashes escaped to underscores or not, or a static pod's 32 digits.
fn is_uid(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    digits == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_'))
}

/// The length of a UUID.
const UUID: usize = 36;

/// Returns `web` for `qemu-3-web`.
fn without_number<'a>(name: &'a str, driver: &str) -> Option<&'a str> {
    let (number, name) = name.strip_prefix(driver)?.split_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !name.is_empty()).then_some(name)
}
