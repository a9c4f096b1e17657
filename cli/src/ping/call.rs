use std::time::Instant;

use bellwire::{Client, ClientConfig, Limits, Payload, RunDir, Service, ServiceName, Snapshot};
use bellwire_cgroups::CgroupsSnapshot;

use super::Pong;
use crate::demo::DemoPing;
use crate::exit::{Exit, Failure};
use crate::out::span;

/// Calls one service that this command knows.
pub(super) trait Caller {
    /// Describes the call.
    fn what(&self) -> &'static str;

    /// Calls once, on the session of the last call if it still exists.
    fn call(&mut self) -> Result<Pong, Failure>;
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

struct Typed<S: Service> {
    client: Client<S>,
    what: &'static str,
    request: S::Request,
    is_right: fn(&S::Request, &S::Response) -> bool,
}

/// Returns a caller of the service of this name, if it is known.
pub(super) fn known(
    service: ServiceName,
    run_dir: &RunDir,
    config: &ClientConfig,
) -> Option<Box<dyn Caller>> {
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
        let is_right = |_: &(), snapshot: &Payload| snapshot.is_mapped();
        return Some(Box::new(Typed { client, what, request: (), is_right }));
    }
    if service == Client::<DemoPing>::SERVICE {
        let client = Client::<DemoPing>::with_config(run_dir, config.clone());
        let request = [0x5a; 64];
        let is_right =
            |request: &[u8; 64], answer: &[u8; 64]| *answer == DemoPing::answer(*request);
        let what = "64 bytes each way";
        return Some(Box::new(Typed { client, what, request, is_right }));
    }
    None
}

/// Returns the method number of a service; 1 if this command does not know it.
pub(crate) fn method_of(service: ServiceName) -> u32 {
    if service == Client::<Fetch>::SERVICE { Fetch::METHOD } else { 1 }
}

impl<S: Service> Caller for Typed<S> {
    fn what(&self) -> &'static str {
        self.what
    }

    fn call(&mut self) -> Result<Pong, Failure> {
        let mut note = String::new();
        if !self.client.session().is_some_and(|session| session.is_alive()) {
            let begun = Instant::now();
            self.client.refresh();
            let session = self.client.connect()?;
            let by = session.provider_pid().map_or("?".into(), |pid| pid.to_string());
            note = format!("  (session with process {by} opened in {})", span(begun.elapsed()));
        }
        let begun = Instant::now();
        let answer = self.client.call(&self.request)?;
        let took = begun.elapsed();
        if !(self.is_right)(&self.request, &answer) {
            return Err(Failure::new(Exit::Provider, "the answer is wrong"));
        }
        Ok(Pong { took, word: "", note })
    }
}
