use core::fmt;

/// The software that manages a cgroup, as far as its path shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Orchestrator {
    /// The path fits no pattern.
    #[default]
    Unknown = 0,
    /// systemd: a service, slice, scope or other unit.
    Systemd = 1,
    /// Docker.
    Docker = 2,
    /// Kubernetes: a pod, or a container in one, whatever runtime runs it.
    K8s = 3,
    /// A virtual machine: libvirt with QEMU, Proxmox.
    Kvm = 4,
    /// LXC, LXD, Incus or libvirt-lxc.
    Lxc = 5,
    /// Podman.
    Podman = 6,
    /// systemd-nspawn, or another machine that systemd-machined registered.
    Nspawn = 7,
    /// containerd without Kubernetes: `ctr`, nerdctl.
    Containerd = 8,
    /// Nomad's own drivers; its Docker containers are Docker's.
    Nomad = 9,
}

impl Orchestrator {
    /// Every orchestrator, in the order of its number.
    pub const ALL: [Self; 10] = [
        Self::Unknown,
        Self::Systemd,
        Self::Docker,
        Self::K8s,
        Self::Kvm,
        Self::Lxc,
        Self::Podman,
        Self::Nspawn,
        Self::Containerd,
        Self::Nomad,
    ];

    /// Returns the orchestrator of this number, or `None` if layout 1 has none.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Unknown),
            1 => Some(Self::Systemd),
            2 => Some(Self::Docker),
            3 => Some(Self::K8s),
            4 => Some(Self::Kvm),
            5 => Some(Self::Lxc),
            6 => Some(Self::Podman),
            7 => Some(Self::Nspawn),
            8 => Some(Self::Containerd),
            9 => Some(Self::Nomad),
            _ => None,
        }
    }

    /// Returns the number that the snapshot carries.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name in lower case, for tables and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Systemd => "systemd",
            Self::Docker => "docker",
            Self::K8s => "k8s",
            Self::Kvm => "kvm",
            Self::Lxc => "lxc",
            Self::Podman => "podman",
            Self::Nspawn => "nspawn",
            Self::Containerd => "containerd",
            Self::Nomad => "nomad",
        }
    }
}

impl fmt::Display for Orchestrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Orchestrator;

    #[test]
    fn codes_round_trip_and_no_other_is_known() {
        for (code, orchestrator) in (0..).zip(Orchestrator::ALL) {
            assert_eq!(orchestrator.code(), code);
            assert_eq!(Orchestrator::from_code(code), Some(orchestrator));
        }
        assert_eq!(Orchestrator::from_code(10), None);
    }
}
