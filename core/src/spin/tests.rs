use super::*;

#[test]
fn a_hot_pair_keeps_spinning() {
    let mut spin = Spin::new(SpinPolicy::default());
    for _ in 0..1000 {
        assert!(spin.budget() > 0);
        spin.hit(200);
    }
}

#[test]
fn polls_that_find_nothing_end_after_a_while_and_are_tried_again_later() {
    let max = Duration::from_micros(60);
    let mut spin = Spin::new(SpinPolicy { max, pays_within: max });
    let now = core::cell::Cell::new(0);
    let clock = || Instant::from_nanos(now.replace(now.get() + 1_000));
    let mut polls = Vec::new();
    for _ in 0..100 {
        let mut count = 0;
        let found = spin.poll(
            clock,
            || {},
            || {
                count += 1;
                Ok::<_, ()>(false)
            },
        );
        assert_eq!(found, Ok(false));
        polls.push(count);
    }
    assert!(polls[..4].iter().all(|count| (15..=62).contains(count)), "{polls:?}");
    assert!(polls[4..68].iter().all(|count| *count == 0), "{polls:?}");
    assert!(polls[68] > 0, "{polls:?}");
    let mut spin = Spin::new(SpinPolicy::default());
    assert_eq!(spin.poll(clock, || {}, || Ok::<_, ()>(true)), Ok(true));
    assert_eq!(spin.poll(clock, || {}, || Err(7)), Err(7));
    assert_eq!(Spin::new(SpinPolicy::NEVER).poll(clock, || {}, || Err(7)), Ok(false));
}

#[test]
fn a_probe_lasts_no_longer_than_the_policys_worth() {
    let mut spin = Spin::new(SpinPolicy::default());
    let mut spins = Vec::new();
    for _ in 0..200 {
        let budget = spin.budget();
        if budget > 0 {
            spins.push(budget);
            spin.ran_out();
        }
        spin.parked(Some(90_000), Some(25_000));
    }
    assert_eq!(spins[..4], [50_000; 4]);
    assert_eq!(spins[4..], [10_000; 6], "two probes");
    while spin.budget() == 0 {
        spin.parked(Some(90_000), Some(25_000));
    }
    spin.hit(300);
    assert_eq!(spin.budget(), 50_000, "answers come soon again");
}

#[test]
fn a_pair_on_one_processor_stops_spinning_after_four_waits() {
    let mut spin = Spin::new(SpinPolicy::default());
    let mut spun = 0;
    for _ in 0..10_000 {
        if spin.budget() > 0 {
            spun += 1;
            spin.ran_out();
        }
        // On one processor, the ringer runs immediately because this end parked.
        spin.parked(Some(2_000), Some(2_000));
    }
    assert!((4..10_000 / 20).contains(&spun), "spun {spun} times");
}

#[test]
fn a_pair_that_stays_on_one_processor_spins_in_one_wait_of_six_hundred() {
    let mut spin = Spin::new(SpinPolicy::default());
    let mut spun = 0;
    for wait in 0..110_000 {
        if spin.budget() > 0 {
            spun += u32::from(wait >= 10_000);
            spin.ran_out();
        }
        spin.parked(Some(2_000), Some(2_000));
    }
    assert!((3..100_000 / 600).contains(&spun), "spun {spun} times");
}

#[test]
fn late_answers_stop_spinning_and_early_ones_resume_it() {
    let mut spin = Spin::new(SpinPolicy::default());
    for _ in 0..16 {
        assert!(spin.budget() > 0);
        spin.hit(26_000);
    }
    assert_eq!(spin.budget(), 0);
    spin.parked(Some(900), Some(25_000));
    spin.parked(Some(900), Some(25_000));
    assert!(spin.budget() > 0, "a park for a moment only starts a probe");
    spin.hit(300);
    assert!(spin.budget() > 0);
}

#[test]
fn long_messages_may_take_longer() {
    let mut spin = Spin::new(SpinPolicy::default());
    for _ in 0..60 {
        spin.parked(None, Some(4_000));
    }
    for _ in 0..100 {
        spin.exchanged(128 << 10);
        assert_eq!(spin.budget(), 10_000 + (32 << 10));
        spin.hit(30_000);
    }
    for _ in 0..16 {
        assert!(spin.budget() > 0);
        spin.exchanged(128);
        spin.hit(30_000);
    }
    assert_eq!(spin.budget(), 0, "short ones may not");
}

