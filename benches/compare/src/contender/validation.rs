//! What every reader of a snapshot does, whatever carries it: validating and indexing, and no transport.

use bellwire_cgroups::View;

use super::{Client, Contender, ContenderInfo, Indexed, Server};
use crate::Outcome;
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::Measure;
use crate::serve::generations;

/// The part of `snapshot-changed` that is the same for all contenders.
pub(super) struct Validation;

/// Readers have all generations already.
struct Idle;

impl Contender for Validation {
    const NAME: &'static str = "validation";

    fn about() -> ContenderInfo {
        ContenderInfo::of_this_project(
            "no transport: each reader has the same generations in its own memory, and updates its index",
        )
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Refresh { changed: true, .. } => None,
            _ => Some("is a part of snapshot-changed, and carries nothing"),
        }
    }

    fn serve(_: &Case, _: Handler) -> Outcome<impl Server> {
        Ok(Idle)
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        let Work::Refresh { cgroups, .. } = case.load.work else {
            return Err("this reader has snapshots only".into());
        };
        measure.run(|| {
            Ok(Reader { generations: generations(cgroups)?, next: 0, index: Indexed::default() })
        })
    }
}

impl Server for Idle {
    fn publish(&mut self, _: &[u8]) -> Outcome<()> {
        Ok(())
    }
}

/// A reader that gets each generation for nothing.
struct Reader {
    generations: Vec<Vec<u8>>,
    next: usize,
    index: Indexed,
}

impl Client for Reader {
    #[inline]
    fn refresh(&mut self) -> Outcome<bool> {
        let bytes = self.generations.get(self.next).ok_or("no generations")?;
        self.next = (self.next + 1) % self.generations.len();
        self.index.update(bytes)?;
        Ok(true)
    }

    fn snapshot(&self) -> Outcome<View<'_>> {
        self.index.view()
    }
}
