use std::time::Duration;

use bellwire::{
    CallError, ConnectError, ErrorKind, Liveness, Probe, RefuseCode, RunDir, ServerReport,
    ServerStats, ServiceName, SessionTerms, StatsClient, probe,
};

use crate::config;
use crate::exit::{Exit, Failure, chain};
use crate::{ls, ping};

/// The findings about one service.
pub(crate) struct Provider {
    pub(crate) service: ServiceName,
    pub(crate) result: QueryResult,
    /// The provider's process id, from the kernel.
    pub(crate) pid: Option<u32>,
    /// How long the handshake took.
    pub(crate) took: Option<Duration>,
    /// The initial terms of a session.
    pub(crate) terms: Option<SessionTerms>,
    /// Its server's counters; `None` if they were not requested or the server does not support the request.
    pub(crate) report: Option<ServerReport>,
}

/// A service's answer.
pub(crate) enum QueryResult {
    Open,
    /// The provider is alive and refused, possibly only because of the version.
    Refused(RefuseCode, Box<str>),
    Absent,
    /// There was no valid answer.
    Failed(ErrorKind, String),
}

/// Asks the providers of a run dir, or one of them.
pub(crate) struct StatsQuery<'a> {
    pub(crate) run_dir: &'a RunDir,
    pub(crate) timeout: Duration,
    /// Opens a session for this version instead of asking for counters.
    pub(crate) version: Option<u32>,
}

impl StatsQuery<'_> {
    /// Returns each service that is served, or may be. A connection would start an activated one.
    pub(crate) fn all(&self) -> Result<Vec<Provider>, Failure> {
        let endpoints = self.run_dir.endpoints();
        let endpoints = endpoints.map_err(|error| ls::unlisted(self.run_dir, &error))?;
        let idle = [Liveness::Stale, Liveness::Activated];
        let alive = endpoints.into_iter().filter(|endpoint| !idle.contains(&endpoint.liveness));
        Ok(alive.map(|endpoint| self.one(endpoint.service)).collect())
    }

    pub(crate) fn one(&self, service: ServiceName) -> Provider {
        let config = config::client().timeout(self.timeout).connect_timeout(self.timeout);
        if let Some(version) = self.version {
            return Provider::probed(service, probe(self.run_dir, service, version, &config));
        }
        match StatsClient::open(self.run_dir, service, &config) {
            Ok(mut client) => {
                let fetched = client.fetch();
                Provider::observed(service, &client, fetched)
            }
            // The provider may be too old for the request; its identity is reported anyway.
            Err(ConnectError::Refused { .. }) => {
                let version = ping::version_of(service);
                Provider::probed(service, probe(self.run_dir, service, version, &config))
            }
            Err(error) => Provider::none(service, (&error).into()),
        }
    }
}

impl Provider {
    fn none(service: ServiceName, result: QueryResult) -> Self {
        Self { service, result, pid: None, took: None, terms: None, report: None }
    }

    fn observed(
        service: ServiceName,
        client: &StatsClient,
        fetched: Result<ServerReport, CallError>,
    ) -> Self {
        let (result, report) = match fetched {
            Ok(report) => (QueryResult::Open, Some(report)),
            Err(error) => (QueryResult::Failed(error.kind(), chain(&error)), None),
        };
        let (pid, took) = (client.provider_pid(), Some(client.took()));
        Self { service, result, pid, took, terms: Some(client.terms()), report }
    }

    fn probed(service: ServiceName, probed: Result<Probe, ConnectError>) -> Self {
        match probed {
            Ok(Probe { took, pid, refused, terms, .. }) => {
                let refused = refused.map(|(code, why)| QueryResult::Refused(code, why));
                let result = refused.unwrap_or(QueryResult::Open);
                Self { service, result, pid, took: Some(took), terms, report: None }
            }
            Err(error) => Self::none(service, (&error).into()),
        }
    }

    /// Returns the counters of this service alone.
    pub(crate) fn stats(&self) -> Option<&ServerStats> {
        let rows = self.report.as_ref()?.services.iter();
        rows.map(|row| (row.service, &row.stats))
            .find_map(|(service, stats)| (service == self.service).then_some(stats))
    }

    /// Returns the exit status. A refusal because of the version alone counts as an answer: the provider is there and serves
    /// clients that know its version.
    pub(crate) fn verdict(&self) -> Exit {
        match &self.result {
            QueryResult::Open | QueryResult::Refused(RefuseCode::Service, _) => Exit::Ok,
            QueryResult::Refused(..) => Exit::Refused,
            QueryResult::Absent => Exit::Absent,
            QueryResult::Failed(kind, _) => (*kind).into(),
        }
    }
}

impl From<&ConnectError> for QueryResult {
    fn from(error: &ConnectError) -> Self {
        match error {
            ConnectError::Absent => Self::Absent,
            error => Self::Failed(error.kind(), chain(error)),
        }
    }
}
