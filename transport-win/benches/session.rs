//! A session of Bellwire's, both ends.

use std::os::windows::io::AsHandle;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bellwire_core::call::SubmitError;
use bellwire_core::drive::{CallDriver, CallFailed, Responded, ServeDriver};
use bellwire_core::lane::{Armed, Lanes, PushError};
use bellwire_core::serve::Incoming;
use bellwire_core::wire::{CloseReason, Status};
use bellwire_core::{Deadline, Geometry, Park, Port, SpinPolicy, Woken};
use bellwire_win::endpoint::{self, Endpoint};
use bellwire_win::link::Link;
use bellwire_win::pass::Channel;
use bellwire_win::peer::{self, Reach};
use bellwire_win::{clock, poll};

use crate::exchange::link_over;
use crate::peer::Peer;
use crate::pipe::ONE_WAY;

/// The service whose ends spin, for as long as two milliseconds.
pub(crate) const HOT: &str = "hot";
/// The service whose ends never spin.
pub(crate) const PARKED: &str = "parked";
/// How long a hot end looks before it sleeps.
const SPIN: Duration = Duration::from_millis(2);
/// Requests that are answered before they are published.
const BATCH: u32 = 32;

/// The calling end.
pub(crate) struct Session {
    drive: CallDriver<Link>,
    buffer: Vec<u8>,
}

impl Session {
    pub(crate) fn connect(peer: &Peer, service: &str) -> Self {
        let service_name = service.parse().unwrap();
        let until = Some(clock::now().after(Duration::from_secs(10)));
        let channel = endpoint::connect_trusting(peer.run_dir(), service_name, &[], until).unwrap();
        let spin = match service {
            HOT => SpinPolicy { max: SPIN, worth: SPIN },
            _ => SpinPolicy::NEVER,
        };
        Self { drive: CallDriver::new(link_over(channel), lanes(), spin), buffer: Vec::new() }
    }

    /// Sends a request and waits for its answer, which is the same.
    pub(crate) fn call(&mut self, request: &[u8]) {
        let ticket = self.drive.submit(request).unwrap();
        let reply = self.drive.wait_for_reply(&mut { Deadline::NEVER }, &mut self.buffer).unwrap();
        assert_eq!(reply.ticket, ticket);
        assert_eq!(&self.buffer[..reply.len], request);
    }

    /// Sends so many requests, as fast as the lane takes them, each answered by nothing.
    pub(crate) fn stream(&mut self, size: usize, count: u32) -> Duration {
        let request = vec![ONE_WAY; size];
        let began = Instant::now();
        let (mut sent, mut answered) = (0, 0);
        while answered < count {
            while sent < count {
                match self.drive.submit(&request) {
                    Ok(_) => sent += 1,
                    Err(CallFailed::Submit(SubmitError::Push(PushError::Full { .. }))) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            while self.drive.try_reply(&mut self.buffer).unwrap().is_some() {
                answered += 1;
            }
        }
        began.elapsed()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.drive.close(CloseReason::Normal);
    }
}

/// Serves both services, each session on a thread of its own; `ready` is called when clients may come. Returns at once.
pub(crate) fn serve(run_dir: &Path, ready: impl FnOnce()) {
    for (service, spin) in [(HOT, SPIN), (PARKED, Duration::ZERO)] {
        let endpoint = Endpoint::bind_admitting(
            run_dir,
            service.parse().unwrap(),
            &bellwire_win::admission::Admission::SameUser,
        )
        .unwrap();
        thread::spawn(move || {
            loop {
                let mut channel = accept(&endpoint);
                thread::spawn(move || {
                    let client = peer::process(&channel, Reach::Handles).unwrap();
                    channel.reach(client);
                    answer(link_over(channel), spin);
                });
            }
        });
    }
    ready();
}

fn accept(endpoint: &Endpoint) -> Channel {
    loop {
        match endpoint.accept().unwrap() {
            Some(channel) => return channel,
            None => drop(poll::wait(&[endpoint.as_handle()], None).unwrap()),
        }
    }
}

/// Answers each request with what it is, or with nothing, until the client is gone.
fn answer(link: Link, spin: Duration) {
    let mut driver = ServeDriver::<Link>::new(link, lanes(), u64::MAX, ());
    let (mut buffer, mut active) = (Vec::new(), clock::now());
    loop {
        driver.end().disarm();
        let mut taken = 0;
        while taken < BATCH {
            driver.flush().unwrap();
            if driver.is_blocked() {
                break;
            }
            let Some(incoming) = driver.next(&mut buffer).unwrap() else { break };
            if let Incoming::Request { id, len, .. } = incoming {
                let answer = if buffer[0] == ONE_WAY { &[] } else { &buffer[..len] };
                if !driver.try_respond(id, Status::Ok, answer) {
                    assert_eq!(driver.respond(id, Status::Ok, answer), Ok(Responded::Done));
                }
            }
            taken += 1;
        }
        driver.commit();
        if taken > 0 {
            active = clock::now();
            continue;
        }
        if !spin.is_zero() && clock::now().since(active) < spin {
            driver.end().port().relax();
            continue;
        }
        let Armed::Sleep { tail, head } = driver.arm().unwrap() else { continue };
        let park = Park { tail, head, until: None };
        if driver.end_mut().port_mut().park(park) == Woken::PeerGone {
            return;
        }
        active = clock::now();
    }
}

fn lanes() -> Lanes {
    Lanes::new(Geometry::DEFAULT, Geometry::DEFAULT)
}
