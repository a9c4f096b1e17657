//! A provider process of the soak.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bellwire::{Caller, HandlerError, Payload, ServeError, Server, ServerConfig, ServerStats};
use bellwire_process as process;

use crate::args::Child;
use crate::header::Header;
use crate::protocol::{self, ChildMessage, Defect, Echo, Served};
use bellwire_cli::exit::{Exit, Failure};
use bellwire_cli::out;

/// How long a provider waits for a client that takes nothing. The steady provider: long enough for a client that is only slow
/// on a busy machine, and shorter than the deliberate pauses. The other one: shorter than some stops and longer than most.
const STALL_TIMEOUTS: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(1)];
/// How long a client may take for the handshake, on any machine.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// The number of calls after which an injected defect takes effect again.
const DEFECT_ONCE_IN: u64 = 20;

pub(crate) fn run(child: &Child) -> Result<Exit, Failure> {
    process::end_with_parent();
    let is_steady = child.role.is_steady();
    // One: with more, requests of one session run in any order, and their numbers prove nothing.
    let workers = usize::from(is_steady);
    let [stall_timeout, handshake_timeout] = match is_steady {
        true => [STALL_TIMEOUTS[0], HANDSHAKE],
        false => [STALL_TIMEOUTS[1], ServerConfig::default().handshake_timeout],
    };
    let config = ServerConfig::default()
        .workers(workers)
        .stall_timeout(Some(stall_timeout))
        .handshake_timeout(handshake_timeout);
    let run_dir = protocol::run_dir(&child.run_dir, is_steady);
    let mut builder = Server::builder_with_config(&run_dir, config);
    let call_counts = Arc::new(Mutex::new(CallCounts::default()));
    let (theirs, defect) = (Arc::clone(&call_counts), child.defect);
    let handler = move |_: &Caller, request: Vec<u8>| answer(&theirs, defect, &request);
    let failed = |error: ServeError| Failure::of(Exit::Failed, "cannot serve", &error);
    builder.serve::<Echo>(handler).map_err(failed)?;
    let server = builder.start().map_err(failed)?;
    protocol::report(|| ChildMessage::Served(lock(&call_counts).served(&server.stats())))?;
    let stats = server.stop();
    out::json_line(&ChildMessage::Served(lock(&call_counts).served(&stats)))?;
    out::json_line(&ChildMessage::Done)?;
    Ok(Exit::Ok)
}

/// The handler's records.
#[derive(Debug, Default)]
struct CallCounts {
    calls: u64,
    damaged: u64,
    repeated: u64,
    runs: BTreeMap<u64, u64>,
    /// By consumer and thread.
    last: BTreeMap<(u64, u64), u64>,
}

impl CallCounts {
    fn note(&mut self, header: Option<&Header>) {
        self.calls += 1;
        let Some(header) = header else {
            self.damaged += 1;
            return;
        };
        *self.runs.entry(header.who).or_default() += 1;
        let last = self.last.entry((header.who, header.thread)).or_default();
        self.repeated += u64::from(header.sequence <= *last);
        *last = header.sequence.max(*last);
    }

    fn served(&self, stats: &ServerStats) -> Served {
        Served {
            sessions: stats.sessions,
            admitted: stats.admitted,
            accepted: stats.accepted,
            answered: stats.answered,
            refused: stats.refused,
            lost: stats.lost,
            poisoned: stats.poisoned,
            stalled: stats.stalled,
            damaged: self.damaged,
            repeated: self.repeated,
            runs: self.runs.clone(),
        }
    }
}

fn answer(
    call_counts: &Mutex<CallCounts>,
    defect: Option<Defect>,
    request: &[u8],
) -> Result<Vec<u8>, HandlerError> {
    let header = Header::read(request);
    let calls = {
        let mut call_counts = lock(call_counts);
        call_counts.note(header.as_ref());
        call_counts.calls
    };
    let Some(header) = header else { return Err(HandlerError::new("the request is damaged")) };
    let mut answer = header.answered();
    if calls.is_multiple_of(DEFECT_ONCE_IN) {
        inject(defect, &mut answer);
    }
    Ok(answer)
}

fn inject(defect: Option<Defect>, answer: &mut [u8]) {
    match defect {
        Some(Defect::Descriptor) => {
            // The descriptor is leaked on purpose.
            let _ = std::fs::File::open("/dev/null").map(std::mem::forget);
        }
        Some(Defect::Thread) => drop(thread::spawn(|| {
            loop {
                thread::park();
            }
        })),
        Some(Defect::Memfd) => {
            let _ = Payload::build_from(0, 4096, |_| {}).map(std::mem::forget);
        }
        Some(Defect::Memory) => std::mem::forget(black_box(vec![1_u8; 1 << 20])),
        Some(Defect::WrongAnswer) => {
            if let Some(byte) = answer.last_mut() {
                *byte ^= 1;
            }
        }
        _ => {}
    }
}

/// Nothing that holds this lock can panic halfway through a change.
fn lock(call_counts: &Mutex<CallCounts>) -> MutexGuard<'_, CallCounts> {
    call_counts.lock().unwrap_or_else(PoisonError::into_inner)
}
