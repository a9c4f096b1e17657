//! Who is rung, and how often.

use std::sync::mpsc::{Receiver, Sender, channel};

use bellwire_core::call::Reply;
use bellwire_core::drive::CallDriver;
use bellwire_core::serve::ServeCounts;
use bellwire_core::sync::Ordering;
use bellwire_core::{PeerMemory, Port, Word};

use super::super::endpoints::{Endpoints, Next, Taken};
use super::super::{Transport, session};
use super::{NOBODY, call, caller_waits_for_data, echo, wait};

/// What a serving end counted, and how often it rang.
type Counts = (ServeCounts, u64);

/// Reports the counters of a serving end once it has answered this many requests.
struct Report {
    after: u64,
    sender: Option<Sender<Counts>>,
}

impl Report {
    fn after(answers: u64) -> (Self, Receiver<Counts>) {
        let (sender, counted) = channel();
        (Self { after: answers, sender: Some(sender) }, counted)
    }

    fn look(&mut self, endpoints: &dyn Endpoints) {
        if endpoints.counts().answered == self.after
            && let Some(sender) = self.sender.take()
        {
            sender.send((endpoints.counts(), endpoints.rings())).unwrap();
        }
    }
}

pub(crate) fn hot_calls_do_not_ring<T: Transport>() {
    const CALLS: u64 = 2000;
    let (mut report, counted) = Report::after(CALLS);
    let mut driver = session::<T>(move |endpoints| {
        echo(endpoints);
        // Never parks.
        report.look(endpoints);
        Next::Again
    });
    let mut buffer = Vec::new();
    for call in 0..CALLS {
        let ticket = driver.submit(&call.to_le_bytes()).unwrap();
        let reply: Reply = loop {
            if let Some(reply) = driver.try_reply(&mut buffer).unwrap() {
                break reply;
            }
            driver.port().relax();
            std::thread::yield_now();
        };
        assert_eq!((reply.ticket, &buffer[..reply.len]), (ticket, &call.to_le_bytes()[..]));
    }
    let (counts, rings) = counted.recv().unwrap();
    assert_eq!((counts.accepted, counts.in_flight()), (CALLS, 0));
    assert_eq!((driver.end().rings(), driver.parks(), rings), (0, 0, 0));
}

/// Waits until the serving end has armed its doorbell for the next record.
fn until_server_is_armed<P: Port>(driver: &CallDriver<P>) {
    let peer = |word| driver.port().peer().load(word, Ordering::Acquire);
    while peer(Word::WantData) == NOBODY {
        driver.port().relax();
        std::thread::yield_now();
    }
}

pub(crate) fn parked_ends_are_rung_once_per_message_and_direction<T: Transport>() {
    const CALLS: u64 = 200;
    let (mut report, counted) = Report::after(CALLS);
    let mut held = None;
    let mut driver = session::<T>(move |endpoints| {
        if held.is_none() {
            held = endpoints.take();
        }
        let Some(Taken::Request(id, payload)) = &held else { return Next::Park };
        if !caller_waits_for_data(endpoints) {
            return Next::Again;
        }
        endpoints.answer(*id, payload);
        held = None;
        report.look(endpoints);
        Next::Park
    });
    for call_number in 0..CALLS {
        until_server_is_armed(&driver);
        let sent = call_number.to_le_bytes();
        assert_eq!(call(&mut driver, &sent), sent);
    }
    let (_, rings) = counted.recv().unwrap();
    assert_rings::<T>([driver.end().rings(), rings], CALLS);
    assert!(driver.parks() >= CALLS || !T::SLEEPS_WITHOUT_SPINNING);
}

/// Checks that each end was rung once for each of `count` messages, or saw it by itself before it slept.
fn assert_rings<T: Transport>(rings: [u64; 2], count: u64) {
    let least = if T::SLEEPS_WITHOUT_SPINNING { count } else { 0 };
    assert!(rings.iter().all(|rings| (least..=count).contains(rings)), "{rings:?} of {count}");
}

pub(crate) fn a_batch_is_one_publication_and_one_ring<T: Transport>() {
    const BATCH: u64 = 50;
    let (mut report, counted) = Report::after(BATCH);
    let mut taken = Vec::new();
    let mut driver = session::<T>(move |endpoints| {
        while let Some(Taken::Request(id, payload)) = endpoints.take() {
            taken.push((id, payload));
        }
        if (taken.len() as u64) < BATCH {
            return Next::Park;
        }
        if !caller_waits_for_data(endpoints) {
            return Next::Again;
        }
        for (id, payload) in taken.drain(..) {
            endpoints.prepare(id, &payload);
        }
        endpoints.commit();
        report.look(endpoints);
        Next::Park
    });
    until_server_is_armed(&driver);
    let tickets: Vec<_> = (0..BATCH).map(|at| driver.push(&at.to_le_bytes()).unwrap()).collect();
    assert_eq!(driver.end().rings(), 0, "nothing is published yet");
    driver.commit();
    for ticket in tickets {
        assert_eq!(wait(&mut driver).unwrap().0, ticket);
    }
    let (_, rings) = counted.recv().unwrap();
    assert_rings::<T>([driver.end().rings(), rings], 1);
    assert!(driver.parks() == 1 || !T::SLEEPS_WITHOUT_SPINNING);
}
