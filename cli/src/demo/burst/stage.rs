use std::io;
use std::sync::mpsc::Sender;

use bellwire::cgroups::{CgroupEntry, View, synthetic};
use bellwire::{Client, HandlerError, Malformed, Message, RunDir, Service};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Trouble;
use super::figures::SessionFigures;
use super::held::{Held, Memory};
use crate::exit::Failure;

/// The service by which the consumer tells the provider what to publish. Answers with the shared memory that the
/// provider holds then.
pub(in super::super) struct DemoStage;

impl Service for DemoStage {
    const NAME: &'static str = "demo-stage";
    type Request = Json<Stage>;
    type Response = Json<Held>;
}

/// What is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Stage {
    /// Made-up cgroups, others for each seed.
    Show { cgroups: usize, seed: u64 },
    /// What was before.
    Real,
    /// Whatever is published now.
    AsItIs,
}

/// What the provider's publishing thread is told.
#[derive(Debug)]
pub(in super::super) enum Order {
    Stage(Stage),
    Stop,
}

/// A message in JSON: small, and read by nobody in a hurry.
#[derive(Debug)]
pub(in super::super) struct Json<T>(pub(in super::super) T);

impl<T: Serialize + DeserializeOwned> Message for Json<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        // Writing to memory does not fail, and neither type has what JSON lacks.
        let _ = serde_json::to_writer(into, &self.0);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let wrong = |error: serde_json::Error| Malformed {
            at: error.column(),
            len: bytes.len(),
            why: "not the JSON expected",
        };
        serde_json::from_slice(bytes).map(Self).map_err(wrong)
    }
}

/// The handler of [`DemoStage`]: passes the order on and waits for nothing.
pub(in super::super) fn answer(
    orders: &Sender<Order>,
    stage: Stage,
) -> Result<Json<Held>, HandlerError> {
    if stage != Stage::AsItIs {
        orders.send(Order::Stage(stage)).map_err(|_| HandlerError::new("the provider ends"))?;
    }
    Ok(Json(Held::by_this_process()?))
}

/// The consumer's end.
pub(super) struct StageClient(Client<DemoStage>);

impl StageClient {
    pub(super) fn connect(run_dir: &RunDir) -> Result<Self, Failure> {
        let mut client = Client::new(run_dir);
        client.connect()?;
        Ok(Self(client))
    }

    pub(super) fn order(&mut self, stage: Stage) -> Result<Held, Trouble> {
        Ok(self.0.call(&Json(stage))?.0)
    }

    /// The shared memory of both processes.
    pub(super) fn held(&mut self) -> Result<Memory, Trouble> {
        let theirs = self.order(Stage::AsItIs)?;
        let unread = |error: io::Error| {
            Trouble::Wrong(format!("cannot tell the memory that it has: {error}"))
        };
        Ok(Held::by_this_process().map_err(unread)?.join(&theirs).memory())
    }

    pub(super) fn figures(&mut self) -> Option<SessionFigures> {
        let session = self.0.session()?;
        Some(SessionFigures::new("stage", &session.stats()))
    }
}

/// The cgroups of [`Stage::Show`], in the order in which a snapshot has them.
pub(super) fn made_up(cgroups: usize, seed: u64) -> Vec<CgroupEntry> {
    let mut entries = synthetic::entries(cgroups, seed);
    entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// Whether these are all the cgroups there are, and each is found by its id, path and (hash, name).
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
    use bellwire::cgroups::{Index, Meta, Mode, encode};

    #[test]
    fn a_snapshot_that_lacks_a_cgroup_or_has_another_is_not_the_one() {
        let index = |entries: &[CgroupEntry]| {
            Index::validate(&encode(entries, Meta::now(Mode::V2)).unwrap()).unwrap()
        };
        let (expected, mut other) = (made_up(16, 1), made_up(16, 1));
        assert!(is_exactly(index(&expected).view(), &expected));
        assert!(!is_exactly(index(&expected[1..]).view(), &expected));
        assert!(!is_exactly(index(&made_up(16, 3)).view(), &expected));
        other[7].enabled ^= true;
        assert!(!is_exactly(index(&other).view(), &expected));
    }

    #[test]
    fn orders_cross_as_json() {
        let mut bytes = Vec::new();
        Json(Stage::Show { cgroups: 16, seed: 1 }).encode(&mut bytes);
        let stage = Json::<Stage>::decode(&bytes).unwrap().0;
        assert_eq!(stage, Stage::Show { cgroups: 16, seed: 1 });
        assert!(Json::<Stage>::decode(b"{}").is_err());
    }
}
