//! A figure of wrong answers is none: a server that falsifies one answer in so many ends the run.

use super::{bench, listed};

fn finds(scenario: &str, contender: &str) {
    // On a busy machine a sample may have one call, and so has its warm-up.
    let falsify = format!("{contender}=2");
    let args = ["--quick", scenario, "--against", contender, "--falsify", &falsify];
    let ended = bench(&args);
    // A contender that cannot do the scenario answers nothing.
    if ended.stdout.contains("left out") {
        return;
    }
    assert_eq!(ended.status, Some(1), "{scenario}, {contender}: {ended:?}");
    assert!(
        ended.stderr.contains("do not use these figures"),
        "{scenario}, {contender}: {ended:?}"
    );
    assert!(ended.stderr.contains(contender), "{scenario}, {contender}: {ended:?}");
}

#[test]
fn a_falsified_answer_is_found_in_every_kind_of_scenario() {
    for contender in listed("contenders") {
        for scenario in [
            "ping-pong-8",
            "ping-pong-64k",
            "pipeline-d16-64",
            "batch",
            "pipeline-batch-d16",
            "stream-64",
            "one-way",
            "clients-8",
            "reactor-1",
            "events-1k-r8",
        ] {
            finds(scenario, &contender);
        }
    }
}
