//! Messages in shared memory under a mutex and condition variables of pthreads, as C programs do it: a bounded buffer each way,
//! pthread_mutexattr_setpshared(3), pthread_mutexattr_setrobust(3).

mod queue;

use std::fs::{File, remove_file};
use std::path::Path;

use bellwire_floor::shared::Region;

use super::arrivals::{Arrivals, announce, new_name};
use super::{Contender, ContenderInfo, Server, duplicate_of, serve_each, serve_messages};
use crate::Outcome;
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::Measure;
use queue::{Queue, WaitLimit};

/// The most messages of a buffer, for one-way loads; a call needs one.
const MOST: usize = 64;
/// The bytes that they may have together.
const MAX_BYTES: usize = 4 << 20;

/// Two bounded buffers.
pub(super) struct ShmCondvar;

impl Contender for ShmCondvar {
    const NAME: &'static str = "shm-condvar";

    fn about() -> ContenderInfo {
        let settings = format!(
            "a process-shared robust mutex and two condition variables for each direction; as many slots as the load \
             has in flight, one way {MOST}; signalled after unlocking; a thread for each connection"
        );
        ContenderInfo::new(queue::version(), settings)
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Grow { .. } => Some("its slots have a fixed length"),
            _ => duplicate_of(load),
        }
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        let (mut arrivals, load, case) = (Arrivals::new(case)?, case.load, case.clone());
        let accept = move || {
            let path = case.file(&arrivals.next()?);
            let file = File::options().read(true).write(true).open(&path)?;
            let pair = Pair::new(&Region::open(file.into())?, &case.load)?;
            remove_file(path)?;
            Ok(pair)
        };
        // Until the client has closed its buffers.
        serve_each(Self::NAME, accept, move |pair: Pair| {
            let receive = |buffer: &mut [u8]| pair.requests.take(buffer, WaitLimit::Forever);
            let send = |answer: &[u8]| pair.answers.put(answer, WaitLimit::Forever);
            serve_messages(&load, handler, receive, send)
        })
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        measure.run(|| {
            let name = new_name()?;
            let pair = Pair::create(&case.file(&name), &case.load)?;
            announce(case, &name)?;
            Ok(pair)
        })
    }
}

/// The slots of a buffer.
fn slots(load: &Load) -> usize {
    if load.is_one_way() { (MAX_BYTES / load.longest()).clamp(2, MOST) } else { load.depth() }
}

/// Both buffers of a connection. Either end closes them.
struct Pair {
    requests: Queue,
    answers: Queue,
}

impl Pair {
    fn create(path: &Path, load: &Load) -> Outcome<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(2 * Queue::size(load.longest(), slots(load)) as u64)?;
        let pair = Self::new(&Region::open(file.into())?, load)?;
        pair.requests.initialize()?;
        pair.answers.initialize()?;
        Ok(pair)
    }

    fn new(memory: &Region, load: &Load) -> Outcome<Self> {
        let (longest, slots) = (load.longest(), slots(load));
        Ok(Self {
            requests: Queue::new(memory, 0, longest, slots)?,
            answers: Queue::new(memory, Queue::size(longest, slots), longest, slots)?,
        })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.requests.close();
        let _ = self.answers.close();
    }
}

impl super::Client for Pair {
    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        self.requests.put(request, WaitLimit::Bounded)
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        self.answers.take(answer, WaitLimit::Bounded)
    }
}
