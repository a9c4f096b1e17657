//! Two processes that want one name.

use bellwire::Client;

use crate::support::child::Process;
use crate::support::rogue::RogueListener;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

const RACES: u32 = 1000;

/// Each start finds the files of a crash, the situation that would create two owners without a lock.
#[test]
fn a_thousand_races_for_one_name_never_make_two_owners() {
    let dir = Dir::new();
    let mut racers = [0, 1].map(|_| Process::start("admission server", &dir.run_dir));
    let mut owned = [0_u32; 2];
    for race in 0..RACES {
        drop(RogueListener::bind(&dir.run_dir, "echo"));
        racers.iter_mut().for_each(|racer| racer.send_line("serve"));
        let reply = racers.each_mut().map(|racer| racer.next_line());
        let owners = reply.each_ref().map(|reply| reply == "serving");
        assert_ne!(owners, [true, true], "race {race}: two owners");
        assert_ne!(owners, [false, false], "race {race}: {reply:?}");
        let loser = if owners[0] { &reply[1] } else { &reply[0] };
        assert!(loser.contains("\"echo\" is provided in this run dir already"), "{loser}");
        owned[usize::from(owners[1])] += 1;
        if race % 100 == 0 {
            let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
            assert_eq!(client.call(&vec![1]).unwrap(), [1], "the owner is to be found");
        }
        for racer in &mut racers {
            assert_eq!(racer.ask("stop"), "stopped");
        }
    }
    println!("{owned:?} of {RACES} races were won by the one and by the other");
}
