//! HDR histograms of latencies, and how they travel between processes.

use hdrhistogram::Histogram;

/// An empty one: 1 ns to 60 s, to three digits.
pub(crate) fn new() -> Histogram<u64> {
    let mut hist = Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("these bounds are valid"));
    hist.auto(true);
    hist
}

/// How often each value occurred.
pub(crate) fn counts(hist: &Histogram<u64>) -> Vec<(u64, u64)> {
    hist.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
}

/// Adds what occurred in another process.
pub(crate) fn add(hist: &mut Histogram<u64>, counts: &[(u64, u64)]) {
    for &(value, count) in counts {
        hist.saturating_record_n(value, count);
    }
}
