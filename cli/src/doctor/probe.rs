use std::error::Error;

use serde::Serialize;

/// One thing that was tried.
#[derive(Debug, Serialize)]
pub(super) struct Probe {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) state: State,
    pub(super) detail: String,
    pub(super) advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    /// It works, less well than it could.
    Limited,
    Missing,
}

/// What trying something found.
#[derive(Debug)]
pub(super) struct Finding {
    state: State,
    detail: String,
    advice: Option<String>,
}

pub(super) type Tried = Result<Finding, Box<dyn Error>>;

/// Tries things of one group.
pub(super) struct Group {
    name: &'static str,
    probes: Vec<Probe>,
}

impl Finding {
    pub(super) fn ok(detail: impl Into<String>) -> Self {
        Self { state: State::Ok, detail: detail.into(), advice: None }
    }

    pub(super) fn limited(detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: State::Limited, detail: detail.into(), advice: Some(advice.into()) }
    }

    pub(super) fn missing(detail: impl Into<String>) -> Self {
        Self { state: State::Missing, detail: detail.into(), advice: None }
    }
}

impl Group {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, probes: Vec::new() }
    }

    /// Tries what Bellwire cannot do without.
    pub(super) fn required(&mut self, name: &'static str, advice: &str, tried: Tried) {
        self.add(name, true, advice, tried);
    }

    /// Tries what Bellwire uses where it is there.
    pub(super) fn optional(&mut self, name: &'static str, advice: &str, tried: Tried) {
        self.add(name, false, advice, tried);
    }

    pub(super) fn probes(self) -> Vec<Probe> {
        self.probes
    }

    fn add(&mut self, name: &'static str, required: bool, advice: &str, tried: Tried) {
        let Finding { state, detail, advice: own } =
            tried.unwrap_or_else(|error| Finding::missing(crate::exit::chain(&*error)));
        let advice = own.or_else(|| (state == State::Missing).then(|| advice.to_owned()));
        self.probes.push(Probe { group: self.name, name, required, state, detail, advice });
    }
}
