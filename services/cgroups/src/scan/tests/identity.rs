//! Who manages a cgroup, and what it is called, by its path alone.

use crate::check_name;

use super::*;

/// Orchestrator, name and path. In braces are parts that several paths have.
const PATHS: &str = r"
unknown    root                     /
unknown    process_api_0f           /process_api/0f
unknown    custom_{a}               /custom/{a}
systemd    init.scope               /init.scope
systemd    system.slice             /system.slice
systemd    sshd                     /system.slice/sshd.service
systemd    getty@tty1               /system.slice/system-getty.slice/getty@tty1.service
systemd    session-3.scope          /user.slice/user-1000.slice/session-3.scope
systemd    dev-disk-by-uuid.swap    /system.slice/dev-disk-by\x2duuid.swap
systemd    ns_child_x               /system.slice/ns.service/child/x
docker     docker                   /docker
docker     docker_aaaaaaaaaaaa      /docker/{a}
docker     docker_aaaaaaaaaaaa      /system.slice/docker-{a}.scope
docker     docker_aaaaaaaaaaaa_system.slice_x.service /docker/{a}/system.slice/x.service
docker     docker_aaaaaaaaaaaa      /docker/{b}/docker/{a}
docker     docker_aaaaaaaaaaaa      /ecs/5e2f/{a}
docker     docker_aaaaaaaaaaaa      /ecstasks.slice/ecstasks-5e2f.slice/docker-{a}.scope
docker     docker_aaaaaaaaaaaa      /system.slice:docker:{a}
docker     docker_aaaaaaaaaaaa      /nomad.slice/share.slice/docker-{a}.scope
systemd    docker                   /system.slice/docker.service
containerd nerdctl_aaaaaaaaaaaa     /system.slice/nerdctl-{a}.scope
containerd nerdctl_aaaaaaaaaaaa     /user.slice/user-1000.slice/user@1000.service/user.slice/nerdctl-{a}.scope
containerd nerdctl_aaaaaaaaaaaa     /system.slice:nerdctl:{a}
containerd nerdctl_aaaaaaaaaaaa     /default/{a}
containerd ecs_8c5d0e3c9a7b         /ecs/8c5d0e3c9a7b4f21a3c1d2e3f4a5b6c7/8c5d0e3c9a7b4f21a3c1d2e3f4a5b6c7-2531612879
k8s        k8s_cntr_aaaaaaaaaaaa    /k8s.io/{a}
k8s        k8s_cntr_aaaaaaaaaaaa    /system.slice/cri-containerd-{a}.scope
k8s        k8s_cntr_aaaaaaaaaaaa    /system.slice:cri-containerd:{a}
nomad      nomad_web_2ca4a155       /nomad.slice/share.slice/{uid}.web.scope
nomad      nomad_my-db_2ca4a155     /nomad.slice/reserve.slice/{uid}.my-db.scope
nomad      nomad_web_2ca4a155       /nomad.slice/{uid}.web.scope
nomad      nomad_web_2ca4a155       /nomad/share/{uid}.web
systemd    share.slice              /nomad.slice/share.slice
systemd    {uid}.web.scope          /other.slice/{uid}.web.scope
k8s        kubepods                 /kubepods
k8s        kubepods_burstable       /kubepods/burstable
k8s        kubepods                 /kubepods.slice
k8s        kubepods-besteffort      /kubepods.slice/kubepods-besteffort.slice
k8s        k8s_pod_{uid}            {pods}{escaped}.slice
k8s        k8s_pod_88888888888888888888888888888888 {pods}88888888888888888888888888888888.slice
k8s        k8s_cntr_aaaaaaaaaaaa    {pods}{escaped}.slice/cri-containerd-{a}.scope
k8s        k8s_cntr_aaaaaaaaaaaa    {pods}{escaped}.slice/crio-{a}.scope
k8s        k8s_conmon_aaaaaaaaaaaa  {pods}{escaped}.slice/crio-conmon-{a}.scope
k8s        k8s_cntr_aaaaaaaaaaaa    {pods}{escaped}.slice/docker-{a}.scope
k8s        k8s_pod_{uid}            /kubepods/besteffort/pod{uid}
k8s        k8s_cntr_aaaaaaaaaaaa    /kubepods/besteffort/pod{uid}/{a}
k8s        k8s_cntr_aaaaaaaaaaaa    /docker/{b}{kind}/kubelet-kubepods-besteffort-pod{escaped}.slice/cri-containerd-{a}.scope
k8s        k8s_cntr_aaaaaaaaaaaa    /system.slice/containerd.service/kubepods-burstable-pod{escaped}.slice:cri-containerd:{a}
systemd    kubelet                  /system.slice/kubelet.service
systemd    machine.slice            /machine.slice
kvm        qemu_web-1               /machine.slice/machine-qemu\x2d3\x2dweb\x2d1.scope
kvm        qemu_web_libvirt_emulator /machine.slice/machine-qemu\x2d3\x2dweb.scope/libvirt/emulator
kvm        qemu_vm                  /machine.slice/machine-qemu\x2dvm.scope
lxc        lxc_old                  /machine.slice/machine-lxc\x2dold.scope
kvm        qemu_vdesk               /machine/vdesk.libvirt-qemu
kvm        qemu_vdesk_vcpu0         /machine/qemu-12-vdesk.libvirt-qemu/vcpu0
kvm        qemu_vm1                 /libvirt/qemu/vm1
kvm        qemu_100                 /qemu.slice/100.scope
systemd    libvirtd                 /system.slice/libvirtd.service
lxc        lxc_web                  /lxc/web
lxc        lxc_101_ns               /lxc/101/ns
lxc        lxc_focal                /lxc.payload.focal
lxc        lxc_focal_system.slice_avahi-daemon.service /lxc.payload.focal/system.slice/avahi-daemon.service
lxc        lxc_c1                   /lxc.payload/c1
lxc        lxc_monitor_focal        /lxc.monitor.focal
lxc        lxc_sl                   /machine/lxc-1268-sl.libvirt-lxc
lxc        lxc_sl                   /machine.slice/machine-lxc\x2d1268\x2dsl.scope
podman     podman_aaaaaaaaaaaa      /machine.slice/libpod-{a}.scope
podman     podman_aaaaaaaaaaaa_container /machine.slice/libpod-{a}.scope/container
podman     podman_conmon_aaaaaaaaaaaa /machine.slice/libpod-conmon-{a}.scope
podman     podman_aaaaaaaaaaaa      /machine.slice:libpod:{a}
podman     podman_aaaaaaaaaaaa      /libpod_parent/libpod-{a}
podman     libpod_parent            /libpod_parent
podman     podman_pod_aaaaaaaaaaaa  /machine.slice/machine-libpod_pod_{a}.slice
podman     podman_aaaaaaaaaaaa      /user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{a}.scope
nspawn     nspawn_rawhide           /machine.slice/machine-rawhide.scope
nspawn     nspawn_dev-web_payload   /machine.slice/machine-dev\x2dweb.scope/payload
nspawn     nspawn_arch-1_payload_init.scope /machine.slice/systemd-nspawn@arch\x2d1.service/payload/init.scope
";

