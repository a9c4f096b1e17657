//! Conditions that have to hold at the end of a soak.

use crate::run::Outcome;
use crate::trend::Trend;
use bellwire_cli::check::Check;
use bellwire_cli::out::{bytes, count};
use bellwire_process::ResourceUsage;

/// Failures that faults explain: a client that is stopped during a handshake is refused. Any other kind is a defect.
const EXPECTED: [&str; 7] =
    ["Absent", "Deadline", "PeerGone", "Refused", "Stalled", "Stopping", "WouldBlock"];

/// Returns all checks of a run.
pub(super) fn of(outcome: &Outcome) -> Vec<Check> {
    let mut checks = vec![
        accounted(outcome),
        right(outcome),
        unharmed(outcome),
        ran_once(outcome),
        honest(outcome),
        reconciled(outcome),
        fired(outcome),
    ];
    checks.extend(FIGURES.iter().map(|figure| flat(outcome, figure)));
    let text = match outcome.process_failures.first() {
        Some(first) => format!("every process exited as requested; {first}"),
        None => "every process exited as requested".into(),
    };
    checks.push(Check::new(
        "ended_in_order",
        text,
        outcome.process_failures.is_empty(),
        "see the messages of the process on standard error",
    ));
    checks
}

fn accounted(outcome: &Outcome) -> Check {
    let Outcome { steady, unreconciled, .. } = outcome;
    let total = outcome.total();
    let (made, answered) = (count(total.made), count(total.answered));
    let (refused, failed) = (count(total.refused), count(total.failed));
    let (open, wrong) = (count(total.in_flight), count(total.wrong));
    Check::new(
        "calls_accounted",
        format!(
            "{made} calls made = {answered} answered + {refused} refused + {failed} failed with a reason + {wrong} wrong + {open} in flight when their caller was killed"
        ),
        *unreconciled == 0
            && total.is_sound()
            && steady.total().in_flight == 0
            && some(outcome, total.made),
        "a call was lost, or ended twice: run the same seed again, and find the thread whose counters break first",
    )
}

fn right(outcome: &Outcome) -> Check {
    let Outcome { steady, faulted_consumers, .. } = outcome;
    let wrong = outcome.total().wrong;
    let each =
        [&steady.steady, &steady.faulted, &faulted_consumers.steady, &faulted_consumers.faulted];
    Check::new(
        "answers_right",
        format!("{} answers were wrong, by checksum, number and length", count(wrong)),
        wrong == 0 && each.iter().all(|call_counts| some(outcome, call_counts.answered)),
        "an answer was damaged, swapped or missing: run the same seed again",
    )
}

fn unharmed(outcome: &Outcome) -> Check {
    let call_counts = &outcome.steady.steady;
    let not = call_counts.made - call_counts.answered.min(call_counts.made);
    Check::new(
        "others_unharmed",
        format!(
            "of {} calls between the two steady processes, {} were not answered {:?}",
            count(call_counts.made),
            count(not),
            call_counts.reasons,
        ),
        not == 0 && some(outcome, call_counts.made),
        "a fault affected another session: see what the steady provider's reactor did at that time",
    )
}

fn ran_once(outcome: &Outcome) -> Check {
    let call_counts = &outcome.steady.steady;
    let runs = outcome.provider.runs.get(&outcome.steady_id).copied().unwrap_or(0);
    let repeated = outcome.provider.repeated + outcome.faulted_providers.repeated;
    let bounds =
        call_counts.answered..=call_counts.answered + call_counts.failed + call_counts.wrong;
    Check::new(
        "handlers_ran_once",
        format!(
            "{} runs for {} answers; {} requests arrived twice or out of order",
            count(runs),
            count(call_counts.answered),
            count(repeated),
        ),
        repeated == 0 && bounds.contains(&runs) && some(outcome, runs),
        "a request was sent again although its handler may have run: check the value of Executed",
    )
}

fn honest(outcome: &Outcome) -> Check {
    let Outcome { provider, faulted_providers, .. } = outcome;
    let poisoned = provider.poisoned + faulted_providers.poisoned;
    let damaged = provider.damaged + faulted_providers.damaged;
    let mut total = outcome.total();
    total.reasons.retain(|reason, _| !EXPECTED.contains(&reason.as_str()));
    let odd = &total.reasons;
    Check::new(
        "peers_honest",
        format!(
            "{} sessions poisoned, {} requests damaged, failures that no fault explains: {odd:?}",
            count(poisoned),
            count(damaged),
        ),
        poisoned == 0 && damaged == 0 && odd.is_empty(),
        "valid bytes were taken for a protocol violation, or corrupted: run the same seed again",
    )
}

