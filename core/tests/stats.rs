//! A lane's statistics, from either end.

use bellwire_core::lane::LaneStats;

use crate::pair::{Pair, growing};

fn sent(pair: &Pair) -> LaneStats {
    pair.lanes[0].sent()
}

fn received(pair: &Pair) -> LaneStats {
    pair.lanes[1].received()
}

/// Epoch, size, grows, shrinks, attaches, bytes.
fn counts(stats: LaneStats) -> (u32, u64, [u64; 3], u64) {
    let LaneStats { epoch, size, grows, shrinks, attaches, bytes, .. } = stats;
    (epoch, size, [grows, shrinks, attaches], bytes)
}

#[test]
fn each_end_counts_the_records_that_it_sent_or_received() {
    let mut pair = Pair::new(growing());
    pair.push(0, 1, 100).unwrap();
    assert_eq!(counts(sent(&pair)), (1, 4096, [0, 0, 0], 128), "16, 100 and 12 of padding");
    pair.send(0, 2, 3000).unwrap();
    let bytes = 128 + 16 + 3024;
    assert_eq!(counts(sent(&pair)), (2, 8192, [1, 0, 0], bytes), "the switch counts");
    assert_eq!(counts(received(&pair)), (1, 4096, [0, 0, 0], 0));
    let _ = pair.commit(0);
    pair.take(1).unwrap();
    assert_eq!(counts(received(&pair)), (1, 4096, [0, 0, 0], 128));
    pair.take(1).unwrap();
    assert_eq!(counts(received(&pair)), counts(sent(&pair)));
    pair.shrink(0).unwrap();
    let bytes = bytes + 16;
    assert_eq!(counts(sent(&pair)), (3, 4096, [1, 1, 0], bytes));
    pair.attach(0, 3, 5000).unwrap();
    let bytes = bytes + 16;
    assert_eq!(counts(sent(&pair)), (3, 4096, [1, 1, 1], bytes), "its memory is not the lane's");
    let _ = pair.commit(0);
    let switch = pair.peek(1).unwrap().unwrap();
    pair.follow(1, &switch).unwrap();
    let record = pair.peek(1).unwrap().unwrap();
    pair.lanes[1].take(&record);
    assert_eq!(counts(received(&pair)), counts(sent(&pair)));
}

#[test]
fn the_high_water_mark_is_the_most_that_was_in_use() {
    let mut pair = Pair::new(growing());
    for round in 0..10 {
        for _ in 0..5 {
            pair.push(0, 1, 112).unwrap();
        }
        let _ = pair.commit(0);
        assert_eq!(pair.take_all(1).len(), 5, "round {round}");
        let _ = pair.commit(1);
    }
    assert_eq!(received(&pair).high_water, 5 * 128);
    // The sender checks once a quarter, with the room that it keeps free.
    assert!(sent(&pair).high_water <= 5 * 128 + 32 + 1024, "{:?}", sent(&pair));
    while pair.push(0, 1, 112).is_ok() {}
    assert_eq!(sent(&pair).high_water, 4096, "it was full");
    let _ = pair.commit(0);
    let full = pair.take_all(1).len() as u64 * 128;
    assert!((full..=4096).contains(&received(&pair).high_water), "{:?}", received(&pair));
}
