//! `record`: the trace meets the requirements of Perfetto's importer for the Trace Event Format.

use std::collections::HashMap;

use serde_json::Value;

use crate::support::process::pair;
use crate::support::tracer::{Tracer, recorded};

/// An asynchronous slice.
#[derive(Debug)]
struct Slice {
    name: String,
    from: f64,
    to: f64,
    depth: usize,
    args: Value,
}

/// The slices of each track, which is a process and an id. Panics where Perfetto would drop or misplace an event.
fn slices(events: &[Value]) -> HashMap<(u64, String), Vec<Slice>> {
    let mut open: HashMap<(u64, String), Vec<Slice>> = HashMap::new();
    let mut closed: HashMap<(u64, String), Vec<Slice>> = HashMap::new();
    for event in events {
        let ph = event["ph"].as_str().unwrap();
        if ph == "M" {
            assert!(event["args"]["name"].is_string(), "{event}");
            continue;
        }
        assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        let at = event["ts"].as_f64().unwrap();
        if ["X", "s", "t", "f"].contains(&ph) {
            continue;
        }
        if ph == "i" {
            assert_eq!(event["s"], "t", "{event}");
            continue;
        }
        assert!(event["cat"].is_string(), "{event}");
        // A plain "id" is global: both ends of a call would share a track, on which their slices do not nest.
        let track =
            (event["pid"].as_u64().unwrap(), event["id2"]["local"].as_str().unwrap().to_owned());
        let stack = open.entry(track.clone()).or_default();
        let name = event["name"].as_str().unwrap().to_owned();
        match ph {
            "b" => {
                assert!(stack.last().is_none_or(|outer| outer.from <= at), "{event}");
                let args = event["args"].clone();
                stack.push(Slice { name, from: at, to: 0.0, depth: stack.len(), args });
            }
            "e" => {
                let mut slice = stack.pop().unwrap();
                assert_eq!(slice.name, name, "{event}");
                assert!(slice.from <= at, "{event}");
                slice.to = at;
                closed.entry(track).or_default().push(slice);
            }
            other => panic!("{other}: {event}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    closed
}

/// A slice of a thread: its thread, name, begin and end.
type Part = ((u64, u64), String, f64, f64);

/// The slices of threads. Panics if those of one thread overlap, which Perfetto would cut.
fn parts(events: &[Value]) -> Vec<Part> {
    let thread = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    let of = |event: &Value| {
        let (from, span) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        assert!(span > 0.0, "{event}");
        (thread(event), event["name"].as_str().unwrap().to_owned(), from, from + span)
    };
    let mut parts: Vec<Part> = events.iter().filter(|event| event["ph"] == "X").map(of).collect();
    parts.sort_by(|one, next| (one.0, one.2).partial_cmp(&(next.0, next.2)).unwrap());
    for pair in parts.windows(2) {
        // Equal, up to what a fraction holds.
        let apart = pair[0].0 != pair[1].0 || pair[1].2 - pair[0].3 > -0.002;
        assert!(apart, "{pair:#?}");
    }
    parts
}

#[test]
fn arrows_connect_the_threads_of_a_call() {
    let (_dir, server, mut client) = pair();
    let pid = server.pid().to_string();
    let calls = || drop(client.ask("calls 20 3000"));
    let Some((events, _)) = recorded(&["-p", &pid], calls) else { return };
    let parts = parts(&events);
    let mut arrows: HashMap<String, Vec<(String, &Part)>> = HashMap::new();
    for event in events.iter().filter(|event| event["bp"] == "e") {
        let at = event["ts"].as_f64().unwrap();
        let thread = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        // Perfetto binds it to the slice that it is in.
        let part = parts.iter().find(|part| part.0 == thread && (part.2..part.3).contains(&at));
        let ph = event["ph"].as_str().unwrap().to_owned();
        arrows.entry(event["id"].to_string()).or_default().push((ph, part.unwrap()));
    }
    assert_eq!(arrows.len(), 20);
    for steps in arrows.values() {
        let shown: Vec<(&str, &str, u64)> =
            steps.iter().map(|(ph, part)| (ph.as_str(), part.1.as_str(), part.0.0)).collect();
        let (client, server) = (client.pid().into(), server.pid().into());
        let expected =
            [("s", "send nap", client), ("t", "handle nap", server), ("f", "receive nap", client)];
        assert_eq!(shown, expected);
        assert!(steps.is_sorted_by(|one, next| one.1.2 <= next.1.2), "{steps:#?}");
    }
    // Both threads slept: a track beside each has when it was woken and when it ran.
    for pid in [client.pid(), server.pid()] {
        for state in ["runnable", "running"] {
            let is_it = |part: &&Part| part.0.0 == u64::from(pid) && part.1 == state;
            // Beside busy programs of other tests, not each time.
            let times = parts.iter().filter(is_it).count();
            assert!(times >= 1, "{pid} {state}: {times} times");
        }
    }
}

#[test]
fn a_trace_has_each_call_with_its_stages_on_both_ends() {
    let (_dir, server, mut client) = pair();
    let pid = server.pid().to_string();
    let mut calls = || ["calls 10 5000", "full 2 100", "churn 3 0"].map(|calls| client.ask(calls));
    let Some((events, summary)) = recorded(&["-p", &pid], || drop(calls())) else { return };
    let slices = slices(&events);

    let of = |pid: u32| {
        let of = u64::from(pid);
        slices.iter().filter(move |((pid, _), _)| *pid == of).map(|(_, slices)| slices)
    };
    assert!(of(client.pid()).count() >= 13, "{summary:?}");
    assert_eq!(of(client.pid()).count(), of(server.pid()).count());
    assert_eq!(summary["calls"], of(client.pid()).count());
    for track in of(client.pid()) {
        let call = track.iter().find(|slice| slice.depth == 0).unwrap();
        assert_eq!(
            (call.name.as_str(), call.args["server"].as_u64()),
            ("nap", Some(server.pid().into()))
        );
        let stages = track.iter().filter(|slice| slice.depth == 1);
        // They are contiguous from the begin of the call to its end.
        let mut at = call.from;
        for stage in stages {
            assert!((stage.from - at).abs() < 0.002, "{track:#?}");
            at = stage.to;
        }
        assert!((at - call.to).abs() < 0.002, "{track:#?}");
        for name in ["send", "publish", "receive", "reply/send", "reply/publish"] {
            assert!(track.iter().any(|slice| slice.name == name), "{name}: {track:#?}");
        }
    }
    let slept = of(server.pid()).flatten().filter(|slice| slice.to - slice.from >= 5000.0);
    assert!(slept.count() >= 10);

    let names: Vec<&str> = events.iter().filter_map(|event| event["name"].as_str()).collect();
    for probe in ["lane_full", "session_opened", "session_closed"] {
        assert!(names.contains(&probe), "{probe}");
    }
    let process = |event: &&Value| event["name"] == "process_name" && event["pid"] == client.pid();
    assert_eq!(events.iter().filter(process).count(), 1);
}

#[test]
fn a_trace_without_calls_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    let args = ["record", "-s", "nobody", "--output", file.to_str().unwrap(), "0.01"];
    let Some(tracer) = Tracer::start(&args) else { return };
    let (_, status, messages) = tracer.finish_with_messages();
    assert_eq!(status.code(), Some(1));
    assert!(messages.contains("no session of nobody is open"), "{messages}");
    let events: Vec<Value> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(events.is_empty());
}

#[test]
fn a_lane_that_grows_is_seen_on_both_ends() {
    let (_dir, server, mut client) = pair();
    let pid = server.pid().to_string();
    let calls = || drop(client.ask("grow 6"));
    let Some((events, _)) = recorded(&["-p", &pid], calls) else { return };
    let epochs = |pid: u32, whose: &str| -> Vec<(u64, u64)> {
        let resized =
            events.iter().filter(|event| event["name"] == "lane_resized" && event["pid"] == pid);
        let args = resized.map(|event| &event["args"]).filter(|args| args["whose"] == whose);
        args.map(|args| (args["epoch"].as_u64().unwrap(), args["size"].as_u64().unwrap())).collect()
    };
    let grown = epochs(client.pid(), "own");
    assert!(!grown.is_empty());
    assert!(grown.iter().all(|(_, size)| size.is_power_of_two()), "{grown:?}");
    assert!(grown.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1), "{grown:?}");
    // The server has followed, and reports the same epochs.
    assert_eq!(epochs(server.pid(), "peer"), grown);
}
