//! A call of 64 bytes with both ends awake: the instructions of the client, and those of the server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use bellwire::{
    Client, ClientConfig, Geometry, LaneConfig, RunDir, Server, ServerConfig, Service, Session,
    SpinPolicy,
};

use crate::{callgrind, dump_sample};

/// The argument that makes this program the provider, before its run dir.
pub const ROLE: &str = "provide";

/// Of one call each. The other end runs outside of callgrind and may be held up, and some calls are sampled for a tracer:
/// one sample without that is enough.
const SAMPLES: usize = 100;
/// How long an end that is counted, which is some 50 times slower than otherwise, spins.
const SPIN: Duration = Duration::from_millis(20);

struct Echo;

impl Service for Echo {
    const NAME: &'static str = "count-echo-64";
    type Request = [u8; 64];
    type Response = [u8; 64];
}

/// What the client executes for a call. The provider is a process of its own, outside of callgrind: its answer is
/// there before the client polls.
pub fn count_client() {
    sample_client("call-client", call_counted);
    sample_client("submit-and-reply-client", submit_and_take_counted);
}

/// Takes samples of `counted`, which returns whether the answer was there at the first poll: others do not count, nor does one for
/// which the provider had to be woken. A provider that is kept from its processor goes on sleeping for long: then another one is
/// started. A call that is timed for the statistics does not count either: it costs instructions, and reading the clock gives its
/// answer time to arrive. Where most answers are late with each provider, for example since the two processors share no cache, a
/// sample of no operation says so.
fn sample_client(name: &str, counted: fn(&mut Session<Echo>) -> bool) {
    const MAX_PROVIDERS: usize = 20;
    for _ in 0..MAX_PROVIDERS {
        let mut samples = 0;
        let dir = tempfile::tempdir().unwrap();
        let mut provider = Provider::start(dir.path().to_str().unwrap());
        // It sleeps where it would have to wait, which is counted.
        let mut client = client(&RunDir::new(dir.path()), SpinPolicy::NEVER);
        let session = client.connect().unwrap();
        for _ in 0..SAMPLES {
            warm_up(session);
            callgrind::zero();
            let (rings, latency) = (session.stats().rings, session.latency());
            let is_in_time = counted(session);
            if is_in_time && session.stats().rings == rings && session.latency() == latency {
                dump_sample(name, 1);
                samples += 1;
            }
        }
        drop(client);
        provider.stop();
        if samples >= SAMPLES / 4 {
            return;
        }
    }
    dump_sample(name, 0);
}

fn client(run_dir: &RunDir, spin: SpinPolicy) -> Client<Echo> {
    // Large enough for all that is in flight, small enough for some laps.
    let lane = Geometry::new(16 << 10).unwrap();
    let timeout = Duration::from_secs(60);
    Client::with_config(
        run_dir,
        ClientConfig::default().spin(spin).timeout(timeout).lane(LaneConfig::default().size(lane)),
    )
}

fn call(session: &mut Session<Echo>) {
    assert_eq!(session.call(&[7; 64]).unwrap(), [7; 64]);
}

/// Calls until a call did not sleep, if that is soon: the one after a sleep is timed.
fn warm_up(session: &mut Session<Echo>) {
    const MAX_CALLS: usize = 4;
    for _ in 0..MAX_CALLS {
        let parks = session.stats().parks;
        call(session);
        if session.stats().parks == parks {
            return;
        }
    }
}

/// A call. False when the answer was late.
#[inline(never)]
fn call_counted(session: &mut Session<Echo>) -> bool {
    let waits = session.stats().waits;
    callgrind::toggle();
    let answer = session.call(&[7; 64]);
    callgrind::toggle();
    assert_eq!(answer.unwrap(), [7; 64]);
    session.stats().waits == waits
}

/// The two halves of a call, without the wait between them. False when the answer was late.
#[inline(never)]
fn submit_and_take_counted(session: &mut Session<Echo>) -> bool {
    callgrind::toggle();
    let ticket = session.submit(&[7; 64]);
    callgrind::toggle();
    let ticket = ticket.unwrap();
    // The answer is there long before this ends, and nothing of the session is touched meanwhile.
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(50) {}
    callgrind::toggle();
    let reply = session.try_reply();
    callgrind::toggle();
    let (in_time, (of, answer)) = match reply.unwrap() {
        Some(reply) => (true, reply),
        None => (false, session.wait_reply(Duration::from_secs(60)).unwrap()),
    };
    assert_eq!((of, answer.unwrap()), (ticket, [7; 64]));
    in_time
}

/// The provider's process.
struct Provider(Child);

impl Provider {
    fn start(run_dir: &str) -> Provider {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program)
            .args([ROLE, run_dir])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the provider did not start");
        Provider(child)
    }

    fn stop(&mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// Provides until the other end of the standard input is closed.
pub fn serve(run_dir: &str) {
    let config = ServerConfig::default().spin(SpinPolicy { max: SPIN, pays_within: SPIN });
    let mut builder = Server::builder_with_config(&RunDir::new(run_dir), config);
    builder.serve::<Echo>(|_, bytes| Ok(bytes)).unwrap();
    let server = builder.start().unwrap();
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
    server.stop();
}

/// What the server executes for a request that is there when it polls: from one call of the handler to the one eight
/// requests later, with the publishing of the answers in between.
pub fn count_server() {
    /// As many as are published together, and no clock is read that could end the turn.
    const COUNTED: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let (release, released) = sync_channel::<()>(0);
    let mut builder = Server::builder(&run_dir);
    let released = Mutex::new(released);
    builder
        .serve::<Echo>(move |_, bytes| {
            match bytes[0] {
                // Holds the reactor until all requests are in its lane.
                FIRST => wait(&released.lock().unwrap()),
                BEGIN | END => callgrind::toggle(),
                _ => {}
            }
            Ok(bytes)
        })
        .unwrap();
    let server = builder.start().unwrap();
    let mut client = client(&run_dir, SpinPolicy { max: SPIN, pays_within: SPIN });
    let session = client.connect().unwrap();
    for _ in 0..SAMPLES {
        callgrind::zero();
        session.submit(&[FIRST; 64]).unwrap();
        let others = [BEGIN].into_iter().chain((1..COUNTED).map(|_| 0)).chain([END]);
        for kind in others {
            session.submit(&[kind; 64]).unwrap();
        }
        release.send(()).unwrap();
        for _ in 0..COUNTED + 2 {
            session.wait_reply(Duration::from_secs(60)).unwrap().1.unwrap();
        }
        dump_sample("call-server", COUNTED);
    }
    drop(client);
    server.stop();
}

const FIRST: u8 = 1;
const BEGIN: u8 = 2;
const END: u8 = 3;

fn wait(released: &Receiver<()>) {
    released.recv().unwrap();
}
