use super::Outcome;
use super::burst::{Arrivals, Burst, LONGEST, LaneSpan, SNAPSHOTS};
use super::figures::{Events, Served, Totals};
use crate::check::Check;
use crate::out::{self, count};

/// One for the calls, one for the snapshots, one for the events, two for the burst's messages and one for its orders.
const SESSIONS: u64 = 6;

/// Returns all checks of a run.
pub(super) fn of(outcome: &Outcome) -> Vec<Check> {
    let (totals, served) = (&outcome.totals, outcome.served.unwrap_or_default());
    let mut cgroups = cgroups(outcome);
    let ran = totals.burst.as_ref();
    let mut burst = burst(ran.unwrap_or(&Burst::default()), &served.burst);
    // A signal came before the burst, or in it.
    match ran {
        None if outcome.interrupted.is_some() => {
            skip(&mut burst, "it ended before the burst, which was not checked");
        }
        Some(Burst { is_interrupted: true, .. }) => {
            skip(&mut burst, "it ended in the burst, which was not checked");
            skip(&mut cgroups, "it ended in the burst, which shows none of the cgroups made");
        }
        _ => {}
    }
    let parts = [answers(totals), snapshots(totals), events(totals), lookups(totals)];
    let checks = parts.into_iter().flatten().chain(cgroups).chain(burst);
    checks.chain(processes(outcome, &served)).collect()
}

