use std::time::Instant;

use bellwire::{Client, ClientConfig, Limits, Payload, RunDir, Service, ServiceName, Snapshot};
use bellwire_cgroups::CgroupsSnapshot;

use super::Pong;
use crate::demo::DemoPing;
use crate::exit::{Exit, Failure};
use crate::out::span;

/// Calls one service that this command knows.
pub(super) struct Caller {
    /// Describes the call.
    pub(super) what: &'static str,
    /// Calls once, on the session of the last call if it still exists.
    pub(super) call: Box<dyn FnMut() -> Result<Pong, Failure>>,
}

/// The call of `cgroups-snapshot`: the provider passes the descriptor of its newest snapshot.
struct Fetch;

impl Service for Fetch {
    const NAME: &'static str = CgroupsSnapshot::NAME;
    const METHOD: u32 = CgroupsSnapshot::METHOD;
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Response = Payload;
}

/// Returns a caller of the service of this name, if it is known.
pub(super) fn known(
    service: ServiceName,
    run_dir: &RunDir,
    config: &ClientConfig,
) -> Option<Caller> {
    if service == Client::<Fetch>::SERVICE {
        let len = CgroupsSnapshot::MAX_LEN as u64;
        let limits = Limits {
            max_message: len,
            max_shared_bytes_per_session: len.saturating_mul(2),
            ..config.lane.limits
        };
        let config = config.clone().lane(config.lane.clone().limits(limits));
        let client = Client::<Fetch>::with_config(run_dir, config);
        let what = "each passes the descriptor of the newest snapshot";
        return Some(caller(client, what, (), |(), snapshot| snapshot.is_mapped()));
    }
    if service == Client::<DemoPing>::SERVICE {
        let client = Client::<DemoPing>::with_config(run_dir, config.clone());
        let is_right = |request: &_, answer: &_| *answer == DemoPing::answer(*request);
        return Some(caller(client, "64 bytes each way", [0x5a; 64], is_right));
    }
    None
}

/// Returns the method number of a service; 1 if this command does not know it.
pub(crate) fn method_of(service: ServiceName) -> u32 {
    if service == Client::<Fetch>::SERVICE { Fetch::METHOD } else { 1 }
}

fn caller<S: Service + 'static>(
    mut client: Client<S>,
    what: &'static str,
    request: S::Request,
    is_right: fn(&S::Request, &S::Response) -> bool,
) -> Caller {
    let call = move || {
        let mut note = String::new();
        if !client.session().is_some_and(|session| session.is_alive()) {
            let begun = Instant::now();
            client.refresh();
            let session = client.connect()?;
            let by = session.provider_pid().map_or("?".into(), |pid| pid.to_string());
            note = format!("  (session with process {by} opened in {})", span(begun.elapsed()));
        }
        let begun = Instant::now();
        let answer = client.call(&request)?;
        let took = begun.elapsed();
        if !is_right(&request, &answer) {
            return Err(Failure::new(Exit::Provider, "the answer is wrong"));
        }
        Ok(Pong { took, word: "", note })
    };
    Caller { what, call: Box::new(call) }
}