fn reconciled(outcome: &Outcome) -> Check {
    let Outcome { provider, .. } = outcome;
    let wrong = outcome.total().miscounted;
    let (accepted, answered) = (count(provider.accepted), count(provider.answered));
    let (refused, lost) = (count(provider.refused), count(provider.lost));
    Check::new(
        "counters_reconcile",
        format!(
            "the steady provider took {accepted} = {answered} answered + {refused} refused + {lost} of clients that died; the counters of {} sessions were wrong",
            count(wrong),
        ),
        provider.reconciles() && wrong == 0 && some(outcome, provider.accepted),
        "check the counters in src/stats.rs",
    )
}

fn fired(outcome: &Outcome) -> Check {
    let all = outcome.fired.all();
    let missing: Vec<_> =
        all.iter().filter(|(_, times)| *times == 0).map(|(fault, _)| *fault).collect();
    let text = match missing.is_empty() {
        true => format!("each of {} kinds of fault was observed", all.len()),
        false => format!("never observed: {}", missing.join(", ")),
    };
    let next = "run for longer, or with a shorter --kill-every; otherwise the soak is broken";
    let made = Check::new("faults_fired", text, missing.is_empty(), next);
    Check { ok: made.ok.filter(|ok| *ok || outcome.interrupted.is_none()), ..made }
}

/// A figure that must not grow.
pub(super) struct Figure {
    pub(super) name: &'static str,
    check: &'static str,
    pub(super) of: fn(&ResourceUsage) -> u64,
    pub(super) print: fn(u64) -> String,
    /// The growth that is tolerated.
    allowed: f64,
}

const fn figure(
    (name, check): (&'static str, &'static str),
    of: fn(&ResourceUsage) -> u64,
    print: fn(u64) -> String,
    allowed: f64,
) -> Figure {
    Figure { name, check, of, print, allowed }
}

pub(super) static FIGURES: [Figure; 4] = [
    figure(("descriptors", "descriptors_flat"), |sample| sample.descriptors, count, 5.0),
    // The reaper starts with its first descriptor.
    figure(("threads", "threads_flat"), |sample| sample.threads, count, 2.0),
    figure(("memfds", "memfds_flat"), |sample| sample.memfds, count, 5.0),
    // Buffers filled by messages of up to half a mebibyte, late in some sessions.
    figure(("resident", "rss_flat"), |sample| sample.rss, bytes, 12.0 * 1024.0 * 1024.0),
];

/// The two processes that live through the whole run, in the order of a sample.
pub(super) const LIVING: [&str; 2] = ["steady provider", "steady consumer"];

impl Figure {
    #[allow(clippy::cast_precision_loss, reason = "nothing here comes near 2^53")]
    pub(super) fn trends(&self, outcome: &Outcome) -> [Trend; 2] {
        let line = |pick: fn(&[ResourceUsage; 2]) -> &ResourceUsage| {
            let points = outcome.samples.iter();
            let points: Vec<_> =
                points.map(|(at, held)| (*at, (self.of)(pick(held)) as f64)).collect();
            Trend::of(&points)
        };
        [line(|[provider, _]| provider), line(|[_, consumer]| consumer)]
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "for display; what is negative is shown as 0"
)]
fn flat(outcome: &Outcome, figure: &Figure) -> Check {
    let trends = figure.trends(outcome);
    let [provider, consumer] = trends.map(|trend| (figure.print)(trend.growth.max(0.0) as u64));
    let samples = outcome.samples.len();
    let text = format!(
        "{} grew by {provider} in the steady provider and {consumer} in the steady consumer, by the line through {samples} samples",
        figure.name,
    );
    let has_samples = samples >= 3;
    let ok = has_samples && trends.iter().all(|trend| trend.is_flat(figure.allowed));
    let next = match has_samples {
        true => {
            "a resource is leaked: run for longer with the same seed, and watch /proc/PID meanwhile"
        }
        false => "three samples are needed: run for longer",
    };
    let made = Check::new(figure.check, text, ok, next);
    let is_undecided = outcome.interrupted.is_some() && !has_samples;
    Check { ok: made.ok.filter(|_| !is_undecided), ..made }
}

