//! A publisher of snapshots and events, and their readers, of which each takes its time to check what it took.

use std::time::{Duration, Instant};

use bellwire::{
    Delivery, Event, Malformed, Message, RunDir, Server, Snapshot, SnapshotCache, StartAt,
    Subscriber,
};

use super::roles::Role;

/// How long decoding an event and validating a snapshot take.
pub(crate) const CHECK: Duration = Duration::from_millis(1);
/// From here on, a number is one of many that nobody takes time to decode.
const MANY: u64 = 1 << 32;

struct Ticks;

impl Event for Ticks {
    const NAME: &'static str = "ticks";
    type Message = Tick;
}

struct Tick(u64);

impl Message for Tick {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend(self.0.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let number = u64::decode(bytes)?;
        if number < MANY {
            check();
        }
        Ok(Self(number))
    }
}

struct Pages;

impl Snapshot for Pages {
    const NAME: &'static str = "pages";
    type Index = ();
    type Error = std::convert::Infallible;

    fn validate(_: &[u8]) -> Result<(), Self::Error> {
        check();
        Ok(())
    }
}

/// Computes: a thread that sleeps here would have its last wakeup here.
fn check() {
    let began = Instant::now();
    while began.elapsed() < CHECK {
        std::hint::spin_loop();
    }
}

/// `events N MICROS` publishes events, `many N` without a pause, `snapshots N BYTES` snapshots, one a few milliseconds.
pub(crate) fn publisher() -> Role {
    let mut builder = Server::builder(&RunDir::from_environment());
    let events = builder.events::<Ticks>(1 << 20).unwrap();
    let snapshots = builder.publish::<Pages>().unwrap();
    let server = builder.start().unwrap();
    Box::new(move |line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).map_or(0, |word| word.parse::<u64>().unwrap());
        for at in 0..number(1) {
            match words[0] {
                "events" => {
                    std::thread::sleep(Duration::from_micros(number(2)));
                    events.send(&Tick(at)).unwrap();
                }
                "many" => drop(events.send(&Tick(MANY + at)).unwrap()),
                "snapshots" => {
                    std::thread::sleep(CHECK * 5);
                    snapshots.publish(&vec![7; usize::try_from(number(2)).unwrap()]).unwrap();
                }
                other => panic!("unknown command: {other}"),
            }
        }
        format!("{}", server.stats().admitted)
    })
}

/// Takes events until it has seen the number that it is sent, of those from now on; answers with how many it took.
pub(crate) fn subscriber() -> Role {
    let mut subscriber = Subscriber::<Ticks>::new(&RunDir::from_environment(), StartAt::Now);
    while !subscriber.is_following() {
        subscriber.next(Some(Duration::from_millis(1))).unwrap();
    }
    Box::new(move |line| {
        let last: u64 = line.parse().unwrap();
        let mut taken = 0;
        loop {
            match subscriber.next(None).unwrap() {
                Some(Delivery::Event { sequence, .. }) => {
                    taken += 1;
                    if sequence >= last {
                        return taken.to_string();
                    }
                }
                Some(_) => {}
                None => panic!("it waits for ever"),
            }
        }
    })
}

/// Refreshes until it has the generation that it is sent.
pub(crate) fn cache() -> Role {
    let mut cache = SnapshotCache::<Pages>::new(&RunDir::from_environment());
    cache.refresh_within(Duration::from_secs(5)).unwrap();
    Box::new(move |line| {
        let last: u64 = line.parse().unwrap();
        while cache.current().is_none_or(|current| current.generation() < last) {
            cache.wait_for_change(None).unwrap();
        }
        "done".to_owned()
    })
}
