use std::time::Instant;

use bellwire::{Client, ClientConfig, Limits, Payload, RunDir, Service, ServiceName, Snapshot};
use bellwire_cgroups::CgroupsSnapshot;

use super::{Pong, Way};
use crate::demo::DemoPing;
use crate::exit::{Exit, Failure};
use crate::out::span;

/// The call of `cgroups-snapshot`: the provider passes the descriptor of its newest snapshot.
struct Fetch;

impl Service for Fetch {
    const NAME: &'static str = CgroupsSnapshot::NAME;
    const VERSION: u32 = CgroupsSnapshot::VERSION;
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Response = Payload;
}

/// Returns how the service of this name is called, if it is known.
pub(super) fn known(
    service: ServiceName,
    run_dir: &RunDir,
    config: &ClientConfig,
) -> Option<Way<'static>> {
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
        return Some(calls(client, what, (), |(), snapshot| snapshot.is_mapped()));
    }
    if service == Client::<DemoPing>::SERVICE {
        let client = Client::<DemoPing>::with_config(run_dir, config.clone());
        let is_right = |request: &_, answer: &_| *answer == DemoPing::answer(*request);
        return Some(calls(client, "64 bytes each way", [0x5a; 64], is_right));
    }
    None
}

/// Returns the version of a service; 1 if this command does not know it.
pub(crate) fn version_of(service: ServiceName) -> u32 {
    if service == Client::<Fetch>::SERVICE { Fetch::VERSION } else { 1 }
}

/// Calls on the session of the last call, if it still exists.
fn calls<S: Service + 'static>(
    mut client: Client<S>,
    what: &'static str,
    request: S::Request,
    is_right: fn(&S::Request, &S::Response) -> bool,
) -> Way<'static> {
    let once = move || {
        let mut note = String::new();
        if !client.session().is_some_and(|session| session.is_open()) {
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
    Way { what: format!("calls on one session, {what}"), unit: "calls", once: Box::new(once) }
}
