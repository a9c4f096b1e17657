//! Synthetic cgroups for demonstrations, tests and benchmarks. No machine has them.

use super::{CgroupEntry, Options, Orchestrator};

/// Returns `count` synthetic cgroups with paths, names and a mix of orchestrators as on a busy machine.
///
/// The same `count` and `seed` always produce the same cgroups. Ids and paths are unique; paths have 24 to 200 bytes. They
/// come in no particular order.
pub fn entries(count: usize, seed: u64) -> Vec<CgroupEntry> {
    let mut random = Random(seed);
    (0..).take(count).map(|number| entry(number, &mut random)).collect()
}

fn entry(number: u64, random: &mut Random) -> CgroupEntry {
    let common = Options::UNIFIED | Options::LEAF;
    let (orchestrator, path, name, options) = match random.next() % 8 {
        0..=2 => {
            let name = format!("{}-{number}", random.pick(&SERVICES));
            let path = format!("/system.slice/{name}.service");
            (Orchestrator::Systemd, path, name, common | Options::SYSTEM_SERVICE)
        }
        3 | 4 => {
            let id = random.container();
            let path = format!("/system.slice/docker-{id}.scope");
            (Orchestrator::Docker, path, format!("docker_{}", short(&id)), common)
        }
        5 => {
            let (pod, id) = (random.pod(), random.container());
            let path = format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/\
                 cri-containerd-{id}.scope"
            );
            (Orchestrator::K8s, path, format!("k8s_cntr_{}", short(&id)), common)
        }
        6 => {
            let id = random.container();
            let path = format!("/machine.slice/libpod-{id}.scope");
            (Orchestrator::Podman, path, format!("podman_{}", short(&id)), common)
        }
        _ => {
            let path = format!("/machine.slice/machine-qemu\\x2d{number}\\x2dguest.scope");
            (Orchestrator::Kvm, path, "qemu_guest".to_owned(), common)
        }
    };
    let populated = !random.next().is_multiple_of(10);
    CgroupEntry {
        id: number + 2,
        name,
        path,
        options: options.with(Options::POPULATED, populated),
        enabled: populated,
        orchestrator,
        labels: Vec::new(),
    }
}

const SERVICES: [&str; 6] = [
    "nginx-worker",
    "postgresql-cluster",
    "batch-import",
    "metrics-exporter",
    "mail-queue",
    "sshd",
];

/// Returns the first 12 digits of a container's id, as the container engines print it.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        let chosen = self.next() % from.len().max(1) as u64;
        usize::try_from(chosen).ok().and_then(|at| from.get(at)).copied().unwrap_or("unit")
    }

    fn container(&mut self) -> String {
        (0..4).map(|_| format!("{:016x}", self.next())).collect()
    }

    fn pod(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}_{:04x}_{:04x}_{:04x}_{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xffff,
            b >> 48,
            b & 0xffff_ffff_ffff
        )
    }
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn the_same_seed_makes_the_same_cgroups() {
        assert_eq!(entries(50, 3), entries(50, 3));
        assert_ne!(entries(50, 3), entries(50, 4));
    }
}
