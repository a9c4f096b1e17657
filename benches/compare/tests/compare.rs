use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Ended, bench};

/// The figures of a run, as a whole so many times as large.
fn write(path: &Path, report: &Value, times: f64) {
    let mut report = report.clone();
    let row = &mut report["scenarios"][0]["rows"][0];
    row["stable"] = true.into();
    for of in ["ns", "to_floor"] {
        let median = 100.0 * times;
        row[of] = serde_json::json!({
            "min": median * 0.9, "median": median, "max": median * 1.3, "middle": [median * 0.98, median * 1.02],
        });
    }
    fs::write(path, report.to_string()).unwrap();
}

fn compare(old: &Path, new: &Path) -> Ended {
    bench(&["compare", old.to_str().unwrap(), new.to_str().unwrap()])
}

#[test]
fn the_exit_status_reports_a_slower_run_and_no_noise() {
    let dir = tempfile::tempdir().unwrap();
    let ended = bench(&["--quick", "ping-pong-64", "--against", "bellwire", "--json", "-"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let [old, alike, slower, faster] =
        ["old", "alike", "slower", "faster"].map(|name| dir.path().join(name));
    write(&old, &report, 1.0);
    write(&alike, &report, 1.03);
    write(&slower, &report, 1.2);
    write(&faster, &report, 0.8);
    for (new, status, word) in
        [(&alike, 0, "1 alike"), (&slower, 12, "1 slower"), (&faster, 0, "1 faster")]
    {
        let ended = compare(&old, new);
        assert_eq!(ended.status, Some(status), "{ended:?}");
        assert!(
            ended.stdout.contains(word) && ended.stdout.contains("ping-pong-64, bellwire"),
            "{ended:?}"
        );
    }
}

#[test]
fn a_file_that_is_no_report_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (text, layout) = (dir.path().join("text"), dir.path().join("layout"));
    fs::write(&text, "hello").unwrap();
    let report: Value =
        serde_json::from_str(&bench(&["--quick", "ping-pong-8", "--json", "-"]).stdout).unwrap();
    let mut later = report.clone();
    later["schema"] = 2.into();
    fs::write(&layout, later.to_string()).unwrap();
    for (path, why) in [
        (dir.path().join("absent"), "cannot read"),
        (text, "is no report"),
        (layout, "has layout 2, this program reads 1"),
    ] {
        let ended = compare(&path, &path);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(why), "{ended:?}");
    }
}
