//! The service for clients that speak netipc.

use std::time::Duration;

use bellwire::netipc::lookup::{self, CgroupName, MAX_COMM, Process, ProcessCgroup};
use bellwire::netipc::{self, Answer, CallMethod, Exchange, Status};
use bellwire::{Lookup, Message};

use super::App;

/// The unit in which a start is told.
const TICK: Duration = Duration::from_millis(10);

/// The look-ups.
pub(super) const LOOKUP: CallMethod = CallMethod {
    code: netipc::APPS_LOOKUP,
    takes_batches: false,
    requests: |payload, each| {
        lookup::pids(payload)?.into_iter().for_each(|pid| each(&pid.to_le_bytes()));
        Ok(())
    },
    respond,
};

fn respond(exchange: &Exchange<'_>, into: &mut Vec<u8>) -> Result<(), Status> {
    let pids = lookup::pids(exchange.request).map_err(|_| Status::BadEnvelope)?;
    if pids.len() != exchange.answers.len() {
        return Err(Status::Internal);
    }
    let known = pids.into_iter().zip(exchange.answers);
    let items = known.map(|(pid, answer)| Ok((pid, app(*answer)?)));
    let items = items.collect::<Result<Vec<_>, Status>>()?;
    lookup::write_apps(&items, exchange.generation, exchange.room, into)
}

fn app(answer: Answer<'_>) -> Result<lookup::App, Status> {
    let found = match answer {
        Answer::Ok(bytes) => Lookup::decode(bytes).map_err(|_| Status::Internal)?,
        Answer::Malformed => Lookup::Unknown,
        Answer::TooLarge => Lookup::TooLarge,
        Answer::Failed => return Err(Status::Internal),
    };
    Ok(match found {
        Lookup::Known(app) => lookup::App::Known(process(app)),
        // There is no other word for it here, and a client asks again for what it does not know.
        Lookup::RetryLater | Lookup::Unknown => lookup::App::Unknown,
        Lookup::TooLarge => lookup::App::Oversized,
    })
}

fn process(app: App) -> Process {
    let ticks = app.started.as_nanos() / TICK.as_nanos();
    let end = (0..=MAX_COMM.min(app.comm.len())).rfind(|at| app.comm.is_char_boundary(*at));
    let mut comm = app.comm;
    comm.truncate(end.unwrap_or(0));
    if comm.is_empty() {
        comm.push('?');
    }
    let orchestrator = app.orchestrator.code().into();
    let name = CgroupName { orchestrator, name: app.cgroup_name, labels: app.labels };
    let cgroup = match app.cgroup.as_str() {
        "/" => ProcessCgroup::HostRoot,
        "" => ProcessCgroup::RetryLater(String::new()),
        _ if app.pending => ProcessCgroup::RetryLater(app.cgroup),
        _ if name.name.is_empty() => ProcessCgroup::Unknown(app.cgroup),
        _ => ProcessCgroup::Known(app.cgroup, name),
    };
    let started = u64::try_from(ticks).unwrap_or(u64::MAX);
    Process { ppid: app.ppid, uid: app.uid, started, comm, cgroup }
}
