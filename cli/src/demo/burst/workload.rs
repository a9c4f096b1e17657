use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use bellwire::HandlerError;
use bellwire_cgroups::{CgroupEntry, View, synthetic};
use serde::Serialize;

/// The service through which the consumer tells the provider what to publish. It answers with the shared memory that the
/// provider has mapped or open then: the number of each piece, and its size in bytes.
#[derive(bellwire::Service)]
#[service(name = "demo-workload", request = Workload, response = Vec<(u64, u64)>)]
pub(in super::super) struct DemoWorkload;

/// What to publish from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bellwire::Message)]
pub(in super::super) struct Workload {
    /// Whether it is not as before.
    changes: bool,
    /// How many synthetic cgroups, and their seed; `None` for the machine's.
    synthetic: Option<(u64, u64)>,
}

/// An order to the provider's publishing thread.
#[derive(Debug)]
pub(in super::super) enum Order {
    /// How many synthetic cgroups to publish, and their seed; `None` for the machine's.
    Publish(Option<(u64, u64)>),
    Stop,
}

impl Workload {
    pub(super) const UNCHANGED: Self = Self { changes: false, synthetic: None };
    pub(super) const REAL: Self = Self { changes: true, synthetic: None };

    pub(super) fn synthetic(cgroups: usize, seed: u64) -> Self {
        Self { changes: true, synthetic: Some((cgroups as u64, seed)) }
    }
}

/// Handles [`DemoWorkload`]: passes the order on and does not wait.
pub(in super::super) fn answer(
    orders: &Sender<Order>,
    workload: Workload,
) -> Result<Vec<(u64, u64)>, HandlerError> {
    if workload.changes {
        let order = Order::Publish(workload.synthetic);
        orders.send(order).map_err(|_| HandlerError::new("the provider ends"))?;
    }
    Ok(bellwire_doctor::shared_memory()?.into_iter().collect())
}

/// Shared memory. If the system numbers it alike for all processes, each piece counts once, however many have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(in super::super) struct Memory {
    pub(in super::super) pieces: usize,
    pub(in super::super) bytes: u64,
}

impl Memory {
    /// Returns the memory that one process has, or the other.
    pub(super) fn of(mut one: BTreeMap<u64, u64>, other: Vec<(u64, u64)>) -> Self {
        for (number, bytes) in other {
            let known = one.entry(number).or_default();
            *known = (*known).max(bytes);
        }
        Self { pieces: one.len(), bytes: one.values().sum() }
    }
}

/// Returns so many synthetic cgroups in snapshot order.
pub(super) fn cgroups(count: usize, seed: u64) -> Vec<CgroupEntry> {
    let mut entries = synthetic::entries(count, seed);
    entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// Returns whether these are all the cgroups, and each is found by its id, path and (hash, name). That takes a second for 100 000:
/// it returns false as soon as `is_running` does.
pub(super) fn is_exactly(
    view: View<'_>,
    expected: &[CgroupEntry],
    is_running: impl Fn() -> bool,
) -> bool {
    view.len() == expected.len()
        && view.iter().zip(expected).all(|(cgroup, expected)| {
            is_running()
                && cgroup == expected.as_cgroup()
                && view.find_by_id(cgroup.id) == Some(cgroup)
                && view.find_by_path(cgroup.path) == Some(cgroup)
                && view.all_named(cgroup.name_hash, cgroup.name).any(|named| named == cgroup)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwire_cgroups::{Index, Meta, Mode, encode};

    #[test]
    fn a_snapshot_that_lacks_a_cgroup_or_has_another_is_not_the_one() {
        let index = |entries: &[CgroupEntry]| {
            Index::validate(&encode(entries, Meta::now(Mode::V2)).unwrap()).unwrap()
        };
        let (expected, mut other) = (cgroups(16, 1), cgroups(16, 1));
        let is_it = |entries: &[CgroupEntry]| is_exactly(index(entries).view(), &expected, || true);
        assert!(is_it(&expected));
        assert!(!is_it(&expected[1..]));
        assert!(!is_it(&cgroups(16, 3)));
        other[7].enabled ^= true;
        assert!(!is_it(&other));
    }

    #[test]
    fn memory_of_two_processes_counts_once() {
        let memory = Memory::of([(77, 0x4000), (78, 0x1000)].into(), vec![(78, 0x1000), (79, 9)]);
        assert_eq!(memory, Memory { pieces: 3, bytes: 0x5009 });
    }
}
