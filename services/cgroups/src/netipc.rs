//! Both services for clients that speak netipc.

use bellwire::netipc::lookup::{self, Cgroup};
use bellwire::netipc::snapshot::{self, Item};
use bellwire::netipc::{self, Answer, CallMethod, Exchange, SnapshotMethod, Status};
use bellwire::{Lookup, Message};

use super::{CgroupDetails, Index, Options, View};

/// The snapshot, as `docs/migrating-from-netipc.md` says.
pub(super) const SNAPSHOT: SnapshotMethod = SnapshotMethod {
    code: netipc::CGROUPS_SNAPSHOT,
    check: snapshot::check_request,
    translate: |bytes, generation| {
        let index = Index::validate(bytes).ok()?;
        let view = index.view();
        let paths: Vec<String> = view.iter().map(|cgroup| procs_of(&view, &cgroup)).collect();
        let items = view.iter().zip(&paths).map(|(cgroup, path)| Item {
            options: options(cgroup.options),
            enabled: cgroup.enabled,
            name: cgroup.name,
            path,
        });
        Some(snapshot::write(items, true, generation))
    },
};

/// The look-ups.
pub(super) const LOOKUP: CallMethod = CallMethod {
    code: netipc::CGROUPS_LOOKUP,
    takes_batches: false,
    requests: |payload, each| {
        lookup::paths(payload)?.into_iter().for_each(each);
        Ok(())
    },
    respond,
};

/// Returns the file with the cgroup's processes, which consumers read, or its path where the provider does not say where the
/// hierarchy is mounted.
fn procs_of(view: &View<'_>, cgroup: &super::Cgroup<'_>) -> String {
    match view.root_of(cgroup) {
        Some(root) => format!("{root}{}/cgroup.procs", cgroup.path.trim_end_matches('/')),
        None => cgroup.path.to_owned(),
    }
}

fn options(options: Options) -> u32 {
    let bit = |option, bit| if options.contains(option) { bit } else { 0 };
    bit(Options::SYSTEM_SERVICE, snapshot::SYSTEM_SERVICE)
        | bit(Options::UNIFIED, snapshot::UNIFIED)
}

fn respond(exchange: &Exchange<'_>, into: &mut Vec<u8>) -> Result<(), Status> {
    let paths = lookup::paths(exchange.request).map_err(|_| Status::BadEnvelope)?;
    if paths.len() != exchange.answers.len() {
        return Err(Status::Internal);
    }
    let known = paths.into_iter().zip(exchange.answers);
    let items = known.map(|(path, answer)| Ok((path, cgroup(*answer)?)));
    let items = items.collect::<Result<Vec<_>, Status>>()?;
    lookup::write_cgroups(&items, exchange.generation, exchange.room, into)
}

fn cgroup(answer: Answer<'_>) -> Result<Cgroup, Status> {
    let found = match answer {
        Answer::Ok(bytes) => Lookup::decode(bytes).map_err(|_| Status::Internal)?,
        // A path that is no text: no cgroup of this provider has one.
        Answer::Malformed => Lookup::Unknown,
        Answer::TooLarge => Lookup::TooLarge,
        Answer::Failed => return Err(Status::Internal),
    };
    Ok(match found {
        // Its name may change, and a client keeps what is known.
        Lookup::Known(CgroupDetails { options, .. }) if options.contains(Options::PENDING) => {
            Cgroup::RetryLater
        }
        Lookup::Known(CgroupDetails { orchestrator, name, labels, .. }) => {
            Cgroup::Known { orchestrator: orchestrator.code().into(), name, labels }
        }
        Lookup::RetryLater => Cgroup::RetryLater,
        Lookup::Unknown => Cgroup::Unknown,
        Lookup::TooLarge => Cgroup::Oversized,
    })
}
