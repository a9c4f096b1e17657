use std::time::Duration;

use bellwire::{
    CallError, ClientConfig, ConnectError, ErrorKind, Liveness, Observer, Probe, RefuseCode,
    RunDir, ServerReport, ServerStats, ServiceName, Terms, probe,
};

use crate::config;
use crate::exit::{Exit, Failure, chain};
use crate::{ls, ping};

/// What was found of one service.
pub(crate) struct Provider {
    pub(crate) service: ServiceName,
    pub(crate) found: Found,
    /// Of the provider, as the kernel tells.
    pub(crate) pid: Option<u32>,
    /// How long the handshake took.
    pub(crate) took: Option<Duration>,
    /// What a session starts with.
    pub(crate) terms: Option<Terms>,
    /// What its server has counted; `None` when it was not asked, or knows no such question.
    pub(crate) report: Option<ServerReport>,
}

/// How a service answers.
pub(crate) enum Found {
    Open,
    /// The provider is alive, and refused; for its method alone, or not.
    Refused(RefuseCode, Box<str>),
    Absent,
    /// There was no answer, or none that makes sense.
    Failed(ErrorKind, String),
}

/// Asks the providers of a run dir, or one of them.
pub(crate) struct Asker<'a> {
    pub(crate) run_dir: &'a RunDir,
    pub(crate) timeout: Duration,
    /// Opens a session for this method, in place of asking for counters.
    pub(crate) method: Option<u32>,
}

impl Asker<'_> {
    /// Each service that somebody serves, or perhaps serves.
    pub(crate) fn all(&self) -> Result<Vec<Provider>, Failure> {
        let endpoints = self.run_dir.endpoints();
        let endpoints = endpoints.map_err(|error| ls::unlisted(self.run_dir, &error))?;
        let alive = endpoints.into_iter().filter(|endpoint| endpoint.liveness != Liveness::Stale);
        Ok(alive.map(|endpoint| self.one(endpoint.service)).collect())
    }

    pub(crate) fn one(&self, service: ServiceName) -> Provider {
        let config = ClientConfig {
            timeout: self.timeout,
            connect_timeout: self.timeout,
            ..config::client()
        };
        if let Some(method) = self.method {
            return Provider::probed(service, probe(self.run_dir, service, method, &config));
        }
        match Observer::open(self.run_dir, service, &config) {
            Ok(mut observer) => {
                let looked = observer.look();
                Provider::observed(service, &observer, looked)
            }
            // It may be older than the question: who provides it is told all the same.
            Err(ConnectError::Refused { .. }) => {
                let method = ping::method_of(service);
                Provider::probed(service, probe(self.run_dir, service, method, &config))
            }
            Err(error) => Provider::none(service, (&error).into()),
        }
    }
}

impl Provider {
    fn none(service: ServiceName, found: Found) -> Self {
        Self { service, found, pid: None, took: None, terms: None, report: None }
    }

    fn observed(
        service: ServiceName,
        observer: &Observer,
        looked: Result<ServerReport, CallError>,
    ) -> Self {
        let (found, report) = match looked {
            Ok(report) => (Found::Open, Some(report)),
            Err(error) => (Found::Failed(error.kind(), chain(&error)), None),
        };
        let (pid, took) = (observer.provider_pid(), Some(observer.took()));
        Self { service, found, pid, took, terms: Some(observer.terms()), report }
    }

    fn probed(service: ServiceName, probed: Result<Probe, ConnectError>) -> Self {
        match probed {
            Ok(Probe { took, pid, refused, terms, .. }) => {
                let refused = refused.map(|(code, why)| Found::Refused(code, why));
                let found = refused.unwrap_or(Found::Open);
                Self { service, found, pid, took: Some(took), terms, report: None }
            }
            Err(error) => Self::none(service, (&error).into()),
        }
    }

    /// The counters of this service alone.
    pub(crate) fn stats(&self) -> Option<&ServerStats> {
        let rows = self.report.as_ref()?.services.iter();
        rows.map(|row| (row.service, &row.stats))
            .find_map(|(service, stats)| (service == self.service).then_some(stats))
    }

    /// A refusal for the method alone is an answer: the provider is there, and serves who knows its method.
    pub(crate) fn verdict(&self) -> Exit {
        match &self.found {
            Found::Open | Found::Refused(RefuseCode::Service, _) => Exit::Ok,
            Found::Refused(..) => Exit::Refused,
            Found::Absent => Exit::Absent,
            Found::Failed(kind, _) => (*kind).into(),
        }
    }
}

impl From<&ConnectError> for Found {
    fn from(error: &ConnectError) -> Self {
        match error {
            ConnectError::Absent => Self::Absent,
            error => Self::Failed(error.kind(), chain(error)),
        }
    }
}
