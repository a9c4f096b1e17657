use bellwire_core::batch::BatchBuilder;
use bellwire_core::wire::{Header, Kind, Status};

use bellwire_hostile::wire::{Session, Target};

/// In each of `count` sessions in turn, runs `act`, publishes its records and consumes the answers; without pause.
fn repeat(target: &Target, service: &str, count: usize, mut act: impl FnMut(&mut Session)) {
    target.repeat(service, count, std::thread::yield_now, |session| {
        act(session);
        session.publish();
        session.consume();
    });
}

/// Cancels of requests that were answered long ago, trims, and empty batches.
pub(super) fn small(target: &Target) {
    let mut batch = BatchBuilder::new(64);
    let empty = batch.finish().to_vec();
    repeat(target, "echo", 100, |session| {
        session.request(&[]);
        for _ in 0..100 {
            let header = Header::new(Kind::Request, Status::Ok, session.id + 1, 16).batch();
            session.id += u64::from(session.put(header, &empty));
            session.put(Header::new(Kind::Trim, Status::Ok, 0, 0), &[]);
            while session.put(Header::new(Kind::Cancel, Status::Ok, 1, 0), &[])
                && session.tail % 64 != 0
            {}
        }
    });
}

/// Batches of a million items of one byte, in a lane of 4 MiB.
pub(super) fn batches(target: &Target) {
    let target = target.with_lane(4 << 20);
    let mut batch = BatchBuilder::new(2 << 20);
    while batch.len() < 1_000_000 && batch.push(|into| into.push(7)).is_ok() {}
    let bytes = batch.finish().to_vec();
    let len = u32::try_from(bytes.len()).unwrap_or(0);
    repeat(&target, "echo", 16, |session| {
        let header = Header::new(Kind::Request, Status::Ok, session.id + 1, len).batch();
        session.id += u64::from(session.put(header, &bytes));
    });
}

/// Requests of three bytes, which are not a valid `u64`.
pub(super) fn malformed(target: &Target) {
    repeat(target, "blob", 100, |session| while session.request(&[1, 2, 3]) {});
}

/// Empty requests.
pub(super) fn minimal(target: &Target) {
    repeat(target, "echo", 100, |session| while session.request(&[]) {});
}
