use super::Outcome;
use super::protocol::{Served, Totals};

/// Something that has to hold.
#[derive(Debug)]
pub(super) struct Check {
    /// The key in JSON.
    pub(super) name: &'static str,
    pub(super) text: String,
    /// `None` when it cannot be told here.
    pub(super) ok: Option<bool>,
}

/// All checks of a run.
pub(super) fn of(outcome: &Outcome) -> Vec<Check> {
    let totals = outcome.totals.clone().unwrap_or_default();
    let served = outcome.served.unwrap_or_default();
    let told = outcome.totals.is_some();
    let checks = [answers(&totals), snapshots(&totals), lookups(&totals)].into_iter().flatten();
    let checks = checks.map(|check| Check { ok: check.ok.map(|ok| ok && told), ..check });
    checks.chain(cgroups(outcome)).chain(processes(outcome, &totals, &served)).collect()
}

fn answers(totals: &Totals) -> Vec<Check> {
    let calls = &totals.calls;
    vec![check(
        "answers_verified",
        "every answer was that of its request",
        calls.verified > 0 && calls.wrong == 0 && calls.verified == calls.answered,
    )]
}

fn snapshots(totals: &Totals) -> Vec<Check> {
    let refreshes = &totals.refreshes;
    let (first, last) = (refreshes.first_generation, refreshes.last_generation);
    vec![
        check("snapshot_received", "at least one snapshot came", refreshes.changed > 0),
        check(
            "generations_grow",
            format!("generations only grew: {first} to {last}"),
            refreshes.changed > 0 && refreshes.went_back == 0,
        ),
        check(
            "snapshots_revalidate",
            format!("each of {} snapshots validated a second time, to the same", refreshes.changed),
            refreshes.revalidated == refreshes.changed && refreshes.not_revalidated == 0,
        ),
    ]
}

fn lookups(totals: &Totals) -> Vec<Check> {
    let lookups = &totals.lookups;
    vec![
        check(
            "lookups_verified",
            "every look-up by id, path and (hash, name) found its cgroup",
            lookups.made > lookups.of_absent && lookups.wrong == 0,
        ),
        check(
            "absent_name_not_found",
            "look-ups of a name that no cgroup has found nothing",
            lookups.of_absent > 0 && lookups.absent_found == 0,
        ),
    ]
}

fn cgroups(outcome: &Outcome) -> Vec<Check> {
    let world = &outcome.world;
    let can = world.place().is_some();
    let found = world.made > 0 && world.found == world.made && world.not_found == 0;
    let gone = world.removed == world.made && world.gone == world.removed && world.not_gone == 0;
    let one = |name, text: String, ok| match can {
        true => Check { name, text, ok: Some(ok) },
        false => Check { name, text: not_made(name), ok: None },
    };
    vec![
        one(
            "cgroups_found",
            format!("each of {} cgroups made was found by id, path and (hash, name)", world.made),
            found,
        ),
        one(
            "cgroups_gone",
            format!("each of {} cgroups removed disappeared", world.removed),
            found && gone,
        ),
    ]
}

fn not_made(name: &str) -> String {
    let what = if name == "cgroups_found" { "is found" } else { "disappears" };
    format!("no cgroups were made here: not checked that one {what}")
}

fn processes(outcome: &Outcome, totals: &Totals, served: &Served) -> Vec<Check> {
    let told = outcome.totals.is_some() && outcome.served.is_some();
    let calls = &totals.calls;
    let here = calls.made == calls.answered + calls.failed + calls.in_flight;
    let there = served.accepted == served.answered + served.refused + served.lost;
    vec![
        check(
            "ended_cleanly",
            "both processes ended by themselves, with status 0",
            told && outcome.ends.is_empty(),
        ),
        // One session for the calls, one for the snapshots.
        check(
            "no_reconnects",
            "two sessions were opened, none again",
            told && served.sessions == 2 && served.turned_away == 0 && served.poisoned == 0,
        ),
        check(
            "no_errors",
            "no errors",
            told && totals.errors == 0 && calls.failed == 0 && served.failed_scans == 0,
        ),
        check(
            "counters_reconcile",
            format!(
                "made {} = answered {} + failed {} + in flight {}, and accepted = answered + refused + lost",
                calls.made, calls.answered, calls.failed, calls.in_flight
            ),
            told && here && there && served.accepted >= calls.made,
        ),
    ]
}

fn check(name: &'static str, text: impl Into<String>, ok: bool) -> Check {
    Check { name, text: text.into(), ok: Some(ok) }
}