/// Marks what was not checked.
fn skip(checks: &mut [Check], why: &str) {
    for check in checks {
        (check.text, check.ok) = (why.into(), None);
    }
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

fn events(totals: &Totals) -> Vec<Check> {
    let Events { taken, missed, wrong, last, before, .. } = totals.events;
    vec![check(
        "events_in_order",
        format!(
            "{} events came in order, {} were missed, each is accounted for",
            count(taken),
            count(missed)
        ),
        taken > 0 && wrong == 0 && before + taken + missed == last,
    )]
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
    let test_cgroups = &outcome.test_cgroups;
    let can = test_cgroups.place().is_some();
    let found = test_cgroups.made > 0
        && test_cgroups.found == test_cgroups.made
        && test_cgroups.not_found == 0;
    let gone = test_cgroups.removed == test_cgroups.made
        && test_cgroups.gone == test_cgroups.removed
        && test_cgroups.not_gone == 0;
    let one = |name, text: String, ok| match can {
        true => check(name, text, ok),
        false => Check { ok: None, ..check(name, not_made(name), false) },
    };
    vec![
        one(
            "cgroups_found",
            format!(
                "each of {} cgroups made was found by id, path and (hash, name)",
                test_cgroups.made
            ),
            found,
        ),
        one(
            "cgroups_gone",
            format!("each of {} cgroups removed disappeared", test_cgroups.removed),
            found && gone,
        ),
    ]
}

fn not_made(name: &str) -> String {
    let what = if name == "cgroups_found" { "is found" } else { "disappears" };
    format!("no cgroups were made here: not checked that one {what}")
}

/// Checks the burst as the consumer saw it, and the requests that reached the handler.
fn burst(burst: &Burst, requests: &Arrivals) -> Vec<Check> {
    let Burst { sent, answers, lanes, shared, .. } = burst;
    let shown: Vec<usize> = burst.snapshots.iter().map(|shown| shown.cgroups).collect();
    let lost = requests.lost(sent.messages) + answers.lost(sent.messages);
    let repeated = requests.repeated + answers.repeated;
    let reordered = requests.reordered + answers.reordered;
    let damaged = requests.damaged + answers.damaged;
    let messages = count(sent.messages);
    let sizes = |of: fn(&LaneSpan) -> u64| {
        let bytes = lanes.iter().map(of).max().unwrap_or(0);
        out::bytes(bytes)
    };
    let back = lanes.iter().filter(|lane| lane.last == lane.first).count();
    let [few, many, few_again] = SNAPSHOTS.map(|cgroups| count(cgroups as u64));
    let memory = [shared.before, shared.most, shared.after].map(|held| out::bytes(held.bytes));
    let [before, most, after] = memory;
    vec![
        check(
            "burst_snapshots",
            format!("snapshots of {few}, {many} and {few_again} cgroups came, complete"),
            shown == SNAPSHOTS,
        ),
        check(
            "burst_exact",
            format!(
                "of {messages} messages each way, up to {}: {lost} lost, {repeated} repeated, {reordered} out of order, {damaged} damaged",
                out::bytes(sent.longest as u64),
            ),
            sent.longest == LONGEST && lost + repeated + reordered + damaged == 0,
        ),
        check(
            "burst_ran_once",
            format!(
                "the handler ran {} times for these {messages} requests",
                count(requests.messages)
            ),
            sent.messages > 0 && requests.messages == sent.messages && burst.out_of_turn == 0,
        ),
        check(
            "burst_lanes_grew",
            format!(
                "lanes of {} became up to {}",
                sizes(|lane| lane.first),
                sizes(|lane| lane.most)
            ),
            !lanes.is_empty() && lanes.iter().all(|lane| lane.most > lane.first),
        ),
        check(
            "burst_lanes_trimmed",
            format!("{back} of {} lanes are back at {}", lanes.len(), sizes(|lane| lane.first)),
            !lanes.is_empty() && back == lanes.len(),
        ),
        check(
            "burst_memory_returned",
            format!("shared memory: {before} before, {most} meanwhile, {after} after"),
            shared.before.bytes > 0
                && shared.after.bytes <= shared.before.bytes / 10 * 11
                && shared.after.pieces <= shared.before.pieces,
        ),
    ]
}

fn processes(outcome: &Outcome, served: &Served) -> Vec<Check> {
    let Outcome { totals, .. } = outcome;
    let reported = outcome.served.is_some();
    let sessions = || totals.sessions.iter();
    let made: u64 = sessions().map(|session| session.made).sum();
    let answered: u64 = sessions().map(|session| session.answered).sum();
    let failed: u64 = sessions().map(|session| session.failed).sum();
    let in_flight: u64 = sessions().map(|session| session.in_flight).sum();
    let here = made == answered + failed + in_flight;
    // Of the requests that an interrupted burst leaves in flight, the provider may not have accepted some.
    let unaccepted = if outcome.interrupted.is_some() { in_flight } else { 0 };
    let there = served.accepted == served.answered + served.refused + served.lost;
    vec![
        check(
            "ended_cleanly",
            "the provider process ended by itself, with status 0",
            reported && outcome.trouble.is_empty(),
        ),
        check(
            "no_reconnects",
            format!("{SESSIONS} sessions were opened, none again"),
            reported
                && served.sessions == SESSIONS
                && served.handshakes_failed == 0
                && served.poisoned == 0,
        ),
        check(
            "no_errors",
            "no errors",
            reported && totals.errors == 0 && failed == 0 && served.failed_scans == 0,
        ),
        check(
            "counters_reconcile",
            format!(
                "made {made} = answered {answered} + failed {failed} + in flight {in_flight}, and accepted = answered + refused + lost"
            ),
            reported && here && there && served.accepted + unaccepted >= made,
        ),
    ]
}

fn check(name: &'static str, text: impl Into<String>, ok: bool) -> Check {
    Check::new(name, text, ok, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::burst::Shown;

    /// Returns the checks that fail when the figures of a good run are changed.
    fn failing(change: impl Fn(&mut Burst, &mut Arrivals)) -> Vec<&'static str> {
        let arrivals = Arrivals { messages: 9, bytes: 99, ..Arrivals::default() };
        let (mut ran, mut requests) = (Burst { answers: arrivals, ..Burst::default() }, arrivals);
        ran.snapshots = SNAPSHOTS.map(|cgroups| Shown { cgroups, ..Shown::default() }).into();
        (ran.sent.messages, ran.sent.longest) = (9, LONGEST);
        let (session, first, most) = ("burst", 1 << 14, 1 << 20);
        let lane = |lane| LaneSpan { session, lane, first, most, last: first };
        ran.lanes = vec![lane("requests"), lane("answers")];
        (ran.shared.before.bytes, ran.shared.before.pieces) = (100_000, 20);
        ran.shared.after = ran.shared.before;
        change(&mut ran, &mut requests);
        let checks = burst(&ran, &requests).into_iter();
        checks.filter(|check| check.ok == Some(false)).map(|check| check.name).collect()
    }

    #[test]
    fn a_good_burst_passes() {
        assert_eq!(failing(|_, _| {}), [""; 0]);
    }

    #[test]
    fn a_message_lost_repeated_reordered_or_damaged_fails() {
        let changes: [fn(&mut Arrivals); 4] = [
            |arrivals| arrivals.messages -= 1,
            |arrivals| arrivals.repeated += 1,
            |arrivals| arrivals.reordered += 1,
            |arrivals| arrivals.damaged += 1,
        ];
        for change in changes {
            assert!(failing(|_, requests| change(requests)).contains(&"burst_exact"));
            assert!(failing(|ran, _| change(&mut ran.answers)).contains(&"burst_exact"));
        }
        assert_eq!(failing(|ran, _| ran.sent.longest -= 1), ["burst_exact"]);
    }

    #[test]
    fn a_handler_that_ran_twice_or_out_of_turn_fails() {
        let twice = |_: &mut Burst, requests: &mut Arrivals| {
            requests.messages += 1;
            requests.repeated += 1;
        };
        assert_eq!(failing(twice), ["burst_exact", "burst_ran_once"]);
        assert_eq!(failing(|ran, _| ran.out_of_turn += 1), ["burst_ran_once"]);
    }

    #[test]
    fn a_lane_that_did_not_grow_or_stayed_large_fails() {
        assert_eq!(failing(|ran, _| ran.lanes[1].most = 1 << 14), ["burst_lanes_grew"]);
        assert_eq!(failing(|ran, _| ran.lanes[1].last = 1 << 15), ["burst_lanes_trimmed"]);
    }

    #[test]
    fn memory_not_returned_or_a_missing_snapshot_fails() {
        assert_eq!(failing(|ran, _| ran.shared.after.bytes += 20_000), ["burst_memory_returned"]);
        assert_eq!(failing(|ran, _| ran.shared.after.pieces += 1), ["burst_memory_returned"]);
        assert_eq!(failing(|ran, _| ran.snapshots.truncate(2)), ["burst_snapshots"]);
    }

    #[test]
    fn a_burst_that_did_not_run_fails() {
        let checks = burst(&Burst::default(), &Arrivals::default());
        assert!(checks.len() == 6 && checks.iter().all(|check| check.ok == Some(false)));
    }
}
