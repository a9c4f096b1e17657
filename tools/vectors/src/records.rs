//! Records as they lie in a lane: header, payload, padding.

use bellwire_core::lane::Epoch;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{BATCH, CloseReason, Header, Kind, MORE, ONE_WAY, Status, record_len};
use bellwire_core::{OwnMemory, Word};
use bellwire_sim::Sim;

use crate::control::size;
use crate::text::Case;

/// The size of the lane in which they are read.
const LANE: u64 = 4096;

pub fn valid() -> Vec<Case> {
    let epoch = Epoch { number: 2, size: size(8192) }.to_wire();
    let header = |kind, id, len| Header::new(kind, Status::Ok, id, len);
    let failed = Header::new(Kind::Response, Status::Failed, 2, 10);
    let busy = Header::new(Kind::Response, Status::Busy, 3, 0);
    let mut close = header(Kind::Close, 0, 0);
    close.status = (CloseReason::Stopping as u16).into();
    let attach = Header::new(Kind::Attach, Status::Ok, 3, 0);
    let request = header(Kind::Request, 4, 0);
    let fox: &[u8] = b"The quick brown fox jumps over a lazy dog";
    let records: [(&str, Header, &[u8]); 15] = [
        ("request", header(Kind::Request, 1, 41), fox),
        ("request-empty", header(Kind::Request, 1, 0), b""),
        ("request-one-way", header(Kind::Request, ONE_WAY, 8), &[7; 8]),
        ("request-part-first", request.part(16, true), b"sixteen bytes, a"),
        ("request-part-last", request.part(8, false), b"nd eight"),
        (
            "request-batch",
            header(Kind::Request, 5, 18).batch(),
            b"\x02\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0ab",
        ),
        ("response", header(Kind::Response, 1, 3), b"fox"),
        ("response-failed", failed, b"no such id"),
        ("response-busy", busy, b""),
        ("pad", header(Kind::Pad, 0, 32), &[0; 32]),
        ("switch", header(Kind::Switch, epoch, 0), b""),
        ("attach", attach, b""),
        ("cancel", header(Kind::Cancel, 4, 0), b""),
        ("close-stopping", close, b""),
        ("trim", header(Kind::Trim, 0, 0), b""),
    ];
    let case = |(name, header, payload): (&str, Header, &[u8])| {
        let mut bytes = [&header.to_bytes(), payload].concat();
        let len = record_len(u32::try_from(payload.len()).unwrap());
        bytes.resize(usize::try_from(len).unwrap(), 0);
        let case = Case::new(name).with("len", header.len).with("kind", header.kind);
        let case = case.with("flags", header.flags).with("status", header.status);
        case.with("id", format_args!("{:#x}", header.id)).bytes("bytes", &bytes)
    };
    records.into_iter().map(case).collect()
}

/// A reader of the lane finds what the lines say.
pub fn run(case: &Case) {
    let bytes = case.all("bytes");
    let [writer, reader] = Sim { lane: size(LANE), ..Sim::default() }.ends();
    let mut lanes = reader.lanes();
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        writer.own().write(at, bytes);
        at += bytes.len();
        writer.own().store(Word::Tail, at as u64, Ordering::Release);
        lanes.peek(reader.peer()).unwrap().inspect(|record| lanes.take(record))
    };
    if case.number("kind") == Kind::Pad as u64 {
        // It ends where the lane does, so others lie before it.
        let mut left = usize::try_from(LANE).unwrap() - bytes.len();
        while left > 0 {
            let len = left.min(2016);
            let header =
                Header::new(Kind::Request, Status::Ok, 1, u32::try_from(len).unwrap() - 16);
            let mut record = header.to_bytes().to_vec();
            record.resize(len, 0);
            assert!(put(&record).is_some());
            left -= len;
        }
        assert_eq!(put(&bytes), None, "a pad is skipped");
        return;
    }
    let record = put(&bytes).unwrap();
    let mut payload = vec![0; record.len as usize];
    lanes.copy(reader.peer(), &record, &mut payload);
    assert_eq!(payload, bytes[16..16 + payload.len()], "{}", case.name);
    let found = [record.len.into(), record.kind as u64, record.status.into(), record.id];
    assert_eq!(found, ["len", "kind", "status", "id"].map(|key| case.number(key)), "{}", case.name);
    let flags = [record.more, record.batch].map(u64::from);
    let flags = flags[0] * u64::from(MORE) + flags[1] * u64::from(BATCH);
    assert_eq!(flags, case.number("flags"), "{}", case.name);
}