#[test]
fn a_message_too_long_to_be_spun_for_is_not() {
    let mut spin = Spin::new(SpinPolicy::default());
    for _ in 0..4 {
        spin.exchanged(u64::MAX);
        assert_eq!(spin.budget(), 60_000);
        spin.ran_out();
    }
    assert_eq!(spin.budget(), 0);
}

#[test]
fn after_a_long_preemption_a_spin_yields_again_after_256_times_as_long() {
    let at = |micros: u64| Instant::from_nanos(1_000 * micros);
    let mut spin = Spin::new(SpinPolicy::default());
    assert!(spin.should_yield(at(0)));
    spin.yielded(at(0), at(1_000), false);
    assert!(spin.should_yield(at(1_000)), "threads that wait as well would run on this processor");
    spin.yielded(at(1_000), at(3_000), false);
    assert!(!spin.should_yield(at(514_999)));
    let spun = |now: Instant| {
        let mut counter = SpinCounter::new(60_000);
        spin.shorten(&mut counter, now);
        [counter.tick(now), counter.tick(now.after(Duration::from_micros(10)))]
    };
    assert_eq!(spun(at(514_000)), [false, true], "no longer than is worth it");
    assert_eq!(spun(at(515_000)), [false, false]);
    assert!(spin.should_yield(at(515_000)));
    spin.yielded(at(515_000), at(515_002), false);
    assert!(spin.should_yield(at(515_002)));
}

#[test]
fn after_a_futile_yield_a_spin_yields_again_after_16_times_as_long() {
    let at = Instant::from_nanos;
    let mut spin = Spin::new(SpinPolicy::default());
    spin.yielded(at(0), at(1_000), false);
    assert!(!spin.should_yield(at(16_999)));
    assert!(spin.should_yield(at(17_000)));
    spin.yielded(at(17_000), at(18_500), false);
    assert!(spin.should_yield(at(18_500)), "somebody was there");
}

#[test]
fn a_useful_yield_makes_the_next_wait_yield_first_until_one_is_futile() {
    let at = Instant::from_nanos;
    let mut spin = Spin::new(SpinPolicy::default());
    for (after, moved, yields_first) in [
        (500, false, false),
        (500, true, true),
        (2_000, false, true),
        (500, false, false),
        (2_000, true, true),
        (LONG_YIELD + 1, true, false),
    ] {
        spin.yielded(at(0), at(after), moved);
        assert!(spin.budget() > 0);
        assert_eq!(spin.yields_first(), yields_first, "{after} {moved}");
    }
}

#[test]
fn one_wait_in_64_polls_first_and_notices_a_peer_on_another_processor() {
    let at = Instant::from_nanos;
    let mut spin = Spin::new(SpinPolicy::default());
    let mut polled_first = 0;
    for _ in 0..640 {
        spin.budget();
        polled_first += u32::from(!spin.yields_first());
        spin.yielded(at(0), at(1_000), true);
        spin.hit(0);
    }
    assert_eq!(polled_first, 1 + 10);
    while spin.yields_first() {
        spin.yielded(at(0), at(1_000), true);
        spin.hit(0);
    }
    spin.hit(0);
    assert!(!spin.yields_first(), "it answered while this end polled");
}

#[test]
fn zero_never_spins() {
    let mut spin = Spin::new(SpinPolicy::NEVER);
    spin.parked(Some(1), Some(1));
    assert_eq!(spin.budget(), 0);
}

#[test]
fn the_budget_is_twice_the_wake_up_seen_and_never_above_the_limit() {
    let mut spin = Spin::new(SpinPolicy::default());
    for _ in 0..100 {
        spin.parked(None, Some(8_000));
    }
    let budget = spin.budget();
    assert!((14_000..20_000).contains(&budget), "{budget}");
    for _ in 0..100 {
        spin.parked(None, Some(u64::MAX));
    }
    assert_eq!(spin.budget(), 60_000);
}

#[test]
fn a_spin_lasts_as_long_as_the_policy_sets_even_if_wake_ups_are_cheap() {
    let ms = Duration::from_millis(1);
    let mut spin = Spin::new(SpinPolicy { max: ms, pays_within: ms / 2 });
    for _ in 0..100 {
        spin.parked(None, Some(4_000));
    }
    assert_eq!(spin.budget(), 500_000);
}
