//! Rows that were not stable, measured again apart from the others.

use std::collections::BTreeSet;

use super::model::{Attempt, Measured, Row};
use crate::contender::ALL;

/// Contenders whose main row may not be published, and those without a valid round.
pub(crate) fn unstable(measured: &Measured) -> BTreeSet<String> {
    let rows = measured.main_rows().filter(|row| !row.stable);
    rows.map(|row| &row.contender).chain(measured.missing.keys()).cloned().collect()
}

/// The first attempt, in which the rows of the second take the place of those that were not stable.
pub(crate) fn merged(mut first: Measured, mut second: Measured) -> Measured {
    let unstable = unstable(&first);
    let one = first.main_rows().next().map(|row| row.contender.clone());
    // Ratios are of rounds that two contenders have together.
    let all = one.as_ref().is_none_or(|one| unstable.contains(one));
    for row in second.rows.iter_mut().filter(|row| row.is_main) {
        let before = first.main_rows().find(|before| before.contender == row.contender);
        row.first_attempt = before.map(|before| Attempt {
            placement: before.placement.clone(),
            stable: before.stable,
            lost: before.lost,
            ns: before.ns,
            samples: before.samples.clone(),
        });
    }
    for missing in std::mem::take(&mut first.missing) {
        if second.missing.contains_key(&missing.0) {
            first.missing.extend([missing]);
        }
    }
    if all {
        second.refused = first.refused;
        second.missing.extend(first.missing);
        return second;
    }
    for row in &mut first.rows {
        let same =
            |other: &&Row| (&other.contender, &other.placement) == (&row.contender, &row.placement);
        let Some(again) = second.rows.iter().find(same) else { continue };
        let ratios = again.ahead_of.iter().filter(|(name, _)| unstable.contains(*name));
        row.ahead_of.extend(ratios.map(|(name, ratio)| (name.clone(), *ratio)));
    }
    second.rows.retain(|row| unstable.contains(&row.contender));
    let again: BTreeSet<_> = second.rows.iter().map(|row| row.contender.clone()).collect();
    first.rows.retain(|row| !again.contains(&row.contender));
    first.rows.append(&mut second.rows);
    let place = |row: &Row| ALL.iter().position(|entry| entry.name == row.contender);
    first.rows.sort_by_key(place);
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Lost;
    use crate::report::model::tests::report;

    /// `bellwire` with these samples and a peer with those.
    fn measured(ours: &[f64], theirs: &[f64]) -> Measured {
        let [mut measured, mut theirs] =
            [ours, theirs].map(|samples| report(samples, None).scenarios.remove(0));
        theirs.rows[0].contender = "seqpacket".to_owned();
        measured.rows.append(&mut theirs.rows);
        let ratio = measured.rows[1].ns;
        measured.rows[0].ahead_of.insert("seqpacket".to_owned(), ratio);
        measured
    }

    const STILL: [f64; 5] = [100.0; 5];
    const TORN: [f64; 6] = [100.0, 100.0, 100.0, 200.0, 200.0, 200.0];

    #[test]
    fn a_second_attempt_replaces_unstable_rows_and_keeps_the_first_as_evidence() {
        let merged = merged(measured(&STILL, &TORN), measured(&[300.0; 5], &[120.0; 5]));
        let [ours, theirs] = &merged.rows[..] else { panic!("two rows: {merged:?}") };
        assert_eq!((ours.ns.median, theirs.ns.median), (100.0, 120.0));
        assert!(ours.first_attempt.is_none() && theirs.stable);
        assert_eq!(theirs.first_attempt.as_ref().map(|first| &first.samples[..]), Some(&TORN[..]));
        // Of rounds that both have.
        assert_eq!(ours.ahead_of["seqpacket"].median, 120.0);
    }

    #[test]
    fn all_are_measured_again_with_the_one_that_they_are_compared_with() {
        let merged = merged(measured(&TORN, &STILL), measured(&[300.0; 5], &[120.0; 5]));
        assert_eq!(merged.rows[0].ns.median, 300.0);
        assert_eq!(merged.rows[1].ns.median, 120.0);
        assert!(merged.rows.iter().all(|row| row.first_attempt.is_some()));
    }

    #[test]
    fn a_row_without_a_valid_round_twice_stays_missing() {
        let without = |samples: &[f64]| {
            let mut measured = measured(samples, samples);
            measured.rows.truncate(1);
            measured.missing.insert("seqpacket".to_owned(), Lost::default());
            measured
        };
        assert!(merged(without(&STILL), without(&STILL)).missing.contains_key("seqpacket"));
        let found = merged(without(&STILL), measured(&STILL, &STILL));
        assert!(found.missing.is_empty());
        assert_eq!(found.rows.len(), 2);
    }
}
