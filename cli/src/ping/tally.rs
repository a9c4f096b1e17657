use std::time::Duration;

use bellwire::ServiceName;
use hdrhistogram::Histogram;

use super::Pong;
use crate::exit::{Exit, Failure};
use crate::out::{count, nanos, span};

/// The tries and their results.
pub(super) struct Tally {
    tried: u64,
    /// Nanoseconds.
    answers: Option<Histogram<u64>>,
    failure: Option<Failure>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            tried: 0,
            answers: Histogram::new_with_bounds(1, 3_600_000_000_000, 3).ok(),
            failure: None,
        }
    }

    pub(super) fn tried(&self) -> u64 {
        self.tried
    }

    /// Counts one try and returns its number.
    pub(super) fn add(&mut self, tried: Result<&Pong, &Failure>) -> u64 {
        self.tried += 1;
        if let (Ok(pong), Some(answers)) = (tried, &mut self.answers) {
            let nanos = u64::try_from(pong.took.as_nanos()).unwrap_or(u64::MAX);
            answers.saturating_record(nanos.max(1));
        }
        self.tried
    }

    /// Keeps the reason of the last failed try.
    pub(super) fn keep(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    pub(super) fn summary(&self, service: ServiceName, unit: &str, took: Duration) -> String {
        let (tried, answered) = (count(self.tried), self.answered());
        let lost = self.tried - answered;
        #[allow(clippy::cast_precision_loss, reason = "a percentage for people")]
        let loss = if self.tried == 0 { 0.0 } else { lost as f64 * 100.0 / self.tried as f64 };
        let head = format!(
            "--- {service}: {tried} {unit}, {} answered, {loss:.0} % lost, in {}",
            count(answered),
            span(took),
        );
        let Some(answers) = self.answers.as_ref().filter(|answers| !answers.is_empty()) else {
            return head;
        };
        #[allow(clippy::cast_precision_loss, reason = "three digits are printed")]
        let exact = |value: u64| nanos(value as f64);
        format!(
            "{head}\n--- min {}  avg {}  p99 {}  max {}",
            exact(answers.min()),
            nanos(answers.mean()),
            exact(answers.value_at_quantile(0.99)),
            exact(answers.max()),
        )
    }

    /// Returns 0 if all tries were answered.
    pub(super) fn verdict(self) -> Result<Exit, Failure> {
        match self.failure {
            None => Ok(Exit::Ok),
            Some(_) if self.answered() > 0 => Ok(Exit::Failed),
            Some(failure) => Err(failure),
        }
    }

    fn answered(&self) -> u64 {
        self.answers.as_ref().map_or(0, Histogram::len)
    }
}
