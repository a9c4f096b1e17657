//! `bellwire bench`, with real processes and no judgement of how long anything takes.

use crate::support::Place;

#[test]
fn both_backends_and_a_plain_server_are_measured_under_each_load() {
    let place = Place::new();
    let args = ["bench", "reactor", "--sessions", "1,5", "--rounds", "2", "--window", "20ms"];
    let ended = place.run(&[&args[..], &["--json"]].concat());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let report = ended.json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{report:#}");
    for row in rows {
        let servers = row["servers"].as_array().unwrap();
        let names: Vec<_> = servers.iter().map(|server| &server["waits_with"]).collect();
        let left_out = report["notes"].to_string().contains("io_uring is left out");
        let expected: &[_] =
            if left_out { &["epoll", "SEQPACKET"] } else { &["epoll", "io_uring", "SEQPACKET"] };
        assert_eq!(names, expected, "{report:#}");
        for server in servers {
            for figure in ["calls_per_second", "cpu_ns_per_call", "p50_ns", "p99_ns", "rss_bytes"] {
                let spread = &server[figure];
                let [median, min, max] =
                    ["median", "min", "max"].map(|of| spread[of].as_f64().unwrap());
                assert!(0.0 < min && min <= median && median <= max, "{figure}: {server:#}");
            }
            assert!(server["p50_ns"]["median"].as_f64() <= server["p99_ns"]["median"].as_f64());
        }
        assert_eq!(row["ratios"].as_array().unwrap().len(), if left_out { 1 } else { 3 });
    }
    let table = place.run(&args);
    assert_eq!(table.status, Some(0), "{table:?}");
    for part in ["CPU/CALL", "SWITCHES/CALL", "1000/s each", "CPU of epoll / SEQPACKET"] {
        assert!(table.stdout.contains(part), "{part}: {}", table.stdout);
    }
    assert_eq!(table.stderr, "", "progress is for people only");
}
