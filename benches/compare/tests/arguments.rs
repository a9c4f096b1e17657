use super::bench;

#[test]
fn an_invalid_command_line_exits_with_2_and_the_reason() {
    for (args, why) in [
        (&["pingpong"][..], "no scenario is called pingpong; there are ping-pong, "),
        (&["--against", "carrier-pigeon"], "no contender is called carrier-pigeon"),
        (&["--rounds", "4"], "5..="),
        (&["--rate", "soon"], "must be max"),
        (&["--size", "7"], "from 8"),
        (&["--size", "17m"], "from 8"),
        (&["--duration", "forever"], "from 1ms"),
        (&["--pin", "0"], "two processors"),
        (&["--pin", "0,0"], "two processors"),
        (&["--pin", "0,99999", "--quick"], "is not one that this process may use"),
        (&["--frobnicate"], "unexpected argument"),
        (&["compare", "one.json"], "<NEW>"),
    ] {
        let ended = bench(args);
        assert_eq!(ended.status, Some(2), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(why), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn a_debug_build_measures_only_in_a_hurry() {
    if !cfg!(debug_assertions) {
        return;
    }
    let ended = bench(&["ping-pong"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("debug build") && ended.stderr.contains("--quick"), "{ended:?}");
}

#[test]
fn help_has_examples_and_every_exit_status() {
    let help = bench(&["--help"]);
    assert_eq!(help.status, Some(0));
    for part in ["Examples:", "bellwire bench compare", " 11 ", " 12 ", "--report", "--pin"] {
        assert!(help.stdout.contains(part), "{part}: {}", help.stdout);
    }
    assert!(!help.stdout.contains("falsify"), "what is for tests is shown");
}