/// Returns whether there is something to judge, as there must be unless the run was ended early.
fn some(outcome: &Outcome, number: u64) -> bool {
    number > 0 || outcome.interrupted.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Fired;
    use crate::protocol::{CallCounts, ConsumerCalls, Served};
    use bellwire_cli::stop::StopReason;

    /// Returns a soak without failures.
    fn sound() -> Outcome {
        let call_counts = |refused, failed| {
            let reasons = [("PeerGone", failed), ("Absent", refused)];
            let reasons = reasons.into_iter().filter(|(_, times)| *times > 0);
            CallCounts {
                made: 100 + refused + failed,
                answered: 100,
                refused,
                failed,
                reasons: reasons.map(|(reason, times)| (reason.to_owned(), times)).collect(),
                ..CallCounts::default()
            }
        };
        let held = ResourceUsage { descriptors: 90, threads: 5, memfds: 80, rss: 20 << 20 };
        let fired = Fired {
            providers_killed: 1,
            consumers_killed: 1,
            providers_stopped: 1,
            consumers_stopped: 1,
            providers_restarted: 1,
            consumers_restarted: 1,
            clients_stalled: 1,
            lanes_grown: 1,
            lanes_shrunk: 1,
        };
        let faulted_consumers =
            ConsumerCalls { steady: call_counts(0, 2), faulted: call_counts(3, 4) };
        let provider = Served {
            accepted: 203,
            answered: 201,
            lost: 2,
            runs: [(3, 100), (4, 102)].into(),
            ..Served::default()
        };
        Outcome {
            fired,
            steady_id: 3,
            steady: ConsumerCalls { steady: call_counts(0, 0), faulted: call_counts(5, 6) },
            faulted_consumers,
            provider,
            samples: (0..10).map(|at| (f64::from(at), [held; 2])).collect(),
            ..Outcome::default()
        }
    }

    /// Returns the checks that fail after this change.
    fn failing(change: impl FnOnce(&mut Outcome)) -> Vec<&'static str> {
        let mut outcome = sound();
        change(&mut outcome);
        let checks = of(&outcome);
        let failing = checks.iter().filter(|check| check.fails());
        failing.map(|check| check.name).collect()
    }

    /// Makes a figure of the steady provider grow with each sample.
    fn leak(outcome: &mut Outcome, figure: fn(&mut ResourceUsage) -> &mut u64, by: u64) {
        for (times, (_, [provider, _])) in (0..).zip(&mut outcome.samples) {
            *figure(provider) += by * times;
        }
    }

    #[test]
    fn a_sound_soak_passes() {
        assert_eq!(failing(|_| {}), [""; 0]);
    }

    /// A check, and a change that makes it fail.
    type Row = (&'static str, fn(&mut Outcome));

    /// Adds a call that ended like this.
    fn add(call_counts: &mut CallCounts, end: fn(&mut CallCounts) -> &mut u64) {
        call_counts.made += 1;
        *end(call_counts) += 1;
    }

    #[test]
    fn each_fault_fails_its_own_check_alone() {
        let rows: [Row; 21] = [
            ("calls_accounted", |outcome| outcome.faulted_consumers.faulted.made += 1),
            ("calls_accounted", |outcome| outcome.unreconciled += 1),
            // Of one that nobody killed.
            ("calls_accounted", |outcome| add(&mut outcome.steady.faulted, |of| &mut of.in_flight)),
            ("answers_right", |outcome| {
                add(&mut outcome.faulted_consumers.steady, |of| &mut of.wrong);
            }),
            ("answers_right", |outcome| outcome.faulted_consumers.faulted = CallCounts::default()),
            ("others_unharmed", |outcome| add(&mut outcome.steady.steady, |of| &mut of.failed)),
            ("handlers_ran_once", |outcome| outcome.faulted_providers.repeated += 1),
            ("handlers_ran_once", |outcome| outcome.provider.runs = [(3, 0)].into()),
            ("handlers_ran_once", |outcome| outcome.provider.runs = [(3, 99)].into()),
            ("handlers_ran_once", |outcome| outcome.provider.runs = [(3, 101)].into()),
            ("peers_honest", |outcome| outcome.provider.poisoned += 1),
            ("peers_honest", |outcome| outcome.faulted_providers.damaged += 1),
            ("peers_honest", |outcome| {
                outcome.faulted_consumers.faulted.reasons =
                    [("ProtocolViolation".into(), 1)].into();
            }),
            ("counters_reconcile", |outcome| outcome.provider.lost += 1),
            ("counters_reconcile", |outcome| outcome.steady.faulted.miscounted += 1),
            ("faults_fired", |outcome| outcome.fired.consumers_stopped = 0),
            ("descriptors_flat", |outcome| leak(outcome, |held| &mut held.descriptors, 1)),
            ("threads_flat", |outcome| leak(outcome, |held| &mut held.threads, 1)),
            ("memfds_flat", |outcome| leak(outcome, |held| &mut held.memfds, 1)),
            ("rss_flat", |outcome| leak(outcome, |held| &mut held.rss, 2 << 20)),
            ("ended_in_order", |outcome| outcome.process_failures.push("it ended".into())),
        ];
        for (row, (check, change)) in rows.into_iter().enumerate() {
            assert_eq!(failing(change), [check], "row {row}");
        }
    }

    #[test]
    fn a_sign_that_is_missing_after_an_early_end_is_no_fault() {
        let early = |outcome: &mut Outcome| {
            outcome.fired.consumers_stopped = 0;
            outcome.interrupted = Some(StopReason::Interrupt);
        };
        assert_eq!(failing(early), [""; 0]);
    }

    #[test]
    fn too_few_samples_show_nothing_and_fail() {
        let few = failing(|outcome| outcome.samples.truncate(2));
        assert_eq!(few.len(), 4, "{few:?}");
    }
}