#[test]
fn real_paths_are_recognized() {
    let uid = "2ca4a155-3599-498d-bb9d-4446693fa3ea";
    let kind = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice";
    let pods = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod";
    let parts = [("{pods}", pods), ("{kind}", kind), ("{uid}", uid)];
    let table =
        parts.iter().fold(PATHS.to_owned(), |table, (part, text)| table.replace(part, text));
    let table = table.replace("{escaped}", &uid.replace('-', "_"));
    let table = table.replace("{a}", &id('a')).replace("{b}", &id('b'));
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows: Vec<_> = rows.collect();
    for row in &rows {
        let identity = Identity::of(row[2]);
        assert_eq!([identity.orchestrator.as_str(), &identity.name], row[..2], "{row:?}");
    }
    for known in Orchestrator::ALL {
        assert!(rows.iter().any(|row| row[0] == known.as_str()), "{known}");
    }
}

#[test]
fn names_are_cut_at_their_limit() {
    let long = format!("/{}", "é".repeat(300));
    let identity = Identity::of(&long);
    assert_eq!(identity.name.len(), 255);
    assert!(long.ends_with(&identity.name[..10]));
    let at_limit = format!("/{}", "n".repeat(255));
    assert_eq!(Identity::of(&at_limit).name, at_limit[1..]);
}

#[test]
fn siblings_that_begin_alike_have_names_of_their_own() {
    let parent = format!("/{}/{}", "p".repeat(200), "c".repeat(100));
    let names: std::collections::HashSet<String> =
        (0..1_000).map(|number| Identity::of(&format!("{parent}{number}")).name).collect();
    assert_eq!(names.len(), 1_000);
    assert!(names.iter().all(|name| check_name(name).is_ok()));
}

#[test]
fn a_path_is_split_at_its_owner() {
    for (path, owner, inside) in [
        ("/lxc/web", "/lxc/web", ""),
        ("/lxc/web/init.scope/x", "/lxc/web", "init.scope/x"),
        ("/", "/", ""),
        ("/custom/x", "/custom/x", ""),
        ("/system.slice/a.service/b", "/system.slice/a.service", "b"),
    ] {
        assert_eq!(owner_of(path), (owner, inside));
    }
}

#[test]
fn cgroups_inside_an_owner_are_nested() {
    assert!(!Identity::of("/lxc/web").nested);
    assert!(Identity::of("/lxc/web/init.scope").nested);
    assert!(!Identity::of("/user.slice/user-1.slice").nested);
    assert!(Identity::of("/system.slice/a.service").system_service);
    assert!(!Identity::of("/system.slice/a.service/b.service").system_service);
}

#[test]
fn escapes_that_make_no_name_stay() {
    let name = |unit: &str| Identity::of(&format!("/system.slice/{unit}.service")).name;
    assert_eq!(name("a\\x1bb"), "a\\x1bb");
    assert_eq!(name("a\\xffb"), "a\\xffb");
    assert_eq!(name("a\\xzzb\\x2"), "a\\xzzb\\x2");
    assert_eq!(name("\\xc3\\xa9"), "é");
}
