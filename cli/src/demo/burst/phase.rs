use std::io;
use std::sync::mpsc::Sender;

use bellwire::{Client, HandlerError, Malformed, Message, RunDir};
use bellwire_cgroups::{CgroupEntry, View, synthetic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Trouble;
use super::figures::SessionFigures;
use super::held::{Held, Memory};
use crate::exit::Failure;

/// The service through which the consumer tells the provider what to publish. It answers with the shared memory that the
/// provider then holds.
#[derive(bellwire::Service)]
#[service(name = "demo-stage", request = Json<Phase>, response = Json<Held>)]
pub(in super::super) struct DemoPhase;

/// What to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Phase {
    /// Synthetic cgroups, different for each seed.
    Show { cgroups: usize, seed: u64 },
    /// The machine's cgroups, as before.
    Real,
    /// No change.
    AsItIs,
}

/// An order to the provider's publishing thread.
#[derive(Debug)]
pub(in super::super) enum Order {
    Phase(Phase),
    Stop,
}

/// A JSON message: small and not time-critical.
#[derive(Debug)]
pub(in super::super) struct Json<T>(pub(in super::super) T);

impl<T: Serialize + DeserializeOwned> Message for Json<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        // Writing to memory does not fail, and both types can be expressed in JSON.
        let _ = serde_json::to_writer(into, &self.0);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let wrong = |error: serde_json::Error| {
            Malformed::new(error.column(), bytes.len(), "not the JSON expected")
        };
        serde_json::from_slice(bytes).map(Self).map_err(wrong)
    }
}

/// Handles [`DemoPhase`]: passes the order on and does not wait.
pub(in super::super) fn answer(
    orders: &Sender<Order>,
    phase: Phase,
) -> Result<Json<Held>, HandlerError> {
    if phase != Phase::AsItIs {
        orders.send(Order::Phase(phase)).map_err(|_| HandlerError::new("the provider ends"))?;
    }
    Ok(Json(Held::by_this_process()?))
}

/// The consumer's end.
pub(super) struct PhaseClient(Client<DemoPhase>);

impl PhaseClient {
    pub(super) fn connect(run_dir: &RunDir) -> Result<Self, Failure> {
        let mut client = Client::new(run_dir);
        client.connect()?;
        Ok(Self(client))
    }

    pub(super) fn order(&mut self, phase: Phase) -> Result<Held, Trouble> {
        Ok(self.0.call(&Json(phase))?.0)
    }

    /// Returns the shared memory of both processes.
    pub(super) fn held(&mut self) -> Result<Memory, Trouble> {
        let theirs = self.order(Phase::AsItIs)?;
        let unread =
            |error: io::Error| Trouble::Wrong(format!("cannot determine its memory: {error}"));
        Ok(Held::by_this_process().map_err(unread)?.join(&theirs).memory())
    }

    pub(super) fn figures(&mut self) -> Option<SessionFigures> {
        let session = self.0.session()?;
        Some(SessionFigures::new("stage", &session.stats()))
    }
}

/// Returns the cgroups of [`Phase::Show`] in snapshot order.
pub(super) fn synthetic(cgroups: usize, seed: u64) -> Vec<CgroupEntry> {
    let mut entries = synthetic::entries(cgroups, seed);
    entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// Returns whether these are all the cgroups, and each is found by its id, path and (hash, name).
pub(super) fn is_exactly(view: View<'_>, expected: &[CgroupEntry]) -> bool {
    view.len() == expected.len()
        && view.iter().zip(expected).all(|(cgroup, expected)| {
            cgroup == expected.as_cgroup()
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
        let (expected, mut other) = (synthetic(16, 1), synthetic(16, 1));
        assert!(is_exactly(index(&expected).view(), &expected));
        assert!(!is_exactly(index(&expected[1..]).view(), &expected));
        assert!(!is_exactly(index(&synthetic(16, 3)).view(), &expected));
        other[7].enabled ^= true;
        assert!(!is_exactly(index(&other).view(), &expected));
    }

    #[test]
    fn orders_cross_as_json() {
        let mut bytes = Vec::new();
        Json(Phase::Show { cgroups: 16, seed: 1 }).encode(&mut bytes);
        let phase = Json::<Phase>::decode(&bytes).unwrap().0;
        assert_eq!(phase, Phase::Show { cgroups: 16, seed: 1 });
        assert!(Json::<Phase>::decode(b"{}").is_err());
    }
}
