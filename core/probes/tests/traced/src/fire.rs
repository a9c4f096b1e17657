use bellwire_probes::{self as probes, Delivery, Sample, Session};

/// Fires every probe whose semaphore is held, and says how many samples a second are wanted: 0 for none.
pub(crate) fn everything() -> i32 {
    let session = Session::new(b"traced", 7, 8, 2, Some(9));
    let sample = Sample { sequence: 1, sent: 2, published: 3, received: 4, length: 5 };
    // Below the stack pointer, where this function may keep it: a probe must leave it alone.
    let kept: [u64; 12] = std::array::from_fn(|at| std::hint::black_box(at as u64));
    probes::message(&session, &sample);
    probes::handling(&session, 1, 2, 3);
    probes::handled(&session, 1, 2, 3, 4);
    probes::reply(&session, &sample);
    probes::ring(&session, 1);
    probes::park_begin(&session, true);
    probes::park_end(&session, 1, 2);
    probes::lane_full(&session, 64);
    probes::lane_resized(&session, 1, 2, 8192);
    probes::session_opened(&session);
    probes::session_closed(&session, 1);
    probes::call_failed(&session, 1, 2);
    probes::capped(&session);
    let delivery = Delivery { publisher: 1, sequence: 2, noticed: 3, taken: 4, validated: 5 };
    probes::published(&session, 1, 2, 3, 4);
    probes::copied(&session, &delivery);
    probes::mapped(&session, &delivery);
    probes::missed(&session, 1, 2);
    probes::slow(&session, 1, 2, 20_000_000, 4);
    assert_eq!(kept.iter().sum::<u64>(), 66);
    let mask = probes::sampling_mask();
    if mask.is_sampling() { i32::try_from(mask.cap().most).unwrap_or(i32::MAX) } else { 0 }
}
