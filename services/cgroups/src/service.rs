use super::{Index, Malformed};
use bellwire::Snapshot;

/// The service `cgroups-snapshot`: which cgroups there are.
///
/// ```no_run
/// use std::time::Duration;
///
/// use bellwire_cgroups::{CgroupsSnapshot, name_hash};
/// use bellwire::{RunDir, SnapshotCache};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut cache = SnapshotCache::<CgroupsSnapshot>::new(&RunDir::from_environment());
/// cache.refresh_within(Duration::from_millis(100))?;
/// if let Some(current) = cache.current() {
///     let cgroups = current.index().view();
///     let found = cgroups.find_by_name(name_hash("cron"), "cron");
///     println!("{found:?}, {} in all", cgroups.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CgroupsSnapshot;

impl Snapshot for CgroupsSnapshot {
    const NAME: &'static str = "cgroups-snapshot";
    const VERSION: u32 = 1;
    type Index = Index;
    type Error = Malformed;

    fn validate(bytes: &[u8]) -> Result<Index, Malformed> {
        Index::validate(bytes)
    }

    fn update(index: &mut Index, bytes: &[u8]) -> Result<(), Malformed> {
        index.update(bytes)
    }

    const PUBLISHES_DELTAS: bool = true;

    fn delta(index: &Index, bytes: &[u8]) -> Option<Vec<u8>> {
        index.delta(bytes)
    }

    fn apply_delta(index: &mut Index, delta: &[u8]) -> bool {
        index.apply_delta(delta)
    }

    fn to_bytes(index: &Index) -> Vec<u8> {
        index.to_bytes()
    }

    #[cfg(feature = "netipc")]
    fn netipc() -> Option<bellwire::netipc::SnapshotMethod> {
        Some(crate::netipc::SNAPSHOT)
    }
}
