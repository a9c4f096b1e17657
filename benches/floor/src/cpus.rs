//! Which CPUs the two processes run on.

use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{Error, Result};

/// A CPU for this process and one for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Where the bench runs.
    pub client: usize,
    /// Where the other end runs.
    pub peer: usize,
}

impl Cpus {
    /// The first two CPUs that this process was allowed at the first call; twice the same if there is one.
    pub fn pick() -> Result<Cpus> {
        let mut allowed = allowed()?.iter().copied();
        let client = allowed.next().unwrap_or(0);
        Ok(Cpus { client, peer: allowed.next().unwrap_or(client) })
    }

    /// Both ends on the client's CPU.
    pub fn same(self) -> Cpus {
        Cpus { peer: self.client, ..self }
    }

    /// [`Error::OneCpu`] if the two ends share one, so that neither may spin.
    pub fn two(self) -> Result<Cpus> {
        if self.client == self.peer { Err(Error::OneCpu) } else { Ok(self) }
    }

    /// Keeps the calling thread, and threads that it starts later, on the client's CPU.
    ///
    /// A spawned peer is not bound by it: [`process::spawn`](super::process::spawn) names its CPUs.
    pub fn pin_client(self) -> Result<()> {
        pin(&[self.client])
    }
}

/// The CPUs that this process was allowed at the first call, before it pinned anything.
pub fn allowed() -> Result<&'static [usize]> {
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
    if ALLOWED.get().is_none() {
        let set = sched_getaffinity(None).map_err(Error::system("read the CPU affinity"))?;
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
        return Ok(ALLOWED.get_or_init(|| cpus));
    }
    Ok(ALLOWED.get().map_or(&[], Vec::as_slice))
}

/// Keeps the calling thread on `cpus`; none means wherever it was allowed at first.
pub fn pin(cpus: &[usize]) -> Result<()> {
    let cpus = if cpus.is_empty() { allowed()? } else { cpus };
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(Error::system("pin to a CPU"))
}
