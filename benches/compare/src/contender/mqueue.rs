//! POSIX message queues, mq_overview(7): one each way, both ends block.

use nix::errno::Errno;
use nix::mqueue::{
    MQ_OFlag, MqAttr, MqdT, mq_attr_member_t, mq_close, mq_open, mq_receive, mq_send, mq_unlink,
};
use nix::sys::stat::Mode;

use super::arrivals::{Arrivals, announce, new_name};
use super::{
    Contender, ContenderInfo, Counters, Server, duplicate_of, put, serve_each, serve_messages,
};
use crate::Outcome;
use crate::handler::Handler;
use crate::load::{Case, Load};
use crate::measure::Measure;

/// The longest message and the most messages of a queue, unless the administrator has said otherwise.
const LONGEST: usize = 8192;
const DEEPEST: i64 = 10;

/// A queue each way.
pub(super) struct Mqueue;

impl Contender for Mqueue {
    const NAME: &'static str = "mqueue";

    fn about() -> ContenderInfo {
        ContenderInfo::of_linux(format!(
            "a queue each way, of {DEEPEST} messages, which is the most that a user may have by default; both ends \
             block, a thread for each connection"
        ))
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        duplicate_of(load).or_else(|| {
            (load.longest() > LONGEST)
                .then_some("a message has no more than 8 KiB, unless the administrator allows it")
        })
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        let (mut arrivals, load, case) = (Arrivals::new(case)?, case.load, case.clone());
        let accept = move || {
            let (requests, answers) = names(&case, &arrivals.next()?);
            let queues = (
                Queue::open(&requests, MQ_OFlag::O_RDONLY)?,
                Queue::open(&answers, MQ_OFlag::O_WRONLY)?,
            );
            // Both ends have them open: their names have served.
            mq_unlink(requests.as_str())?;
            mq_unlink(answers.as_str())?;
            Ok(queues)
        };
        // A client says goodbye by an empty message: a queue has no end.
        serve_each(Self::NAME, accept, move |(requests, answers)| {
            let receive = |buffer: &mut [u8]| requests.receive(buffer);
            Ok(serve_messages(&load, handler, receive, |answer| answers.send(answer))?)
        })
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        measure.run(|| Connection::connect(case))
    }
}

fn names(case: &Case, client: &str) -> (String, String) {
    let name = format!("/{}-{client}", case.name());
    (format!("{name}-requests"), format!("{name}-answers"))
}

/// An open queue.
struct Queue(Option<MqdT>);

impl Queue {
    fn create(name: &str, flags: MQ_OFlag, load: &Load) -> Outcome<Self> {
        let longest = mq_attr_member_t::try_from(load.longest())?;
        let attributes = MqAttr::new(0, DEEPEST, longest, 0);
        let flags = flags | MQ_OFlag::O_CREAT | MQ_OFlag::O_EXCL | MQ_OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        Ok(Self(Some(mq_open(name, flags, mode, Some(&attributes))?)))
    }

    fn open(name: &str, flags: MQ_OFlag) -> Outcome<Self> {
        Ok(Self(Some(mq_open(name, flags | MQ_OFlag::O_CLOEXEC, Mode::empty(), None)?)))
    }

    #[inline]
    fn send(&self, message: &[u8]) -> Result<(), Errno> {
        let queue = self.0.as_ref().ok_or(Errno::EBADF)?;
        loop {
            match mq_send(queue, message, 0) {
                Err(Errno::EINTR) => {}
                sent => return sent,
            }
        }
    }

    #[inline]
    fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let queue = self.0.as_ref().ok_or(Errno::EBADF)?;
        loop {
            match mq_receive(queue, into, &mut 0) {
                Err(Errno::EINTR) => {}
                received => return received,
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.0.take().map(mq_close);
    }
}

/// One connection.
struct Connection {
    requests: Queue,
    answers: Queue,
    buffer: Vec<u8>,
    calls: u64,
}

impl Connection {
    fn connect(case: &Case) -> Outcome<Self> {
        let name = new_name()?;
        let (requests, answers) = names(case, &name);
        let connection = Self {
            requests: Queue::create(&requests, MQ_OFlag::O_WRONLY, &case.load)?,
            answers: Queue::create(&answers, MQ_OFlag::O_RDONLY, &case.load)?,
            buffer: vec![0; case.load.longest()],
            calls: 0,
        };
        announce(case, &name)?;
        Ok(connection)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.requests.send(&[]);
    }
}

impl super::Client for Connection {
    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        self.calls += 1;
        Ok(self.requests.send(request)?)
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        self.calls += 1;
        // A queue wants room for its longest message.
        if answer.len() >= self.buffer.len() {
            return Ok(self.answers.receive(answer)?);
        }
        let len = self.answers.receive(&mut self.buffer)?;
        put(self.buffer.get(..len).unwrap_or_default(), answer)
    }

    fn counters(&mut self) -> Counters {
        Counters::of_system_calls(self.calls)
    }
}
