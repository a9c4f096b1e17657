//! Histograms in the format of OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::histogram::Histogram;
use crate::stage::{CALL_STAGES, REPLY_STAGES, Stage};
use crate::tracer::{Counts, Key, Losses};

const FAMILY: &str = "bellwire_call_stage_seconds";
/// The upper bounds of the buckets as powers of two, in nanoseconds: 256 ns to 17 s.
const POWERS: std::ops::RangeInclusive<usize> = 8..=34;
const NANOS: f64 = 1e-9;

/// Returns the whole exposition.
pub(super) fn text(counts: &BTreeMap<Key, Counts>, losses: Losses) -> String {
    let mut text = format!(
        "# TYPE {FAMILY} histogram\n\
         # HELP {FAMILY} Where the time of sampled calls went; the stage call is all of it.\n"
    );
    for (key, counts) in counts {
        let labels = labels(key, counts);
        for stage in CALL_STAGES.into_iter().chain(REPLY_STAGES).chain([Stage::Call]) {
            if let Some(histogram) = counts.stages.get(stage.index()) {
                write_histogram(
                    &mut text,
                    &format!("{labels},stage=\"{}\"", stage.name()),
                    histogram,
                );
            }
        }
    }
    let lost = "bellwire_trace_lost";
    let _ =
        write!(text, "# TYPE {lost} counter\n# HELP {lost} What was sampled and not counted.\n");
    let Losses { disordered, unmatched, dropped, unread } = losses;
    let reasons = [
        ("disordered", disordered),
        ("unmatched", unmatched),
        ("dropped", dropped),
        ("unread", unread),
    ];
    for (reason, count) in reasons {
        let _ = writeln!(text, "{lost}_total{{reason=\"{reason}\"}} {count}");
    }
    text.push_str("# EOF\n");
    text
}

fn labels(key: &Key, counts: &Counts) -> String {
    let mut labels = format!("service=\"{}\"", escape(&key.service));
    if let Some((number, created)) = key.session {
        let Counts { server, client, .. } = counts;
        let _ = write!(
            labels,
            ",session=\"{number}\",created=\"{created}\",server=\"{server}\",client=\"{client}\""
        );
    }
    labels
}

#[expect(clippy::cast_precision_loss, reason = "seconds to fifteen digits")]
fn write_histogram(text: &mut String, labels: &str, histogram: &Histogram) {
    let powers = histogram.powers();
    let mut below: u64 = powers.iter().take(*POWERS.start()).sum();
    for power in POWERS {
        // All values are integers, so the bound is the last one below.
        let bound = ((1_u64 << power) - 1) as f64 * NANOS;
        let _ = writeln!(text, "{FAMILY}_bucket{{{labels},le=\"{bound:e}\"}} {below}");
        below += powers.get(power).copied().unwrap_or(0);
    }
    // The kernel program updates the counts meanwhile: the buckets are authoritative.
    let count: u64 = powers.iter().sum();
    let _ = writeln!(text, "{FAMILY}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{FAMILY}_count{{{labels}}} {count}");
    let _ = writeln!(text, "{FAMILY}_sum{{{labels}}} {:e}", histogram.sum as f64 * NANOS);
}

/// Escapes a label's value.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
