//! The probes: for each its arguments, the [semaphore](crate::Count) that says whether a tracer is attached, and what it
//! reports beside the session, named unsigned 64-bit integers in this order.

macro_rules! probes {
    ($define:ident) => {
        $define! {
            /// A sampled request was taken.
            pub fn message(sample: &Sample) by Sampling {
                sequence: sample.sequence, sent: sample.sent, published: sample.published,
                received: sample.received, length: sample.length
            }
            /// A worker begins with a sampled request, which was queued at `queued` and picked up at `picked`.
            pub fn handling(sequence: u64, queued: u64, picked: u64) by Sampling {
                sequence: sequence, queued: queued, picked: picked
            }
            /// The handler of a sampled request returned: this thread began at `begun`, had decoded the request at
            /// `decoded`, and the answer is encoded now, at `ended`.
            pub fn handled(sequence: u64, begun: u64, decoded: u64, ended: u64) by Sampling {
                sequence: sequence, begun: begun, decoded: decoded, ended: ended
            }
            /// The answer to a sampled request was taken.
            pub fn reply(sample: &Sample) by Sampling {
                sequence: sample.sequence, sent: sample.sent, published: sample.published,
                received: sample.received, length: sample.length
            }
            /// A snapshot or an event of `length` bytes was published: its publisher began at `begun`, and readers could
            /// take it from `published` on. The session is that of the publication.
            pub fn published(sequence: u64, begun: u64, published: u64, length: u64) by Deliveries {
                sequence: sequence, begun: begun, published: published, length: length
            }
            /// A reader copied a snapshot or an event out of a ring.
            pub fn copied(delivery: &Delivery) by Deliveries {
                publisher: delivery.publisher, sequence: delivery.sequence,
                noticed: delivery.noticed, taken: delivery.taken, validated: delivery.validated
            }
            /// A reader mapped a snapshot.
            pub fn mapped(delivery: &Delivery) by Deliveries {
                publisher: delivery.publisher, sequence: delivery.sequence,
                noticed: delivery.noticed, taken: delivery.taken, validated: delivery.validated
            }
            /// A reader was too slow for `events` events before the one with this number.
            pub fn missed(sequence: u64, events: u64) by Missed {
                sequence: sequence, events: events
            }
            /// The peer's doorbell is rung: 1 for data, 2 for room.
            pub fn ring(bell: u64) by Ring { bell: bell }
            /// This thread goes to sleep, until there is data, or room when `space` is set.
            pub fn park_begin(space: bool) by ParkBegin { space: u64::from(space) }
            /// This thread slept for `slept` nanoseconds and was `woken` for this reason.
            pub fn park_end(woken: u64, slept: u64) by ParkEnd { woken: woken, slept: slept }
            /// A record did not fit into a full lane and lacked `missing` bytes of room.
            pub fn lane_full(missing: u64) by LaneFull { missing: missing }
            /// A lane continues in another epoch of `size` bytes: the own one (`whose` is 1), or the peer's (2).
            pub fn lane_resized(whose: u64, epoch: u32, size: u64) by LaneResized {
                whose: whose, epoch: u64::from(epoch), size: size
            }
            /// A session is open.
            pub fn session_opened() by SessionOpened {}
            /// This end leaves a session.
            pub fn session_closed(reason: u64) by SessionClosed { reason: reason }
            /// A call failed in this way.
            pub fn call_failed(sequence: u64, kind: u64) by CallFailed {
                sequence: sequence, kind: kind
            }
        }
    };
}
pub(crate) use probes;
