//! Histograms in the format of OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bellwire_trace_core::places::Places;
use bellwire_trace_core::{Counts, Exemplar, Histogram, Key, Losses, Pattern, Stage};

const FAMILY: &str = "bellwire_call_stage_seconds";
/// The upper bounds of the buckets as powers of two, in nanoseconds: 256 ns to 17 s.
const POWERS: std::ops::RangeInclusive<usize> = 8..=34;
const NANOS: f64 = 1e-9;

/// Returns the whole exposition.
pub(super) fn text(counts: &BTreeMap<Key, Counts>, losses: &Losses, places: &mut Places) -> String {
    let mut text = format!(
        "# TYPE {FAMILY} histogram\n\
         # HELP {FAMILY} Where the time of messages went, by sample; the stage call is all of it.\n"
    );
    for (key, counts) in counts {
        let labels = labels(key, counts, places);
        for stage in Stage::ALL.iter().copied().filter(|stage| stage.is_of(key.pattern)) {
            write_histogram(
                &mut text,
                &format!("{labels},stage=\"{}\"", stage.name()),
                &counts.stage(stage),
                (stage == Stage::Call).then_some(&counts.slowest),
            );
        }
    }
    let lost = "bellwire_trace_lost";
    let _ =
        write!(text, "# TYPE {lost} counter\n# HELP {lost} What was sampled and not counted.\n");
    let reasons = [
        ("disordered", losses.disordered),
        ("unmatched", losses.unmatched),
        ("dropped", losses.dropped),
        ("unread", losses.unread),
        ("unwatched", losses.unwatched),
        ("displaced", losses.displaced),
        ("unpublished", losses.unpublished),
        ("unseen_returns", losses.unseen_returns),
    ];
    for (reason, count) in reasons {
        let _ = writeln!(text, "{lost}_total{{reason=\"{reason}\"}} {count}");
    }
    text.push_str("# EOF\n");
    text
}

fn labels(key: &Key, counts: &Counts, places: &mut Places) -> String {
    let pattern = match key.pattern {
        Pattern::Post => "post",
        Pattern::Delivery => "delivery",
        _ => "call",
    };
    let mut labels = format!("service=\"{}\",pattern=\"{pattern}\"", escape(&key.service));
    if let Some((number, created)) = key.session {
        let Counts { server, client, .. } = counts;
        let _ = write!(
            labels,
            ",session=\"{number}\",created=\"{created}\",server=\"{server}\",client=\"{client}\""
        );
        for (end, pid) in [("server", *server), ("client", *client)] {
            for (name, value) in places.of(pid).labels() {
                let _ = write!(labels, ",{end}_{name}=\"{}\"", escape(value));
            }
        }
    }
    labels
}

#[expect(clippy::cast_precision_loss, reason = "seconds to fifteen digits")]
fn write_histogram(
    text: &mut String,
    labels: &str,
    histogram: &Histogram,
    exemplar: Option<&Exemplar>,
) {
    let powers = histogram.powers();
    let mut below: u64 = powers.iter().take(*POWERS.start()).sum();
    // It goes with the first bucket that holds it.
    let mut exemplar = exemplar.filter(|exemplar| exemplar.nanos > 0);
    for power in POWERS {
        // All values are integers, so the bound is the last one below.
        let bound = ((1_u64 << power) - 1) as f64 * NANOS;
        let _ = write!(text, "{FAMILY}_bucket{{{labels},le=\"{bound:e}\"}} {below}");
        if let Some(Exemplar { nanos, sequence, session, .. }) =
            exemplar.take_if(|exemplar| exemplar.nanos < 1 << power)
        {
            let seconds = *nanos as f64 * NANOS;
            let _ =
                write!(text, " # {{session=\"{session}\",sequence=\"{sequence}\"}} {seconds:e}");
        }
        text.push('\n');
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
